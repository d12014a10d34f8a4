"""`slipstream predict`, from a Python function to a timeline, with the real compiler."""

import json
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput, Missing

STEP = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec


def build(devices):
    mesh = Mesh(np.array(devices), ("data",))
    sharded = NamedSharding(mesh, PartitionSpec("data"))
    x = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    step = jax.jit(lambda x, w: jnp.tanh(x @ w) @ w, in_shardings=sharded, out_shardings=sharded)
    return step, (x, x)
"""
QUICK = "--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_command_buffer="


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A small step, cut over all devices, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "step.py").write_text(STEP)
    return f"{tmp_path / 'step.py'}:build"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_a_function_to_a_timeline(target: str, tmp_path: Path) -> None:
    file = tmp_path / "step.xplane.pb"
    arguments = ("predict", target, "--on", "2xH200,16xH200", "--flags", QUICK, "--json")
    two, many = json.loads(run(*arguments))["predictions"]
    assert (two["devices"], many["devices"]) == (2, 16)
    assert two["basis"] == {"modelled": 1.0}
    assert two["communication_us"] > 0
    assert 0 < many["compute_us"] < two["compute_us"]
    assert two["memory_bytes"] > many["memory_bytes"] > 0
    # Compiled before, so this one comes from the cache.
    run("predict", target, "--on", "2xH200", "--flags", QUICK, "--timeline", str(file))
    summary = json.loads(run("summary", str(file), "--json"))
    assert summary["per_step_us"]["wall"] == pytest.approx(two["step_us"])
    assert summary["per_step_us"]["communication"] == pytest.approx(two["communication_us"])


def test_a_baseline_from_a_file_and_from_another_checkout(target: str, tmp_path: Path) -> None:
    base = str(tmp_path / "base.json")
    common = ("predict", target, "--on", "2xH200", "--flags", QUICK)
    run(*common, "-o", base)
    # The same again, from the cache; then the baseline's machine is another one.
    for baseline in (base, target):
        found = json.loads(run(*common, "--baseline", baseline, "--gate", "2", "--json"))
        regression = found["regression"]
        assert regression["before"]["fingerprint"] == found["fingerprint"] is not None
        assert found["versions"].keys() >= {"slipstream", "jax", "jaxlib"}
        assert (regression["verdict"], regression["step_change"]) == ("same program", 0)
        assert (regression["passed"], regression["memory_limit"]) == (True, 0.02)
    changed = {**json.loads(Path(base).read_text()), "machine": "8xH200"}
    Path(base).write_text(json.dumps(changed))
    with pytest.raises(BadInput, match="no prediction for 2xH200, only for 8xH200"):
        run(*common, "--baseline", base)


@pytest.mark.parametrize("option", ["--gate", "--gate-memory", "--markdown"])
def test_what_needs_a_baseline(option: str) -> None:
    with pytest.raises(BadInput, match=f"^{option} compares with an earlier prediction; add: --ba"):
        run("predict", "nothing.py:build", option, "2%")


def test_a_baseline_has_a_name_by_which_it_is_known() -> None:
    with pytest.raises(BadInput, match=r"expected: -o base\.json"):
        run("predict", "nothing.py:build", "-o", "base.txt")


def test_a_target_that_is_none() -> None:
    with pytest.raises(BadInput, match="nothing.py"):
        run("predict", "nothing.py:build")


def test_maxtext_has_to_be_installed() -> None:
    if find_spec("maxtext") is not None:
        pytest.skip("MaxText is installed; tests/stacks/test_trainers.py predicts with it")
    with pytest.raises(Missing, match=r"^--maxtext needs MaxText .*: pip install 'maxtext\["):
        run("predict", "--maxtext", "base.yml", "per_device_batch_size=4")


def test_settings_belong_to_maxtext() -> None:
    with pytest.raises(BadInput, match="takes one target, and got steps=3 as well; .* --maxtext"):
        run("predict", "step.py:build", "steps=3")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("--steps", "--steps is no setting of MaxText; expected key=value: "),
        ("compile_topology=a3", "compile_topology=a3 would be another machine than that of --on"),
    ],
)
def test_settings_that_are_none(
    setting: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.maxtext.find_spec", lambda name: object())
    with pytest.raises(BadInput, match=f"^{message}"):
        run("predict", "--maxtext", "--", "base.yml", setting)

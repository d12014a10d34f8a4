"""`slipstream predict`, from a Python function to a timeline, with the real compiler."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput

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


def test_a_target_that_is_none() -> None:
    with pytest.raises(BadInput, match="nothing.py"):
        run("predict", "nothing.py:build")

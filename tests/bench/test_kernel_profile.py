"""Measuring a kernel, as far as it can be tried without a GPU."""

import pytest
from typer.testing import CliRunner

from slipstream.bench import kernel_profile
from slipstream.bench.kernel_profile import KernelBench, profile_function
from slipstream.cli.machines import machines
from slipstream.compiler import local_gpu
from slipstream.errors import BadInput, Missing
from slipstream.machines.files import read_machine
from slipstream.machines.measured_calls import MeasuredCall

TARGET = """
import jax, jax.numpy as jnp

def build(devices):
    return jax.jit(lambda x: jnp.tanh(x) @ x, donate_argnums=0), jax.ShapeDtypeStruct((8, 8), jnp.float32)
"""  # noqa: E501


@pytest.fixture
def target(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(TARGET)
    return f"{file}:build"


def test_a_function_is_run_and_profiled(target, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.argv", ["test"])
    monkeypatch.setattr("sys.path", list(__import__("sys").path))
    module, _, function = target.rpartition(":")
    answer = KernelBench().profile(module, function, str(tmp_path / "profile"))
    assert answer == {"device": "cpu", "runs": kernel_profile.RUNS}
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))


def test_without_a_gpu_it_says_where_to_run(target, tmp_path, monkeypatch):
    monkeypatch.setattr(local_gpu, "visible_gpu", lambda: None)
    with pytest.raises(Missing, match="no GPU is visible to measure .*build on"):
        profile_function(target, tmp_path)
    with pytest.raises(BadInput, match=r"expected FILE.py:FUNCTION"):
        profile_function("kernels.py", tmp_path)


def test_the_command_adds_what_was_measured_to_a_machine_file(target, tmp_path, monkeypatch):
    """With a GPU in place of which the test answers."""
    calls = [MeasuredCall("mine", ("f32[8,8]",), 12.5, target)]
    monkeypatch.setattr(kernel_profile, "profile_function", lambda *_: "NVIDIA H200")
    monkeypatch.setattr("slipstream.cli.machines._programs", lambda folder: [(None, {})])
    monkeypatch.setattr("slipstream.machines.measured_calls.measured_calls", lambda *_: calls)
    out = tmp_path / "mine.toml"
    command = ["calibrate", "--kernel", target, "-o", str(out)]
    done = CliRunner().invoke(machines, command)
    assert done.exit_code == 0, done.output
    assert "mine · f32[8,8] · 12.5 µs" in done.output
    assert read_machine(out).gpu.name == "H200"
    again = CliRunner().invoke(machines, [*command, "--json"])
    assert '"calls"' in again.output and len(read_machine(out).calibration["calls"]) == 1
    assert "1 custom call" in CliRunner().invoke(machines, ["show", str(out)]).output
    calls.clear()
    nothing = CliRunner().invoke(machines, command)
    assert "ran no custom call of its own" in str(nothing.exception)
    neither = CliRunner().invoke(machines, ["calibrate", "-o", str(out)])
    assert "nothing to calibrate from" in str(neither.exception)

"""What goes wrong, in real processes: one sentence each, with the fix."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from slipstream.compiler.compile import compilation, compiler
from slipstream.compiler.failures import explain
from slipstream.compiler.targets import Target
from slipstream.compiler.worker.process import WorkerFailed
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput, Missing
from slipstream.machines.topology import machine


def complaint(kind, *args, **options):
    with pytest.raises(kind) as error:
        compilation(*args, **options)
    return str(error.value)


def test_targets_that_are_not_there(step, step_folder, tmp_path):
    assert "expected FILE.py:FUNCTION" in complaint(BadInput, "nothing")
    assert "other.py does not exist" in complaint(BadInput, f"{tmp_path}/other.py:build")
    expected = f"{step} does not name a function; write {step}:build or {step}:with_mesh or"
    assert complaint(BadInput, step).startswith(expected)
    assert "can't compile a int" in complaint(BadInput, 7)
    (tmp_path / "empty.py").write_text("x = 1\n")
    said = complaint(BadInput, str(tmp_path / "empty.py"))
    assert "a function that takes `devices` and returns a jitted function" in said
    assert "expected only a mapping" in complaint(BadInput, f"{step}:build", (1, 2))


def test_targets_that_fail(step, tmp_path):
    said = complaint(BadInput, f"{step}:raises")
    assert f"{step}:raises raised ValueError: no such layer at {step}:" in said
    log = Path(said.rpartition("traceback: ")[2])
    assert "Traceback (most recent call last)" in log.read_text()

    broken = tmp_path / "broken.py"
    broken.write_text("import a_package_that_is_not_there\n")
    said = complaint(BadInput, f"{broken}:build")
    assert "raised ModuleNotFoundError: No module named 'a_package_that_is_not_there'" in said
    assert f"at {broken}:1" in said


def test_targets_that_give_the_wrong_thing(step):
    assert f"{step} has no function bild; did you mean build? it has " in complaint(
        BadInput, f"{step}:bild"
    )
    assert "number returned a int; expected a jitted function" in complaint(
        BadInput, f"{step}:number"
    )
    assert "too_few returned 1 arguments for step(weights, batch)" in complaint(
        BadInput, f"{step}:too_few"
    )
    assert "wants_more takes rate; expected a parameter called `devices`" in complaint(
        BadInput, f"{step}:wants_more"
    )
    assert "not_traceable raised TypeError: cannot reshape" in complaint(
        BadInput, f"{step}:not_traceable"
    )


def test_files_that_are_not_there(step, quick):
    said = complaint(BadInput, f"{step}:build", costs="/no/costs.pb")
    assert said.startswith("/no/costs.pb does not exist")
    said = complaint(BadInput, f"{step}:build", autotuning="/no/results.pbtxt")
    assert said.startswith("/no/results.pbtxt does not exist")


def test_a_topology_that_can_not_be_built(step):
    said = complaint(BadInput, f"{step}:build", on="8xH200", target_config="nonsense {")
    assert said.startswith("XLA can't build the topology 1x1x8 of H200, for 8xH200: ")
    assert "expected slices × hosts × GPUs" in said


def test_flags_of_the_environment_that_xla_refuses(step, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_no_such_flag=1")
    said = complaint(BadInput, f"{step}:build")
    assert said == (
        "XLA rejects XLA_FLAGS: unknown --xla_gpu_no_such_flag=1; see: slipstream flags lint"
    )


def test_a_session_survives_a_failure(step, quick):
    """XLA refuses costs that match nothing, if it is asked to; the next compile is fine."""
    useless = CostTable((ProgramCosts(None, "any", {"nothing": Cost("nothing", 1.0)}),))
    strict = {**quick, "xla_gpu_pgle_accuracy_checker": "PGLE_STRICTNESS_LEVEL_ERROR"}
    with compiler(f"{step}:build", on="2xH200") as session:
        with pytest.raises(BadInput, match="XLA can't compile .*missing instructions"):
            session.compile(flags=strict, costs=useless)
        assert session.compile(flags=quick).devices == 2


def test_no_plugin(step, tmp_path):
    """An environment with jax and without its GPU plugin."""
    import jax

    packages = Path(jax.__file__).parents[1]
    few = tmp_path / "packages"
    few.mkdir()
    for entry in packages.iterdir():
        if "cuda" not in entry.name and entry.name != "jax_plugins":
            (few / entry.name).symlink_to(entry)
    script = (
        f"from slipstream.compiler.compile import compilation; compilation({step!r} + ':build')"
    )
    sources = Path(__file__).resolve().parents[2] / "src"
    done = subprocess.run(
        [sys.executable, "-S", "-c", script],
        env={**os.environ, "PYTHONPATH": f"{sources}{os.pathsep}{few}"},
        capture_output=True,
        text=True,
    )
    assert "Missing: compiling for GPUs needs the package jax-cuda13-plugin" in done.stderr
    assert "pip install 'slipstream[compiler]'" in done.stderr


def test_a_plugin_of_another_release(monkeypatch):
    from slipstream.compiler import versions

    releases = {"jax": "0.12.0", "jaxlib": "0.12.0.1", "jax-cuda13-plugin": "0.10.2"}
    monkeypatch.setattr(versions, "_release", releases.get)
    with pytest.raises(Missing) as error:
        versions.installed_versions.__wrapped__()
    assert "0.10.2 does not match jaxlib 0.12.0.1" in str(error.value)
    assert "pip install 'jax-cuda13-plugin==0.12.0.1'" in str(error.value)


def test_the_model_of_a_gpu_without_its_tools(tmp_path, monkeypatch):
    from slipstream.compiler import local_gpu

    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(local_gpu, "_DRIVER", tmp_path)
    assert local_gpu.visible_gpu() is None
    (tmp_path / "0000:19:00.0").mkdir()
    facts = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 40\n"
    (tmp_path / "0000:19:00.0" / "information").write_text(facts)
    assert local_gpu.visible_gpu() == "NVIDIA H200"


def test_no_gpu_to_tune_on(step):
    from slipstream.compiler.local_gpu import is_same_model, visible_gpu
    from slipstream.machines.topology import machine

    h200 = machine("8xH200")
    assert is_same_model(h200, "NVIDIA H200") and not is_same_model(h200, "NVIDIA H100 NVL")
    if visible_gpu() is None:
        assert "no GPU is visible to autotune on" in complaint(
            Missing, f"{step}:build", use_gpu=True
        )


def explained(answer: dict[str, object], log: str = "", *, died: bool = False) -> str:
    failed = WorkerFailed(answer, log, died=died)
    return str(explain(failed, "compile", Target("hlo", "step.hlo"), machine("H100")))


def test_a_kernel_with_too_large_blocks_does_not_blame_the_batch():
    line = (
        "JaxRuntimeError: RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested 2097152"
    )
    said = explained({"error": "JaxRuntimeError", "line": line})
    assert said.startswith("a kernel of step.hlo needs more shared memory than an SM of H100 has")
    assert "make its blocks smaller" in said and "batch" not in said


def test_a_failed_check_of_xla_is_named_not_its_stack():
    log = (
        "I1119 03:58:32.4 28 a.cc:242] Found a target config.\n"
        "F1119 03:58:33.2 28 layout.cc:174] Check failed: rank == 2 (3 vs. 2)\n"
        "*** Check failure stack trace: ***\n    @     0x7feedf558ba3  PyObject_Vectorcall\n"
    )
    said = explained({"code": -6, "is_aborted": False}, log, died=True)
    assert "exited with code -6: Check failed: rank == 2 (3 vs. 2) (log: " in said

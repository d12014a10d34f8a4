"""Many combinations of keyword arguments in one worker: the same as one compile for each."""

import threading
import time

import pytest

from slipstream.compiler.combinations import combinations
from slipstream.compiler.compile import compilation
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.workers import Workers
from slipstream.errors import BadInput

ON = "2xH200"
STEP = """
import os, time
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import sizes

calls = []

def build(devices, width=64, kind="plain"):
    calls.append(kind)
    assert len(calls) == 1, "the file runs anew for each combination"
    if kind == "raises":
        raise ValueError("no such layer")
    if kind == "hangs":
        open(os.path.join(os.path.dirname(__file__), "hangs"), "w").close()
        time.sleep(600)
    if kind == "dies":
        os._exit(3)
    if kind == "precise":
        jax.config.update("jax_default_matmul_precision", "highest")
    mesh = Mesh(np.array(devices), ("data",))
    width = width * sizes.FACTOR

    def step(weights, batch):
        return jnp.tanh(batch @ weights) * sizes.scale()

    def shaped(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P("data")))

    return jax.jit(step), shaped(width, width), shaped(8, width)
"""
SIZES = """
import functools, os

FACTOR = int(os.environ.get("STEP_FACTOR", "1"))

@functools.cache
def scale():
    with open(os.path.join(os.path.dirname(__file__), "scale.txt")) as file:
        return float(file.read())
"""


@pytest.fixture(scope="module")
def workers():
    with Workers() as found:
        yield found


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.delenv("STEP_FACTOR", raising=False)
    (tmp_path / "step.py").write_text(STEP)
    (tmp_path / "sizes.py").write_text(SIZES)
    (tmp_path / "scale.txt").write_text("2")
    return tmp_path


@pytest.fixture
def started(monkeypatch):
    """A list that grows with each worker process."""
    from slipstream.compiler import workers

    found = []

    class Counted(workers.WorkerProcess):
        def __init__(self, *args, **keywords):
            found.append(args)
            super().__init__(*args, **keywords)

    monkeypatch.setattr(workers, "WorkerProcess", Counted)
    return found


def matrix_bytes(width):
    return width * width * 4 // 2 + 8 * width * 4 // 2


def test_combinations_share_a_worker_and_the_cache(folder, quick, started):
    target = f"{folder}/step.py:build"
    with combinations(target, ON) as session:
        found = {w: session.compile({"width": w}, quick) for w in (64, 128)}
        assert len(started) == 1
        assert [one.is_cached for one in found.values()] == [False, False]
        assert [one.memory.arguments_bytes for one in found.values()] == [
            matrix_bytes(64),
            matrix_bytes(128),
        ]
    alone = compilation(target, {"width": 128}, on=ON, flags=quick)
    assert alone.is_cached and alone.proto == found[128].proto
    other = compilation(target, {"width": 32}, on=ON, flags=quick)
    with combinations(target, ON) as session:
        again = session.compile({"width": 32}, quick)
        assert again.is_cached and again.proto == other.proto
        assert session.portable_target({"width": 32}).kind == "stablehlo"


def test_a_combination_gives_the_program_that_it_gives_alone(folder, quick, tmp_path, monkeypatch):
    target = f"{folder}/step.py:build"
    with combinations(target, ON) as session:
        session.inspect({"width": 32})
        session.compile({"width": 96, "kind": "precise"}, quick)
        after = session.compile({"width": 96}, quick)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    alone = compilation(target, {"width": 96}, on=ON, flags=quick)
    assert not alone.is_cached and alone.proto.read_bytes() == after.proto.read_bytes()


def test_files_and_variables_that_an_earlier_combination_read_count(
    folder, quick, monkeypatch, started
):
    """`sizes` is imported, and its file read, only once in the worker."""
    with combinations(f"{folder}/step.py:build", ON) as session:
        session.inspect({"width": 32})
        assert "STEP_FACTOR" in session.inputs.variables
        # Only what the target reads: others differ from shell to shell.
        assert not {"PATH", "PWD", "PYTEST_CURRENT_TEST"} & {*session.inputs.variables}
        assert not session.compile({"width": 64}, quick).is_cached
        assert session.compile({"width": 64}, quick).is_cached
        (folder / "scale.txt").write_text("3")
        first = session.compile({"width": 64}, quick)
        assert not first.is_cached and len(started) == 2
        monkeypatch.setenv("STEP_FACTOR", "2")
        wide = session.compile({"width": 64}, quick)
        assert not wide.is_cached and len(started) == 3
        assert wide.memory.arguments_bytes == matrix_bytes(128)
        assert session.inspect({"width": 32}).arguments_bytes == matrix_bytes(64)


def test_a_worker_that_failed_is_replaced(folder, started):
    with combinations(f"{folder}/step.py:build", ON) as session:
        kinds = {}
        for kind in ("raises", "dies", "plain"):
            try:
                session.inspect({"kind": kind})
            except CompileFailed as failed:
                kinds[kind] = failed.kind
        assert kinds == {"raises": "invalid", "dies": "died"} and len(started) == 2

        def abort():
            while not (folder / "hangs").exists():
                time.sleep(0.01)
            session.abort()

        threading.Thread(target=abort).start()
        with pytest.raises(CompileFailed, match="aborted") as caught:
            session.compile({"kind": "hangs"})
        assert caught.value.kind == "aborted"
        session.abort()  # while nothing runs
        assert session.inspect({}).arguments_bytes == matrix_bytes(64)
        assert len(started) == 3


def test_a_worker_serves_several_machines(folder, workers, quick, started):
    target = f"{folder}/step.py:build"
    sizes = {}
    for spec in ("2xH200", "2x4xH100", "4xH200"):
        with combinations(target, spec, workers=workers) as session:
            found = session.inspect({})
            sizes[spec] = found.devices, session.compile({}, quick).devices
    assert sizes == {"2xH200": (2, 2), "2x4xH100": (8, 8), "4xH200": (4, 4)}
    assert len(started) == 1


def test_only_python_can_vary(tmp_path):
    (tmp_path / "step.mlir").write_text("module {}")
    with pytest.raises(BadInput, match="nothing in it can vary"):
        combinations(str(tmp_path / "step.mlir"), ON)

"""A step's time as a loop sees it: the second of two that are launched in a row."""

import jax
import pytest

from slipstream.bench import bench as module
from slipstream.bench.bench import Bench
from slipstream.compiler.worker.lowering import WrongTarget, call_builder
from slipstream.compiler.worker.worker import import_target
from slipstream.machines.targets import target_config
from slipstream.machines.topology import machine

STEP = """
import jax, jax.numpy as jnp

W = jax.ShapeDtypeStruct((64, 64), jnp.float32)

def donated(devices):
    return jax.jit(lambda w, x: (w + 1, (w @ x).sum()), donate_argnums=0), W, W

def kept(devices):
    return jax.jit(lambda w, x: (w + 1, (w @ x).sum())), W, W

def nothing_free(devices):
    return jax.jit(lambda w: w + 1, donate_argnums=0), W

def not_given_back(devices):
    return jax.jit(lambda w, x: (w.T @ x)[:1] + 1, donate_argnums=0), W, W

def no_number(devices):
    return jax.jit(lambda w: (w + 1, jnp.log(-1.0 - w.sum() ** 2)), donate_argnums=0), W
"""


@pytest.fixture
def begun(tmp_path):
    def begin(function: str) -> tuple[Bench, list[str]]:
        file = tmp_path / "step.py"
        file.write_text(STEP)
        bench = Bench()
        bench.start(str(file), function)
        bench.compile("arm", {})
        return bench, _log(bench)

    return begin


def _log(bench: Bench) -> list[str]:
    """What is launched, as it is launched."""
    found: list[str] = []
    program = bench._programs["arm"]

    def launched(*arguments):
        found.append("launch")
        return program(*arguments)

    bench._programs["arm"] = launched
    return found


BUILDS = """
import jax, jax.numpy as jnp

W = jax.ShapeDtypeStruct((8, 8), jnp.float32)

def step(w, x):
    return w @ x

def spread(devices):
    return jax.jit(step), W, W

def in_a_tuple(devices):
    return jax.jit(step), (W, W)

def in_a_list(devices):
    return [jax.jit(step), [W, W]]

def not_jitted(devices):
    return step, W, W

def of_a_mesh(mesh):
    assert mesh.axis_names == ("data",)
    return jax.jit(step), (W, W)

def of_nothing():
    return jax.jit(step), W, W

def one_tuple(devices):
    return jax.jit(lambda pair: pair[0] @ pair[1]), (W, W)
"""


@pytest.mark.parametrize(
    "name",
    ["spread", "in_a_tuple", "in_a_list", "not_jitted", "of_a_mesh", "of_nothing", "one_tuple"],
)
def test_whatever_compile_accepts_can_be_timed(tmp_path, name):
    (tmp_path / "builds.py").write_text(BUILDS)
    path = str(tmp_path / "builds.py")
    build = getattr(import_target(path), name)
    lowered = call_builder(build, list(jax.devices()), {}, target_config(machine("H200")))
    assert b"dot_general" in lowered.stablehlo
    bench = Bench()
    bench.start(path, name)
    bench.compile("arm", {})
    assert bench.check("arm") == {"difference": 0.0, "is_finite": True}


def test_a_lowered_program_can_not_be_timed(tmp_path):
    lowered = "def build(devices):\n    return jax.jit(step).lower(W, W)\n"
    (tmp_path / "lowered.py").write_text(BUILDS + lowered)
    with pytest.raises(WrongTarget, match="to time it, return the function and its arguments"):
        Bench().start(str(tmp_path / "lowered.py"), "build")


@pytest.mark.parametrize(
    ("function", "launches"),
    [("donated", 2), ("kept", 2), ("nothing_free", 1), ("no_number", 2)],
)
def test_two_steps_are_launched_where_the_first_ones_end_can_be_seen(begun, function, launches):
    bench, log = begun(function)
    for _ in range(3):
        log.clear()
        assert 0 < bench.time("arm")["seconds"] < 60
        assert len(log) == launches


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
def test_where_arguments_must_be_put_there_in_between_it_is_one_step(begun):
    bench, log = begun("not_given_back")
    assert bench.time("arm")["seconds"] > 0 and len(log) == 1
    assert bench._arguments[0] is None


def test_each_step_takes_what_the_last_one_gave_back(begun):
    bench, _ = begun("donated")
    first = bench._inputs[0].on_devices()
    for steps in (2, 4):
        bench.time("arm")
        assert jax.numpy.allclose(bench._arguments[0], first + steps, atol=1e-5)
    assert bench._arguments[1] is not None


def test_after_a_step_without_a_number_the_next_begins_anew(begun):
    bench, _ = begun("no_number")
    bench.time("arm")
    assert bench._arguments == [None]


def test_the_time_is_from_end_to_end_even_if_launching_takes_longer(begun, monkeypatch):
    bench, log = begun("donated")
    bench._put_inputs()
    ends = iter((None, 10.0, 13.0))

    def end_of(results):
        jax.block_until_ready(results)
        log.append("end")
        return next(ends)

    monkeypatch.setattr(module, "done_at", end_of)
    assert bench.time("arm") == {"seconds": 3.0}
    # The first end is that of the arguments; the next is watched from the first launch on.
    assert log[:2] == ["end", "launch"] and log.count("launch") == 2 and log[-1] == "end"


def test_a_step_that_fails_leaves_no_result_behind(begun, monkeypatch):
    bench, _ = begun("nothing_free")

    def fails(results):
        if bench._arguments != [None]:
            return 0.0
        raise RuntimeError("as a device says")

    monkeypatch.setattr(module, "done_at", fails)
    with pytest.raises(RuntimeError, match="as a device says"):
        bench.time("arm")
    assert bench._arguments == [None]


@pytest.mark.parametrize(("function", "launches"), [("donated", 4), ("nothing_free", 3)])
def test_several_steps_are_launched_in_a_row(begun, function, launches):
    bench, log = begun(function)
    answer = bench.times("arm", 3)
    assert len(answer["seconds"]) == 3 and min(answer["seconds"]) > 0 and answer["is_finite"]
    assert len(log) == launches


def test_no_more_than_two_steps_are_in_flight(begun, monkeypatch):
    bench, log = begun("donated")
    ends = iter((None, 1.0, 3.0, 6.0))

    def end_of(results):
        jax.block_until_ready(results)
        log.append("end")
        return next(ends)

    monkeypatch.setattr(module, "done_at", end_of)
    assert bench.times("arm", 2) == {"seconds": [2.0, 3.0], "is_finite": True}
    # The third launch waits for the end of the first: results that are not donated add up.
    assert log.index("end", 1) < [i for i, one in enumerate(log) if one == "launch"][2]


def test_released_inputs_are_made_again_as_at_the_start(begun):
    bench, _ = begun("donated")
    assert bench.find_recipe("arm")
    first = bench._inputs[0].on_devices()
    bench.release()
    assert bench._arguments == [None, None]
    bench.times("arm", 1)
    assert jax.numpy.allclose(bench._arguments[0], first + 2, atol=1e-5)

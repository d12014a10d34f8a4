"""Several combinations in one process: one at a time on the devices, failures of one alone."""

import gc

import jax
import pytest

from slipstream.bench import combinations as combinations_module
from slipstream.bench.combinations import Combinations
from slipstream.sources.load import load

BUILD = """
import jax, jax.numpy as jnp

def build(devices, *, width: int = 8, trouble: str = "", remat: bool = False):
    if trouble == "build":
        raise ValueError("width must divide 64")
    w = jax.ShapeDtypeStruct((width, 64), jnp.float32)

    def step(w, x):
        if trouble == "nan":
            return w, jnp.log(-1.0 - (w * x).sum() ** 2)
        return w + 1, (w * x).sum()

    options = {"xla_no_such_flag": True} if trouble == "compile" else None
    return jax.jit(step, donate_argnums=0, compiler_options=options), w, w
"""


@pytest.fixture
def combinations(tmp_path):
    (tmp_path / "model.py").write_text(BUILD)
    found = Combinations()
    answer = found.start(str(tmp_path / "model.py"), "build")
    assert (answer["platform"], answer["devices"]) == ("cpu", len(jax.devices()))
    return found


def on_devices(width):
    gc.collect()
    return [one for one in jax.live_arrays() if one.shape == (width, 64)]


def test_only_the_inputs_of_the_one_that_is_timed_are_on_the_devices(combinations):
    combinations.add({"small": {"width": 3}, "large": {"width": 5}})
    for name, here, gone in (("small", 3, 5), ("large", 5, 3), ("small", 3, 5)):
        answer = combinations.time(name, warm=1, steps=4)
        assert len(answer["seconds"]) == 4 and min(answer["seconds"]) > 0
        assert answer["is_finite"]
        assert len(on_devices(here)) == 2 and not on_devices(gone)


def test_a_failure_is_about_one_combination(combinations):
    found = combinations.add(
        {
            "fine": {},
            "raises": {"trouble": "build"},
            "refused": {"trouble": "compile"},
            "unknown": {"depth": 3},
        }
    )
    assert found["fine"]["memory_bytes"] > 0 and found["fine"]["seconds"] > 0
    stages = {name: one.get("stage") for name, one in found.items()}
    assert stages == {"fine": None, "raises": "build", "refused": "compile", "unknown": "build"}
    assert found["raises"]["line"] == "ValueError: width must divide 64"
    assert "xla_no_such_flag" in found["refused"]["line"]
    assert combinations.time("fine", warm=0, steps=1)["is_finite"]


def test_it_runs_for_some_seconds_before_the_steps_that_count(combinations, monkeypatch):
    combinations.add({"fine": {}})
    clock, ran, times = iter(range(100)), [], combinations._benches["fine"].times
    monkeypatch.setattr(combinations_module.time, "monotonic", lambda: next(clock))

    def count(name, steps):
        ran.append(steps)
        return times(name, steps)

    monkeypatch.setattr(combinations._benches["fine"], "times", count)
    combinations.time("fine", warm=2, steps=4, warm_s=3.0)
    assert ran == [2, 2, 2, 4]


def test_steps_that_return_no_number_are_timed_and_said_to(combinations):
    combinations.add({"nan": {"trouble": "nan"}})
    answer = combinations.time("nan", warm=1, steps=2)
    assert len(answer["seconds"]) == 2 and not answer["is_finite"]


def test_a_step_that_fails_leaves_the_devices_to_others(combinations, monkeypatch):
    combinations.add({"fails": {"width": 3}, "fine": {"width": 5}})
    combinations.time("fails", warm=1, steps=1)

    def fails(name, steps):
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(combinations._benches["fails"], "times", fails)
    with pytest.raises(RuntimeError, match="RESOURCE_EXHAUSTED"):
        combinations.time("fails", warm=1, steps=1)
    assert not on_devices(3)
    assert combinations.time("fine", warm=1, steps=1)["is_finite"]


def test_the_peak_is_that_of_the_combination_during_which_it_rose(combinations, monkeypatch):
    combinations.add({"small": {"width": 3}, "large": {"width": 5}})
    peaks = iter((None, 100, 100, 300, 300, 300))
    monkeypatch.setattr(combinations, "_peak_bytes", lambda: next(peaks))
    found = [combinations.time(name, 1, 1)["peak_bytes"] for name in ("small", "large", "small")]
    assert found == [100, 300, None]


def test_steps_can_be_recorded(combinations, tmp_path):
    combinations.add({"fine": {}})
    combinations.record("fine", 2, str(tmp_path / "recording"))
    assert load(str(tmp_path / "recording")) is not None

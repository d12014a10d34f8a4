"""Windows: losers leave, the null arm stays in the noise; and real steps on the CPU."""

import itertools
import random
from pathlib import Path

import pytest

from slipstream.results.tuning import CRASH, DIFFERENT, HANG, OUT_OF_MEMORY, REFUSED
from slipstream.tune.measure.ab_window import (
    BASELINE,
    NULL,
    STEPS,
    ArmFailed,
    outcome_of,
    run_ab_window,
)
from slipstream.tune.measure.in_process import InProcess

JOB = """
import os, signal, time
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np

MARK = Path(__file__).with_name("mark")

def trouble(x):
    found = MARK.read_text() if MARK.exists() else ""
    if found:
        MARK.unlink()
    if found == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if found == "hang":
        time.sleep(600)
    if found == "memory":
        jax.block_until_ready(jax.jit(lambda: jnp.ones((1 << 40, 16)) @ jnp.ones((16, 4)))())
    return x

def build(devices):
    def step(w, x):
        x = jax.pure_callback(trouble, jax.ShapeDtypeStruct(x.shape, x.dtype), x)
        # Without infinities and what is not a number, this is something else.
        kinds = jnp.where(jnp.isnan(x * jnp.inf), 1.0, 2.0)
        return w + 0.1 * jnp.tanh(x @ w), x.sum(), kinds.sum()

    shape = jax.ShapeDtypeStruct((16, 16), jnp.float32)
    return jax.jit(step, donate_argnums=0), shape, shape
"""


def clock(**factors: float):
    """Steps of 1 ms with noise and drift; some arms are faster or slower."""
    noise, drift = random.Random(1), itertools.count()

    def time_one(name: str) -> float:
        drifted = 1 + 0.0005 * next(drift)
        return 1e-3 * factors.get(name, 1.0) * drifted * noise.gauss(1, 0.003)

    return time_one


def test_a_window_finds_the_faster_drops_the_slower_and_the_null_arm_is_noise():
    window = run_ab_window(["fast", "slow", "same"], clock(fast=0.95, slow=1.1))
    assert window.comparisons["fast"].verdict == "faster"
    assert window.comparisons["slow"].verdict == "slower"
    assert window.comparisons["same"].verdict == "no different"
    assert len(window.times_s["slow"]) == STEPS.looks[0] < len(window.times_s["same"])
    floor = window.noise_floor
    assert floor is not None and floor.is_clean and abs(floor.change) < 0.01
    fast = outcome_of(window, "fast", 7)
    assert fast.change == pytest.approx(-0.05, abs=0.01)
    assert fast.change_interval[0] < -0.05 < fast.change_interval[1] < 0
    assert fast.interval_us[0] < fast.step_us < fast.interval_us[1] and fast.memory_bytes == 7


def test_a_window_ends_when_no_arm_can_win():
    window = run_ab_window(["slow", "slower"], clock(slow=1.1, slower=1.3))
    assert window.rounds == STEPS.looks[0]
    assert len(window.times_s[BASELINE]) == len(window.times_s[NULL]) == STEPS.looks[0]


def test_a_failing_arm_is_removed_and_the_others_continue():
    steady = clock(fast=0.9)
    turns = itertools.count()

    def time_one(name: str) -> float:
        if name == "broken" and next(turns) > STEPS.warm_rounds:
            raise ArmFailed(CRASH, "signal 11")
        return steady(name)

    window = run_ab_window(["broken", "fast"], time_one)
    assert outcome_of(window, "broken", None).status == CRASH
    assert outcome_of(window, "broken", None).score("step") is None
    assert window.comparisons["fast"].verdict == "faster"


@pytest.fixture
def job(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    file = tmp_path / "job.py"
    file.write_text(JOB)
    return file


FLAG = {"xla_gpu_graph_min_graph_size": "7"}


THEIRS = "--xla_cpu_fast_math_honor_nans=false --xla_cpu_fast_math_honor_infs=false"


def test_real_steps_on_the_cpu_and_their_failures(job, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", THEIRS)
    mark = job.with_name("mark")
    with InProcess(str(job), "build", use_gpu=False, timeout_s=300) as measure:
        assert measure.prepare("fine", FLAG) is not None
        measure.prepare("broken", {})
        assert measure.time(BASELINE) > 0 and measure.time("fine") > 0
        with pytest.raises(ArmFailed, match="results differ") as different:
            measure.prepare("fast", {"xla_cpu_enable_fast_math": "true"})
        assert different.value.status == DIFFERENT
        with pytest.raises(
            ArmFailed, match="NCCL_PROTO: can only be set for a whole process"
        ) as refused:
            measure.prepare("variable", {"NCCL_PROTO": "LL"})
        assert refused.value.status == REFUSED
        mark.write_text("memory")
        with pytest.raises(ArmFailed, match="RESOURCE_EXHAUSTED") as memory:
            measure.time("broken")
        assert memory.value.status == OUT_OF_MEMORY
        assert measure.time(NULL) > 0
        mark.write_text("crash")
        with pytest.raises(ArmFailed, match="the process died") as crashed:
            measure.time("broken")
        assert crashed.value.status == CRASH
        # The others are there again, in a new process.
        assert measure.time("fine") > 0 and measure.time(NULL) > 0
        measure._patience_s = 3
        mark.write_text("hang")
        with pytest.raises(ArmFailed, match="more than 3 s") as hung:
            measure.time("fine")
        assert hung.value.status == HANG


def test_the_best_simulated_candidates_are_timed_against_the_baseline(target, tmp_path):
    from slipstream.tune.space.space import SpaceOptions
    from slipstream.tune.studies import TuneOptions, measure, tune

    asked = SpaceOptions(only=("xla_gpu_graph_min_graph_size", "xla_gpu_enable_command_buffer"))
    folder = tmp_path / "study"
    order = TuneOptions(on="1xH200", trials=5, budget_s=600, folder=folder, jobs=1, space=asked)
    screened = tune(target, order)
    found = measure(folder, use_gpu=False, trials=2, budget_s=600)
    measured = [tried for tried in found.trials if tried.basis == "measured"]
    assert len(measured) == 2 and found.trials[: len(screened.trials)] == screened.trials
    assert {tried.status for tried in measured} == {"ok"}
    assert all(tried.change_interval[0] <= tried.change for tried in measured)
    assert found.noise_floor is not None and found.baseline.basis == "measured"
    assert found.stopped_because == "2 candidates were measured"
    winners = [t.number for t in measured if t.change_interval[1] < 0]
    assert (found.best.number in winners) if winners else found.best == found.baseline

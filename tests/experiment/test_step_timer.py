"""A step's time as the job sees it, on a made-up device whose clock we hold."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import pytest

from slipstream.experiment import step_timer
from slipstream.experiment.step_timer import CALLS, KEPT_BYTES, StepTimer, small_arrays
from slipstream.experiment.variants import Arm, Variant

ARMS = [Arm(Variant(name, {})) for name in ("original", "other")]


@dataclass
class Result:
    done_s: float
    is_gone: bool = False

    def is_deleted(self) -> bool:
        return self.is_gone


class Device:
    """Runs one program after the other; launching one takes the host a while."""

    def __init__(self, launch_s: float, run_s: float, *, takes_all_back: bool = False) -> None:
        self.now_s = 0.0
        self.launch_s, self.run_s = launch_s, run_s
        self._takes_all_back = takes_all_back
        self._last = Result(0.0)

    def run(self) -> Result:
        self.now_s += self.launch_s
        self._last.is_gone = self._takes_all_back
        self._last = Result(max(self.now_s, self._last.done_s) + self.run_s)
        return self._last

    def wait(self, result: Result) -> None:
        self.now_s = max(self.now_s, result.done_s)


def step_s(monkeypatch, device: Device, between=lambda device, result: None) -> float:
    """What the second turn says; `between` is what the job does after each call."""
    monkeypatch.setattr(step_timer.time, "perf_counter", lambda: device.now_s)
    monkeypatch.setattr(step_timer, "wait", device.wait)
    monkeypatch.setattr(step_timer, "small_arrays", lambda result: [result])
    timer, times = StepTimer(), []
    for number in range(3 * CALLS):
        result, seconds = timer(ARMS[number // CALLS % 2], device.run)
        between(device, result)
        assert (seconds is None) == (number % CALLS < CALLS - 1)
        times += [seconds] if seconds is not None else []
    return times[1]


@pytest.mark.parametrize("launch_ms", [1, 4, 9])
def test_a_job_that_runs_ahead_hides_its_launches(monkeypatch, launch_ms):
    device = Device(launch_ms * 1e-3, 17e-3)
    assert step_s(monkeypatch, device) == pytest.approx(17e-3)


def test_a_job_that_waits_for_each_step_hides_nothing(monkeypatch):
    def read_loss(device, result):
        device.wait(result)
        device.now_s += 2e-3

    assert step_s(monkeypatch, Device(4e-3, 17e-3), read_loss) == pytest.approx(23e-3)


def test_a_slow_host_is_the_step(monkeypatch):
    def load_data(device, result):
        device.now_s += 30e-3

    assert step_s(monkeypatch, Device(4e-3, 17e-3), load_data) == pytest.approx(34e-3)


def test_steps_that_take_all_results_back_are_waited_for(monkeypatch):
    device = Device(4e-3, 17e-3, takes_all_back=True)
    assert step_s(monkeypatch, device) == pytest.approx(21e-3)


def test_only_small_results_are_kept_and_real_steps_are_timed():
    big = jnp.zeros(KEPT_BYTES // 4 + 1)
    loss = jnp.float32(1)
    assert small_arrays([big, loss]) == [loss] and small_arrays([big]) == []
    step = jax.jit(lambda x: (x @ x, x.sum()), donate_argnums=0)
    state, timer, times = jnp.eye(64), StepTimer(), []
    for _ in range(2 * CALLS):
        (state, _), seconds = timer(ARMS[0], lambda state=state: step(state))
        times.append(seconds)
    assert [t is None for t in times] == [True, True, False] * 2
    assert all(t > 0 for t in times if t is not None)

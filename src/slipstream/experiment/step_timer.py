"""How long a step takes, as its job sees it.

`StepTimer` compares arms: it runs an arm for a few calls in a row and times the last of them.

    call      1          2          3
    entered              ├──────────┤            a job that waits for each step, or feeds it slowly
    done                         ├──────────┤    a job that runs ahead of its devices

Only the slower of the two holds a job up, so the longer span is the step time. The timer waits for
no step before the last: a job that runs ahead hides the work of launching, and must go on hiding it
while it is measured. The first call absorbs the change of arms: buffers move.

`MeanStepTimer` times one program over many calls. (`bench`, which feeds its steps itself, needs
neither: it launches two steps and watches both end.)
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from slipstream.experiment.variants import Arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.jax_types import Arguments, Results, RunCall

if TYPE_CHECKING:
    import jax

Timer = Callable[[Arm, RunCall], tuple[Results, float | None]]
"""runs one call of an arm: its results, and the step time in seconds once the arm's turn is over"""

CALLS = 3
MIN_MEAN_STEPS = 10
"""steps that a mean is taken over, at least: waiting for the first and last costs little then"""
KEPT_BYTES = 1 << 16
"""largest result that is kept until the next call is launched; more would take the job's memory"""


class StepTimer:
    """Times steps for one comparison."""

    def __init__(self, calls: int = CALLS) -> None:
        self._calls = calls
        self._arm: Arm | None = None
        self._entered_s: list[float] = []
        self._kept: list[jax.Array] = []
        self._consumes_results = False
        """whether a step consumes all results of the step before, which hides when that one ends"""

    def __call__(self, arm: Arm, run: RunCall) -> tuple[Results, float | None]:
        """Run one call; return its result, and the step time after the last call of a turn."""
        if arm is not self._arm:
            self._arm, self._entered_s, self._kept = arm, [], []
        self._entered_s.append(time.perf_counter())
        result = run()
        if len(self._entered_s) < self._calls:
            self._keep(result)
            return result, None
        done_before_s = self._done_before()
        seconds = self._span(done_before_s, done_at(result))
        self._entered_s, self._kept = [], []
        return result, seconds

    def _keep(self, result: Results) -> None:
        self._kept = small_arrays(result)
        if self._consumes_results or not self._kept:
            wait(result)

    def _done_before(self) -> float | None:
        """When the previous call was done; None where its results are gone."""
        alive = next((value for value in self._kept if not value.is_deleted()), None)
        self._consumes_results = alive is None
        return None if alive is None else done_at(alive)

    def _span(self, done_before_s: float | None, done_s: float) -> float:
        *_, before_s, entered_s = [self._entered_s[0], *self._entered_s]
        if done_before_s is None:
            # The previous call was waited for, or this is the first sign that it must be.
            return done_s - entered_s
        return max(entered_s - before_s, done_s - done_before_s)


class MeanStepTimer:
    """Goes around each call of a program and passes its mean step time to `on_end`, once."""

    def __init__(
        self, compiled: CompiledProgram, steps: int, on_end: Callable[[float, int], None]
    ) -> None:
        self.compiled = compiled
        self.steps = max(steps, MIN_MEAN_STEPS)
        self._on_end = on_end
        self._calls = 0
        self._began_s = 0.0

    def on_call(self, arguments: Arguments, run: RunCall) -> Results:
        with self.compiled.lock:
            result = run()
            if self._calls == 0:
                self._began_s = done_at(result)
            elif self._calls == self.steps:
                seconds = (done_at(result) - self._began_s) / self.steps
                self.compiled.is_settled = True
                self._on_end(seconds, self.steps)
            self._calls += 1
            return result


def wait(values: Results) -> None:
    """Block until the devices have computed all arrays in a pytree."""
    import jax

    jax.block_until_ready(values)  # type: ignore[no-untyped-call]


def done_at(values: Results) -> float:
    """Wait for arrays, and return the time on `time.perf_counter`'s clock."""
    wait(values)
    return time.perf_counter()


def small_arrays(result: Results) -> list[jax.Array]:
    """The results of a program that are small enough to keep for a while."""
    import jax

    values = result if isinstance(result, (list, tuple)) else (result,)
    return [v for v in values if isinstance(v, jax.Array) and v.nbytes <= KEPT_BYTES]

"""The time of a step as its job sees it: a few calls of one arm in a row, the last of them timed.

    call      1          2          3
    entered              ├──────────┤            a job that waits for each step, or feeds it slowly
    done                         ├──────────┤    a job that runs ahead of its devices

Only the slower of the two holds a job up, so the longer span is the step. Nobody waits before the
last call: a job that runs ahead hides the work of launching, and must go on hiding it while it is
measured. The first call brings the arm into its stride: buffers are elsewhere after another arm.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from slipstream.experiment.prepare import wait
from slipstream.experiment.variants import Arm

CALLS = 3
SMALL_BYTES = 1 << 16
"""of a result that is kept until the next call is under way; more would take the job's memory"""


class StepTimer:
    """A timer of steps; one for each comparison."""

    def __init__(self, calls: int = CALLS) -> None:
        self._calls = calls
        self._arm: Arm | None = None
        self._entered_s: list[float] = []
        self._kept: list[Any] = []
        self._is_unseen = False
        """whether steps take back all that they gave, so that nobody sees when one is done"""

    def __call__(self, arm: Arm, run: Callable[[], Any]) -> tuple[Any, float | None]:
        """One call, and the step's time after the last one of a turn."""
        if arm is not self._arm:
            self._arm, self._entered_s, self._kept = arm, [], []
        self._entered_s.append(time.perf_counter())
        result = run()
        if len(self._entered_s) < self._calls:
            self._keep(result)
            return result, None
        done_before_s = self._done_before()
        wait(result)
        seconds = self._span(done_before_s, time.perf_counter())
        self._entered_s, self._kept = [], []
        return result, seconds

    def _keep(self, result: Any) -> None:
        self._kept = small(result)
        if self._is_unseen or not self._kept:
            wait(result)

    def _done_before(self) -> float | None:
        """When the call before was done; None where its results are gone."""
        alive = next((value for value in self._kept if not value.is_deleted()), None)
        self._is_unseen = alive is None
        if alive is None:
            return None
        wait(alive)
        return time.perf_counter()

    def _span(self, done_before_s: float | None, done_s: float) -> float:
        *_, before_s, entered_s = [self._entered_s[0], *self._entered_s]
        if done_before_s is None:
            # It was waited for, or this is the first that shows that it must be.
            return done_s - entered_s
        return max(entered_s - before_s, done_s - done_before_s)


def small(result: Any) -> list[Any]:
    """Those of a program's results that can be kept for a while."""
    import jax

    values = result if isinstance(result, (list, tuple)) else (result,)
    return [v for v in values if isinstance(v, jax.Array) and v.nbytes <= SMALL_BYTES]

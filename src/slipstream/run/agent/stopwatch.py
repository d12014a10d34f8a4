"""Inside a job whose layout is timed: the time of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from slipstream.experiment.prepare import wait
from slipstream.jaxhooks.compiled_program import CompiledProgram

FEWEST_STEPS = 10
"""in one measurement: the clock stands around all of them, and each is dispatched as ever"""


class Stopwatch:
    """Goes around each call of the hot program; `on_end` gets the time of a step."""

    def __init__(
        self, watched: CompiledProgram, steps: int, on_end: Callable[[float, int], None]
    ) -> None:
        self.watched = watched
        self.steps = max(steps, FEWEST_STEPS)
        self._on_end = on_end
        self._calls = 0
        self._began_s = 0.0

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        with self.watched.lock:
            result = run()
            if self._calls == 0:
                wait(result)
                self._began_s = time.perf_counter()
            elif self._calls == self.steps:
                wait(result)
                seconds = (time.perf_counter() - self._began_s) / self.steps
                self.watched.is_settled = True
                self._on_end(seconds, self.steps)
            self._calls += 1
            return result

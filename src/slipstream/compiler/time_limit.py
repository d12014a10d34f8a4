"""A limit on the time of a compile."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable

ABORT_S = 0.05
"""between two attempts to abort a compile"""
BUSY = 2.0
"""tasks per core, the mean of five minutes, from which on a compile is slow rather than hung"""


def on_busy_cores(limit_s: float) -> str:
    """What to add to `it took more than 300 s` if that may be for want of a core; or nothing.

    Without figures, as failures with one reason are shown together.
    """
    try:
        tasks = os.getloadavg()[1]
    except OSError:
        return ""
    if tasks < BUSY * (os.cpu_count() or 1):
        return ""
    minutes = max(math.ceil(4 * limit_s / 60), 1)
    return f" while this machine's cores were busy; give it more: --timeout {minutes}m"


class TimeLimit:
    """A block that may take so many seconds; then what it waits for is aborted until it ends.

    Once would not do: the process that is to be ended may be just about to start.
    """

    def __init__(self, seconds: float, abort: Callable[[], None]) -> None:
        self._seconds = seconds
        self._abort = abort
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.is_passed = False

    def _watch(self) -> None:
        if self._has_ended.wait(self._seconds):
            return
        self.is_passed = True
        while not self._has_ended.wait(ABORT_S):
            self._abort()

    def __enter__(self) -> TimeLimit:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        # Nothing of what comes next is aborted.
        self._thread.join()

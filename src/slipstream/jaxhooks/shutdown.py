"""Threads beside the job, and what becomes of them when the job ends.

A thread that is inside XLA when Python shuts down takes the process with it: it comes back to an
interpreter that is gone, and C++ aborts. So a process that ends waits for them, though not for
long: they look at `SHUTDOWN` between two things they do.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  (its own end comes after ours, registered later)
import threading
from collections.abc import Callable

SHUTDOWN = threading.Event()
"""set when the process has begun to end"""

LONGEST_S = 120.0
"""how long a process that ends waits for one of our threads: for one compilation, say"""


class ShuttingDown(Exception):
    """The job is over; what was done beside it is not wanted any more."""


def run_in_background(target: Callable[[], None], name: str) -> threading.Thread:
    """A started thread that keeps no process alive for long, and ends none."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    at_shutdown(lambda: _finish(thread))
    thread.start()
    return thread


def raise_if_shutting_down() -> None:
    """ShuttingDown, if it is time."""
    if SHUTDOWN.is_set():
        raise ShuttingDown("the job ended")


def _finish(thread: threading.Thread) -> None:
    SHUTDOWN.set()
    thread.join(LONGEST_S)


def at_shutdown(action: Callable[[], None]) -> None:
    """Run it while threads can still be started: reading a profile needs some."""
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(action)
    except RuntimeError:
        # The process is ending already.
        atexit.register(action)

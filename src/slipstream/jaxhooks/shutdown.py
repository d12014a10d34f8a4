"""Background threads in a job, and how they end when the job does.

A thread that is inside XLA when Python shuts down takes the process with it: it returns to an
interpreter that is gone, and C++ aborts. So a process waits for these threads when it ends. They
check `SHUTDOWN` between two pieces of work, so that this doesn't take long.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401  (imported first, so that its shutdown comes after ours)
import threading
from collections.abc import Callable

SHUTDOWN = threading.Event()
"""set once this process begins to end: all background threads check this one event"""

LONGEST_S = 120.0
"""for which a process that ends waits for a background thread: long enough for one compile"""


class ShuttingDown(Exception):
    """The job is over, and background work with it."""


def run_in_background(target: Callable[[], None], name: str) -> threading.Thread:
    """Start a thread that delays the end of the process only briefly, and never aborts it."""
    thread = threading.Thread(target=target, name=name, daemon=True)
    at_shutdown(lambda: _finish(thread))
    thread.start()
    return thread


def raise_if_shutting_down() -> None:
    """Raise ShuttingDown if the process has begun to end."""
    if SHUTDOWN.is_set():
        raise ShuttingDown("the job ended")


def _finish(thread: threading.Thread) -> None:
    SHUTDOWN.set()
    thread.join(LONGEST_S)


def at_shutdown(action: Callable[[], None]) -> None:
    """Run an action at the end, while threads can still start: reading a profile needs some."""
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        register(action)
    except RuntimeError:
        # The process is already ending.
        atexit.register(action)

"""Which process owns a running trial: host, process id and start time of the process."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

UNOWNED_S = 10.0
"""a trial without an owner for this long belongs to a process that died right after asking"""


class TrialOwners:
    """Tells which trials belong to dead processes.

    When a trial began is known by the clock of the host that asked for it, which may be wrong and
    can be set. So what counts is how long this process has seen the trial without an owner.
    """

    def __init__(self) -> None:
        self._unowned_since: dict[int, float] = {}

    def is_dead(self, trial: Any) -> bool:
        """Whether the process that owns a trial is known to be dead."""
        known = trial.user_attrs.get("owner")
        if known is None:
            now = time.monotonic()
            return now - self._unowned_since.setdefault(trial._trial_id, now) > UNOWNED_S
        host, pid, started = known
        return bool(host == socket.gethostname() and _start_time(int(pid)) != started)


def owner() -> list[Any]:
    return [socket.gethostname(), os.getpid(), _start_time(os.getpid())]


def _start_time(pid: int) -> str | None:
    """The start time of a process, since process ids are reused; None if it is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The process name in parentheses may contain anything.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]

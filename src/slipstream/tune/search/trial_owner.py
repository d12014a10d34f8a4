"""Which process owns a running trial: host, process id and start time of the process."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

UNOWNED_S = 10.0
"""a trial without an owner for this long belongs to a process that died right after asking"""


def is_dead(trial: Any) -> bool:
    """Whether the process that owns a trial is known to be dead."""
    owner = trial.user_attrs.get("owner")
    if owner is None:
        began = trial.datetime_start
        return began is not None and (datetime.now() - began).total_seconds() > UNOWNED_S
    host, pid, started = owner
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

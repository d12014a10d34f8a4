"""Whose a running trial is: by host, process and the time at which that process began."""

from __future__ import annotations

import os
import socket
from datetime import datetime
from pathlib import Path
from typing import Any

UNOWNED_S = 10.0
"""a trial without an owner for so long lost it between two lines of code"""


def is_dead(trial: Any) -> bool:
    """Whether the process that has a trial is known to be gone."""
    owner = trial.user_attrs.get("owner")
    if owner is None:
        began = trial.datetime_start
        return began is not None and (datetime.now() - began).total_seconds() > UNOWNED_S
    host, pid, started = owner
    return bool(host == socket.gethostname() and _started(int(pid)) != started)


def owner() -> list[Any]:
    return [socket.gethostname(), os.getpid(), _started(os.getpid())]


def _started(pid: int) -> str | None:
    """When a process began, by the system's count: a number may be given again."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in brackets may hold anything.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else fields[19]

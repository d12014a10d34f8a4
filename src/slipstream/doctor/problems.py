"""Problems that the doctor reports: what, why it matters, and the command that fixes it."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Problem:
    """One problem to know about before a run.

    An `error` makes the run fail or its results useless, a `warning` costs speed, a `note` is
    worth trying.
    """

    code: str
    """a stable name, for scripts"""
    level: str
    what: str
    why: str
    fix: str
    """a command line, or the line of code to change"""

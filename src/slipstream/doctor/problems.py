"""What the doctor finds: what it is, why it matters, and the command that fixes it."""

from __future__ import annotations

from dataclasses import dataclass

ERROR, WARNING, NOTE = "error", "warning", "note"
LEVELS = (ERROR, WARNING, NOTE)


@dataclass(frozen=True)
class Problem:
    """One thing a person should know before the run.

    An `error` makes the run fail or its result void, a `warning` costs speed, a `note` is worth
    a try.
    """

    code: str
    """stable, for scripts"""
    level: str
    what: str
    why: str
    fix: str
    """a command line, or the line of code to change"""

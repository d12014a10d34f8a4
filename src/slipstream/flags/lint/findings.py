"""What a check of settings finds.

abort     XLA ends the process at start
error     the compile fails
warning   it runs, and does something other than what was meant
note      it runs, and could be written shorter
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slipstream.flags.settings import SourceLocation

Severity = Literal["abort", "error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("abort", "error", "warning", "note")
FAILING = frozenset(("abort", "error"))
"""what a job doesn't survive"""

CODES = {
    "unknown": "a name that this jaxlib doesn't have",
    "retired": "a name that an earlier jaxlib had",
    "misspelt": "a name that is almost one that exists",
    "malformed": "a value that can't be read",
    "deprecated": "accepted, and on its way out",
    "no-effect": "accepted, and changes nothing",
    "contradictory": "two settings of which one wins",
    "default": "what happens anyway",
    "unread": "names a flag, and is no setting that this reader knows",
}


@dataclass(frozen=True)
class LintFinding:
    """One thing to change, and where."""

    code: str
    """one of `CODES`"""
    severity: Severity
    name: str
    message: str
    """what was seen, what was expected, and what to do"""
    place: SourceLocation
    fix: str | None = None
    """what to write at the place instead, empty to take it out; None where a person must choose"""

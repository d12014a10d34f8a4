"""Findings of `slipstream flags lint`, and their severities.

abort     XLA, or libtpu, ends the process at startup
error     the compile fails
warning   the job runs, but not as intended
note      the job runs, and the setting could be left out
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slipstream.flags.settings import SourceLocation

Severity = Literal["abort", "error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("abort", "error", "warning", "note")
FAILING = frozenset(("abort", "error"))
"""severities that end the job"""

CODES = {
    "unknown": "a name that this jaxlib doesn't have",
    "retired": "a name that an earlier jaxlib had",
    "misspelt": "a name that is close to an existing one",
    "misplaced": "a name that belongs in another variable",
    "malformed": "a value that can't be parsed",
    "deprecated": "accepted, but to be removed",
    "no-effect": "accepted, but without effect",
    "contradictory": "two settings, one of which overrides the other",
    "default": "the same as the default",
    "unread": "text that names a flag but could not be read as a setting",
}


@dataclass(frozen=True)
class LintFinding:
    """One problem, its location and its fix."""

    code: str
    """one of `CODES`"""
    severity: Severity
    name: str
    message: str
    """what was seen, what was expected, and what to do"""
    place: SourceLocation
    fix: str | None = None
    """the text to put there instead, empty to remove it; None if a person must choose"""

"""What became of retired flags, each with its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Replacement:
    """Why a flag is gone, and what to write in its place."""

    name: str
    use: str | None
    """what to set in its place, `name` or `name=value`; None if it can simply be left out"""
    because: str
    """a sentence"""
    source: str
    removed: str | None = None
    """when, as a date"""


def replacement_of(name: str) -> Replacement | None:
    """What became of a retired flag; None if nothing is known."""
    return None

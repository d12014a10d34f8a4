"""What a preset is made of."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.flags.presets.guides import HERE


@dataclass(frozen=True)
class Entry:
    """A setting as a guide gives it."""

    name: str
    """a flag, or a variable in capitals"""
    value: str
    reason: str
    guide: str
    """a key of `GUIDES`, or `HERE`"""
    said: str = ""
    """what the guide wrote, where that is not `name=value`"""
    until: str | None = None
    """the last jaxlib that needs it"""
    withheld: str = ""
    """why it is never set, although a guide says so: what today's XLA does with it"""
    is_met_by_any: bool = False
    """whatever the default is, unless it is empty, does what this asks for"""
    only_with_estimator: bool = False
    """for Hopper and Blackwell only"""

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("xla_")

    @property
    def as_said(self) -> str:
        """The guide's own line."""
        if self.guide == HERE:
            return ""
        return self.said or f"{'--' if self.is_flag else ''}{self.name}={self.value}"


@dataclass(frozen=True)
class Preset:
    """Settings that belong together."""

    name: str
    purpose: str
    """a sentence"""
    entries: tuple[Entry, ...]
    includes: tuple[str, ...] = ()
    """presets whose entries it takes over"""

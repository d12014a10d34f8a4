"""Which flags each jaxlib release had, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.flags.catalogue import Catalogue
from slipstream.flags.replacements import Replacement, replacement_of

__all__ = ["FlagHistory", "History", "Replacement", "catalogue_of", "history", "replacement_of"]


@dataclass(frozen=True)
class FlagHistory:
    """One flag through the releases."""

    name: str
    first: str
    last: str
    """the newest harvested release if the flag still exists"""
    accepted_first: str | None
    """first release that takes it in `XLA_FLAGS`; None if none does"""
    accepted_last: str | None
    defaults: tuple[tuple[str, str | None], ...]
    """(release, default from then on), each change once"""


@dataclass(frozen=True)
class History:
    """All harvested releases, oldest first."""

    versions: tuple[str, ...]
    dates: Mapping[str, str]
    flags: Mapping[str, FlagHistory]


def history() -> History:
    """What the data file says."""
    raise NotImplementedError


def catalogue_of(version: str) -> Catalogue:
    """The flags of a jaxlib release, from the data file."""
    raise NotImplementedError

"""Every flag of one jaxlib: its type, its default, and where it may be set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.errors import Missing

SIMILAR = 0.75
"""how similar two flags' names must be for one to be suggested in place of the other"""


@dataclass(frozen=True)
class Flag:
    """One setting of XLA, as one jaxlib knows it."""

    name: str
    kind: str
    """bool, int32, int64, float, double, string, enum, map, message, or `repeated` one of those;
    `unknown` where the library accepts the name and doesn't say more"""
    default: str | None
    """enums by their full names, which a few flags want shorter in `XLA_FLAGS`; lists with commas;
    None where it isn't known"""
    enum_values: tuple[str, ...] = ()
    is_deprecated: bool = False
    in_xla_flags: bool | None = None
    """accepted in `XLA_FLAGS`; None where nobody asked the library"""
    in_compiler_options: bool = False
    """accepted by `jit(…, compiler_options={…})`"""

    def row(self) -> list[Any]:
        """All but the name, as files hold it."""
        enum = list(self.enum_values)
        places = [self.in_xla_flags, self.in_compiler_options]
        return [self.kind, self.default, enum, self.is_deprecated, *places]

    @staticmethod
    def from_row(name: str, row: Sequence[Any]) -> Flag:
        """What `row` gave."""
        kind, default, enum, is_deprecated, in_xla_flags, in_compiler_options = row
        return Flag(
            name, kind, default, tuple(enum), is_deprecated, in_xla_flags, in_compiler_options
        )


@dataclass(frozen=True)
class Catalogue:
    """The flags of one jaxlib."""

    jaxlib_version: str
    flags: Mapping[str, Flag]
    removed: frozenset[str] = field(default_factory=frozenset)
    """names that earlier versions had and this one keeps reserved"""


def installed_catalogue() -> Catalogue:
    """The flags of the jaxlib that is installed here; nothing of it is imported.

    A release that is not in the history is started a few times, to ask what it accepts; the answer
    is kept.
    """
    from slipstream.flags.catalogue.installed import read_installed

    return read_installed()


def default_catalogue(version: str | None = None) -> Catalogue:
    """The release's, from the history; else the installed jaxlib's; else the newest known."""
    from slipstream.flags.catalogue.history import catalogue_of, newest_version

    if version is not None:
        return catalogue_of(version)
    try:
        return installed_catalogue()
    except Missing:
        return catalogue_of(newest_version())

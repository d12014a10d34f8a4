"""The flags of one jaxlib: type, default, and where each may be set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.errors import Missing

SIMILAR = 0.75
"""how similar two flags' names must be for one to be suggested in place of the other"""


@dataclass(frozen=True)
class Flag:
    """One XLA flag, as one jaxlib has it."""

    name: str
    kind: str
    """bool, int32, int64, float, double, string, enum, map, message, or `repeated` one of those;
    `unknown` if the library accepts the name but has no field for it"""
    default: str | None
    """enums by their full names, which `XLA_FLAGS` abbreviates for a few flags; lists with commas;
    None if unknown"""
    enum_values: tuple[str, ...] = ()
    is_deprecated: bool = False
    in_xla_flags: bool | None = None
    """accepted in `XLA_FLAGS`; None if not tested"""
    in_compiler_options: bool = False
    """accepted by `jit(…, compiler_options={…})`"""

    def row(self) -> list[Any]:
        """Everything but the name, as stored in files."""
        enum = list(self.enum_values)
        places = [self.in_xla_flags, self.in_compiler_options]
        return [self.kind, self.default, enum, self.is_deprecated, *places]

    @staticmethod
    def from_row(name: str, row: Sequence[Any]) -> Flag:
        """The inverse of `row`."""
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
    """names of earlier versions that this one keeps reserved"""


def installed_catalogue() -> Catalogue:
    """The flags of the installed jaxlib, without importing it.

    A release that is not in the history is started a few times to test what it accepts, and the
    result is cached.
    """
    from slipstream.flags.catalogue.installed import read_installed

    return read_installed()


def default_catalogue(version: str | None = None) -> Catalogue:
    """The flags of a release; without one, of the installed jaxlib, or else the newest known."""
    from slipstream.flags.catalogue.history import catalogue_of, newest_version

    if version is not None:
        return catalogue_of(version)
    try:
        return installed_catalogue()
    except Missing:
        return catalogue_of(newest_version())

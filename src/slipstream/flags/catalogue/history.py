"""The flags of each jaxlib release.

`scripts/harvest_flags.py` writes the data file, which stores each release as the difference from
the one before it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, Flag

DATA = Path(__file__).with_name("history.json.gz")


@dataclass(frozen=True)
class FlagHistory:
    """One flag over all releases."""

    name: str
    first: str
    """the first harvested release that has it"""
    last: str
    """the last harvested release that has it"""
    accepted_first: str | None
    """the first release that accepts it in `XLA_FLAGS`; None if none does"""
    accepted_last: str | None
    defaults: tuple[tuple[str, str | None], ...]
    """each change as (release, default from then on)"""


@dataclass(frozen=True)
class History:
    """All harvested releases, oldest first."""

    versions: tuple[str, ...]
    flags: Mapping[str, FlagHistory]

    @property
    def newest(self) -> str:
        return self.versions[-1]


@cache
def history() -> History:
    """The history in the data file."""
    catalogues = _catalogues()
    seen: dict[str, list[tuple[str, Flag]]] = {}
    for version, catalogue in catalogues.items():
        for name, flag in catalogue.flags.items():
            seen.setdefault(name, []).append((version, flag))
    flags = {name: _flag_history(name, seen[name]) for name in sorted(seen)}
    return History(tuple(catalogues), flags)


def catalogue_of(version: str) -> Catalogue:
    """The flags of a jaxlib release, from the data file."""
    catalogues = _catalogues()
    found = catalogues.get(version.removeprefix("v"))
    if found is None:
        raise BadInput(_not_harvested(version, tuple(catalogues)))
    return found


def newest_version() -> str:
    """The newest release in the data file."""
    return list(_catalogues())[-1]


def version_key(version: str) -> tuple[int, ...]:
    """A sort key for releases: 0.9.0.1 is between 0.9.0 and 0.9.1."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def encode(catalogues: Mapping[str, Catalogue]) -> bytes:
    """The data file's bytes."""
    releases = []
    before = Catalogue("", {})
    for version in sorted(catalogues, key=version_key):
        after = catalogues[version]
        releases.append(_difference(before, after))
        before = after
    text = json.dumps({"releases": releases}, separators=(",", ":"))
    return gzip.compress(text.encode(), mtime=0)


def decode(data: bytes) -> dict[str, Catalogue]:
    """The inverse of `encode`."""
    catalogues: dict[str, Catalogue] = {}
    flags: dict[str, Flag] = {}
    for release in json.loads(gzip.decompress(data))["releases"]:
        changed = {name: Flag.from_row(name, row) for name, row in release["set"].items()}
        gone = set(release["gone"])
        flags = {name: flag for name, flag in flags.items() if name not in gone} | changed
        version = release["jaxlib"]
        catalogues[version] = Catalogue(
            version, dict(sorted(flags.items())), frozenset(release["removed"])
        )
    return catalogues


@cache
def _catalogues() -> dict[str, Catalogue]:
    return decode(DATA.read_bytes())


def _difference(before: Catalogue, after: Catalogue) -> dict[str, Any]:
    changed = {
        name: flag.row() for name, flag in after.flags.items() if before.flags.get(name) != flag
    }
    return {
        "jaxlib": after.jaxlib_version,
        "set": changed,
        "gone": sorted(set(before.flags) - set(after.flags)),
        "removed": sorted(after.removed),
    }


def _flag_history(name: str, seen: list[tuple[str, Flag]]) -> FlagHistory:
    accepted = [version for version, flag in seen if flag.in_xla_flags]
    defaults: list[tuple[str, str | None]] = []
    for version, flag in seen:
        if not defaults or defaults[-1][1] != flag.default:
            defaults.append((version, flag.default))
    return FlagHistory(
        name,
        first=seen[0][0],
        last=seen[-1][0],
        accepted_first=accepted[0] if accepted else None,
        accepted_last=accepted[-1] if accepted else None,
        defaults=tuple(defaults),
    )


def _not_harvested(version: str, versions: tuple[str, ...]) -> str:
    if not re.fullmatch(r"v?\d+(\.\d+)+", version):
        return f"{version!r} is not a jaxlib release; expected one like {versions[-1]}"
    wanted = version_key(version)
    older = [known for known in versions if version_key(known) < wanted]
    newer = [known for known in versions if version_key(known) > wanted]
    near = " and ".join([*older[-1:], *newer[:1]])
    return (
        f"there is no data for jaxlib {version}; nearest releases: {near} "
        f"(there is data from {versions[0]} to {versions[-1]})"
    )

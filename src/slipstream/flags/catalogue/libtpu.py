"""The flags of each libtpu that a supported jaxlib installs.

`scripts/harvest_libtpu.py` writes the data file, which stores each release as the difference from
the one before it.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path

from slipstream.flags.catalogue.history import version_key
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag

DATA = Path(__file__).with_name("libtpu.json.gz")
VARIABLE = "LIBTPU_INIT_ARGS"
"""where libtpu reads its flags"""


@dataclass(frozen=True, eq=False)
class LibtpuCatalogue:
    """The flags of one libtpu."""

    version: str
    jaxlib_version: str
    """the jaxlib that installs it"""
    flags: Mapping[str, LibtpuFlag]
    instead_of: str | None = None
    """the libtpu that was asked for, if its flags are not known: this one is the nearest"""

    @property
    def label(self) -> str:
        """`libtpu 0.0.42.1`, and that it is not the one that was asked for."""
        note = f" (the flags of {self.instead_of} are not known)" if self.instead_of else ""
        return f"libtpu {self.version}{note}"


@dataclass(frozen=True)
class LibtpuHistory:
    """One flag in all harvested releases of libtpu."""

    first: str
    last: str
    is_current: bool
    """whether the newest one has it"""


def libtpu_catalogue(jaxlib: str | None = None) -> LibtpuCatalogue:
    """The flags of the libtpu that a jaxlib installs; without one, of the installed libtpu.

    One that is not in the data file is read, if it is installed; otherwise the nearest one is used.
    """
    known = _catalogues()
    if jaxlib is not None:
        nearest = min(known, key=lambda one: _distance(one.jaxlib_version, jaxlib))
        is_exact = nearest.jaxlib_version == jaxlib
        return nearest if is_exact else replace(nearest, instead_of=f"that of jaxlib {jaxlib}")
    version = installed_version("libtpu")
    if version is None:
        return libtpu_catalogue(installed_version("jaxlib") or known[-1].jaxlib_version)
    nearest = min(known, key=lambda one: _distance(one.version, version))
    return nearest if nearest.version == version else _read(version, nearest)


@cache
def _read(version: str, nearest: LibtpuCatalogue) -> LibtpuCatalogue:
    """The installed libtpu; which of its flags are compile options is known from the nearest."""
    from slipstream.flags.catalogue.installed_libtpu import read_installed_libtpu

    read = read_installed_libtpu()
    if read is None:
        return replace(nearest, instead_of=version)
    options = {name for name, flag in nearest.flags.items() if flag.in_compiler_options}
    flags = {
        name: replace(flag, in_compiler_options=name in options) for name, flag in read.items()
    }
    return replace(nearest, version=version, flags=flags)


def installed_version(package: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _distance(one: str, other: str) -> tuple[int, ...]:
    """How far two versions are apart: the first numbers count most."""
    pairs = zip_longest(version_key(one), version_key(other), fillvalue=0)
    return tuple(abs(a - b) for a, b in pairs)


def libtpu_history(name: str) -> LibtpuHistory | None:
    """The releases that have a flag; None if none does."""
    having = [one.version for one in _catalogues() if name in one.flags]
    if not having:
        return None
    return LibtpuHistory(having[0], having[-1], having[-1] == _catalogues()[-1].version)


def libtpu_names() -> frozenset[str]:
    """Every flag that any release has."""
    return frozenset(name for one in _catalogues() for name in one.flags)


def libtpu_jaxlibs() -> tuple[str, ...]:
    """The releases of jaxlib whose libtpu is known, oldest first."""
    return tuple(one.jaxlib_version for one in _catalogues())


def encode(catalogues: Mapping[str, LibtpuCatalogue]) -> bytes:
    """The data file's bytes; the keys are versions of libtpu."""
    releases, before = [], dict[str, LibtpuFlag]()
    for version in sorted(catalogues, key=version_key):
        after = dict(catalogues[version].flags)
        changed = {name: flag.row() for name, flag in after.items() if before.get(name) != flag}
        gone = sorted(set(before) - set(after))
        facts = {"libtpu": version, "jaxlib": catalogues[version].jaxlib_version}
        releases.append({**facts, "set": changed, "gone": gone})
        before = after
    return gzip.compress(json.dumps(releases, separators=(",", ":")).encode(), mtime=0)


def decode(data: bytes) -> dict[str, LibtpuCatalogue]:
    """The inverse of `encode`."""
    catalogues: dict[str, LibtpuCatalogue] = {}
    flags: dict[str, LibtpuFlag] = {}
    for release in json.loads(gzip.decompress(data)):
        changed = {name: LibtpuFlag.from_row(name, row) for name, row in release["set"].items()}
        gone = set(release["gone"])
        flags = {name: flag for name, flag in flags.items() if name not in gone} | changed
        version = release["libtpu"]
        ordered = dict(sorted(flags.items()))
        catalogues[version] = LibtpuCatalogue(version, release["jaxlib"], ordered)
    return catalogues


@cache
def _catalogues() -> tuple[LibtpuCatalogue, ...]:
    """Oldest first."""
    return tuple(decode(DATA.read_bytes()).values())

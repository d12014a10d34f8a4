"""The catalogue of the installed jaxlib: from the history if that has exactly this library, else by
testing the library once and caching the result."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, Flag
from slipstream.flags.catalogue.debug_options import DebugOption, DebugOptionsDescriptor
from slipstream.flags.catalogue.jaxlib_library import (
    JaxlibLibrary,
    installed_library,
    read_descriptors,
    read_names,
)
from slipstream.flags.catalogue.probe import Probe
from slipstream.reading import DAMAGE
from slipstream.user_cache import user_cache
from slipstream.writing import atomic_write

FORMAT = 1
"""version of the cached file; files of other versions are ignored"""
UNKNOWN = "unknown"
"""the type of a flag without a field"""
FIRST_WITH_LISTS = (0, 6, 0)


def read_installed() -> Catalogue:
    """The catalogue, from the cache if possible."""
    library = installed_library()
    key = hashlib.sha256(f"{FORMAT} {sys.executable} {library.identity}".encode()).hexdigest()
    folder = user_cache("slipstream")
    if folder is None:
        return harvested(library) or read_catalogue(library, Probe(), _known_names())
    file = Path(folder) / f"flags-{library.version}-{key[:16]}.json"
    try:
        return catalogue_from_json(json.loads(file.read_text(encoding="utf-8")))
    except DAMAGE:
        pass  # absent, or not what `_keep` wrote
    catalogue = harvested(library) or read_catalogue(library, Probe(), _known_names())
    _keep(file, catalogue)
    return catalogue


def harvested(library: JaxlibLibrary) -> Catalogue | None:
    """The catalogue in the history, if release number and all fields agree with the library."""
    from slipstream.flags.catalogue.history import catalogue_of

    try:
        known = catalogue_of(library.version)
    except BadInput:
        return None
    fields = DebugOptionsDescriptor(read_descriptors(library)).fields()
    same = {
        name: DebugOption(name, flag.kind, flag.enum_values, flag.is_deprecated)
        for name, flag in known.flags.items()
        if flag.kind != UNKNOWN
    }
    return known if fields == same else None


def read_catalogue(library: JaxlibLibrary, probe: Probe, names: Iterable[str] = ()) -> Catalogue:
    """What a library contains and accepts; `names` are tested in addition to its own."""
    descriptor = DebugOptionsDescriptor(read_descriptors(library))
    fields = descriptor.fields()
    defaults = descriptor.defaults(probe.compile_options())
    candidates = {*read_names(library), *fields, *descriptor.reserved(), *names}
    values = {name: _value(defaults.get(name)) for name in candidates}
    alone = {name for name, field in fields.items() if field.enum_values}
    accepted = probe.accepted(values, alone)
    flags = {
        name: Flag(
            name,
            field.kind,
            defaults.get(name),
            field.enum_values,
            field.is_deprecated,
            in_xla_flags=name in accepted,
            in_compiler_options=_is_option(field, library.version),
        )
        for name, field in fields.items()
    }
    for name in accepted - set(fields):
        flags[name] = Flag(name, UNKNOWN, None, in_xla_flags=True)
    ordered = dict(sorted(flags.items()))
    return Catalogue(library.version, ordered, descriptor.reserved() - set(flags))


def catalogue_json(catalogue: Catalogue) -> dict[str, Any]:
    """A catalogue as stored in a file."""
    return {
        "jaxlib": catalogue.jaxlib_version,
        "flags": {name: flag.row() for name, flag in catalogue.flags.items()},
        "removed": sorted(catalogue.removed),
    }


def catalogue_from_json(data: dict[str, Any]) -> Catalogue:
    """The inverse of `catalogue_json`."""
    flags = {name: Flag.from_row(name, row) for name, row in data["flags"].items()}
    return Catalogue(data["jaxlib"], flags, frozenset(data["removed"]))


def _is_option(field: DebugOption, version: str) -> bool:
    """Whether a field is a compile option; lists are not before jaxlib 0.6.0."""
    from slipstream.flags.catalogue.history import version_key

    takes_lists = version_key(version) >= FIRST_WITH_LISTS
    return field.in_compiler_options and (takes_lists or not field.kind.startswith("repeated"))


def _value(default: str | None) -> str:
    """A value to test a flag with; XLA_FLAGS is split at spaces."""
    return default if default is not None and " " not in default else "1"


def _known_names() -> set[str]:
    from slipstream.flags.catalogue.history import history

    return set(history().flags)


def _keep(file: Path, catalogue: Catalogue) -> None:
    """Write the cache if possible; otherwise the next call tests again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as path:
            path.write_text(json.dumps(catalogue_json(catalogue)), encoding="utf-8")
    except (OSError, BadInput):
        return

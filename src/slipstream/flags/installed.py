"""The catalogue of the installed jaxlib, asked once and kept."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.flags.catalogue import Catalogue, Flag
from slipstream.flags.library import Library, installed_library, read_library
from slipstream.flags.probe import Probe
from slipstream.writing import atomic_write

FORMAT = 1
"""of the kept file; a new one makes the old ones unread"""


def read_installed() -> Catalogue:
    """From the kept file if it is of this very library, else from the library."""
    library = installed_library()
    key = hashlib.sha256(f"{FORMAT} {sys.executable} {library.identity}".encode()).hexdigest()
    file = _folder() / f"flags-{library.version}-{key[:16]}.json"
    try:
        return catalogue_from_json(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        pass
    catalogue = read_catalogue(library, Probe(), _known_names())
    _keep(file, catalogue)
    return catalogue


def read_catalogue(library: Library, probe: Probe, names: Iterable[str] = ()) -> Catalogue:
    """What a library holds and, once started, accepts; `names` are asked for besides its own."""
    from slipstream.flags.descriptor import Descriptor

    contents = read_library(library)
    descriptor = Descriptor(contents)
    fields = descriptor.fields()
    defaults = descriptor.defaults(probe.compile_options())
    candidates = {*contents.names, *fields, *descriptor.reserved(), *names}
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
            in_compiler_options=field.in_compiler_options,
        )
        for name, field in fields.items()
    }
    for name in accepted - set(fields):
        flags[name] = Flag(name, "unknown", None, in_xla_flags=True)
    ordered = dict(sorted(flags.items()))
    return Catalogue(library.version, ordered, descriptor.reserved() - set(flags))


def catalogue_json(catalogue: Catalogue) -> dict[str, Any]:
    """A catalogue as a file holds it."""
    return {
        "jaxlib": catalogue.jaxlib_version,
        "flags": {name: flag.row() for name, flag in catalogue.flags.items()},
        "removed": sorted(catalogue.removed),
    }


def catalogue_from_json(data: dict[str, Any]) -> Catalogue:
    """What `catalogue_json` gave."""
    flags = {name: Flag.from_row(name, row) for name, row in data["flags"].items()}
    return Catalogue(data["jaxlib"], flags, frozenset(data["removed"]))


def _value(default: str | None) -> str:
    """A value to ask with: XLA_FLAGS is split at spaces."""
    return default if default is not None and " " not in default else "1"


def _known_names() -> set[str]:
    from slipstream.flags.history import history

    return set(history().flags)


def _folder() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "slipstream"


def _keep(file: Path, catalogue: Catalogue) -> None:
    """Best effort: without it the next call asks again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as path:
            path.write_text(json.dumps(catalogue_json(catalogue)), encoding="utf-8")
    except (OSError, BadInput):
        return

"""The flags of an installed libtpu that is not in the data file: read once, then cached."""

from __future__ import annotations

import hashlib
import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.libtpu_registry import read_registry
from slipstream.reading import DAMAGE
from slipstream.user_cache import user_cache
from slipstream.writing import atomic_write

FORMAT = 1
"""version of the cached file; files of other versions are ignored"""
FEWEST = 500
"""a library in which fewer flags are found is one that was not understood"""


def read_installed_libtpu() -> dict[str, LibtpuFlag] | None:
    """Its flags by name; None if it can't be read, since it may be built in another way."""
    try:
        found = distribution("libtpu")
        library = Path(str(found.locate_file("libtpu/libtpu.so")))
        facts = library.stat()
    except (PackageNotFoundError, OSError):
        return None
    key = f"{FORMAT} {library} {found.version} {facts.st_size} {facts.st_mtime_ns}"
    name = f"libtpu-{found.version}-{hashlib.sha256(key.encode()).hexdigest()[:16]}.json"
    folder = user_cache("slipstream")
    file = None if folder is None else Path(folder) / name
    try:
        rows = json.loads(file.read_text(encoding="utf-8")) if file is not None else {}
        if rows:
            return {name: LibtpuFlag.from_row(name, row) for name, row in rows.items()}
    except DAMAGE:
        pass  # absent, or not what `_keep` wrote
    try:
        flags = {flag.name: flag for flag in read_registry(library)}
    except BadInput:
        return None
    if len(flags) < FEWEST:
        return None
    if file is not None:
        _keep(file, flags)
    return flags


def _keep(file: Path, flags: dict[str, LibtpuFlag]) -> None:
    """Write the cache if possible; otherwise the next call reads again."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with atomic_write(file) as path:
            rows = {name: flag.row() for name, flag in flags.items()}
            path.write_text(json.dumps(rows), encoding="utf-8")
    except (OSError, BadInput):
        return

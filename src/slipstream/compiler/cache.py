"""A cache of compiled programs on disk, keyed by the content of all inputs.

    <cache>/slipstream/compile/
      <key>.json               facts about one compile; names the two files below
      <digest>.hlo.pb          the program            } named by their content, so that processes
      <digest>.log             XLA's log              } never overwrite each other's files
      <target>.inputs.json     files and variables that a Python target reads

An entry exists once its .json does, which is written last.  The least recently used entries are
deleted when the cache is too large.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.reading import object_or_none
from slipstream.user_cache import user_cache
from slipstream.writing import atomic_write

FORMAT = 6
"""version of the entries; entries of other versions are ignored"""
LIMIT_BYTES = 2 * 10**9
LIMIT_VARIABLE = "SLIPSTREAM_CACHE_BYTES"


def cache_folder() -> Path:
    """The folder of the cache."""
    folder = user_cache("slipstream", "compile")
    if folder is None:
        raise BadInput(
            "there is no home folder for the cache of compiled programs; choose a folder with: "
            "export XDG_CACHE_HOME=/FOLDER"
        )
    return Path(folder)


def digest(*parts: object) -> str:
    """A hash of bytes and JSON values."""
    summary = hashlib.sha256(f"{FORMAT}\n".encode())
    for part in parts:
        data = part if isinstance(part, bytes) else json.dumps(part, sort_keys=True).encode()
        summary.update(f"{len(data)}\n".encode() + data)
    return summary.hexdigest()[:40]


def find(key: str) -> dict[str, Any] | None:
    """The entry, if it is complete; its `proto` and `log` are paths."""
    folder = cache_folder()
    file = folder / f"{key}.json"
    found = object_or_none(file)
    if found is None:
        return None
    paths = {name: folder / str(found.get(name)) for name in ("proto", "log")}
    if not all(map(os.path.isfile, paths.values())):
        return None
    # Mark it as recently used.
    with suppress(OSError):
        for path in (file, *paths.values()):
            os.utime(path)
    return {**found, **paths}


def keep(key: str, entry: Mapping[str, Any], proto: bytes, log: str) -> dict[str, Any]:
    """Store an entry, and return it as `find` does."""
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInput(
            f"can't write to the cache {folder} ({error.strerror}); choose another folder with: "
            "export XDG_CACHE_HOME=/FOLDER"
        ) from None
    contents = {"proto": (proto, ".hlo.pb"), "log": (log.encode(), ".log")}
    names = {}
    for name, (data, ending) in contents.items():
        names[name] = hashlib.sha256(data).hexdigest()[:40] + ending
        _write(folder / names[name], data)
    write_json(folder / f"{key}.json", {**entry, **names})
    _evict(folder)
    return {**entry, **{name: folder / file for name, file in names.items()}}


def write_json(file: Path, content: Mapping[str, Any]) -> None:
    _write(file, json.dumps(content, indent=1).encode())


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as temporary:
        temporary.write_bytes(data)


def _limit_bytes() -> int:
    given = os.environ.get(LIMIT_VARIABLE, "")
    if given and not given.isdigit():
        raise BadInput(f"{LIMIT_VARIABLE} is {given!r}; expected a number of bytes in digits")
    return int(given) if given else LIMIT_BYTES


def _evict(folder: Path) -> None:
    """Delete the oldest files until the cache is small enough; other processes may do the same."""
    files = []
    for entry in os.scandir(folder):
        with suppress(OSError):
            facts = entry.stat()
            files.append((facts.st_mtime, facts.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    limit = _limit_bytes()
    newest = max((time for time, _, _ in files), default=0.0)
    for time, size, path in sorted(files):
        # Files from the last minute may be in use.
        if total <= limit or time > newest - 60:
            return
        with suppress(OSError):
            os.unlink(path)
            total -= size

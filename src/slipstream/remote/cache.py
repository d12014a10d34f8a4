"""Local copies of files in buckets.

    <cache>/slipstream/remote/
      <hash of the URL and of its version>/<name>     one version of one file, never changed

The version is what the bucket says: an ETag or a generation, else size and time. A copy of an
older version is not used again; the least recently used copies are deleted when all of them take
more than `SLIPSTREAM_REMOTE_CACHE_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.remote.paths import RemotePath, modified_s
from slipstream.remote.systems import callback, reaching, shown
from slipstream.user_cache import user_cache

LIMIT_BYTES = 20 * 10**9
LIMIT_VARIABLE = "SLIPSTREAM_REMOTE_CACHE_BYTES"
_VERSIONS = ("ETag", "etag", "md5Hash", "generation", "content_md5", "ContentMD5")
_PROCESS = secrets.token_hex(8)
"""the version of files about which a server says nothing: they are fetched once a process"""

Report = Callable[[str, int, int], None]
report: list[Report] = []
"""called with the URL, the bytes so far and the total, while a file is fetched"""


def fetched(path: RemotePath) -> Path:
    """The local copy of a file; FileNotFoundError if there is no such file."""
    info = path.info()
    if info.get("type") == "directory":
        raise IsADirectoryError(21, "it is a folder", str(path))
    copy = _folder() / _key(path, info) / (path.name or "file")
    if copy.is_file():
        with suppress(OSError):
            os.utime(copy.parent)
        return copy
    _download(path, info, copy)
    _evict(copy.parent)
    return copy


def fetched_folder(path: RemotePath) -> Path:
    """A local copy of a folder, with all that is below it."""
    copies = {file.relative_to(path).as_posix(): fetched(file) for file in path.files()}
    listing = "\n".join(f"{name} {copy.parent.name}" for name, copy in sorted(copies.items()))
    key = hashlib.sha256(f"{path}\n{listing}".encode()).hexdigest()[:32]
    folder = _folder() / key / (path.name or "folder")
    for name, copy in copies.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists():
            shutil.copyfile(copy, target)
    return folder


def _folder() -> Path:
    place = user_cache("slipstream", "remote")
    if place is None:
        # Without a home there is no cache: one folder for this process and those like it.
        place = os.path.join(tempfile.gettempdir(), f"slipstream-remote-{os.getuid()}")
    folder = Path(place)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if folder.stat().st_uid != os.getuid():
            raise PermissionError(13, "it belongs to another user")
    except OSError as error:
        raise BadInput(
            f"can't write to the cache {folder} ({error.strerror}); choose another folder with: "
            "export XDG_CACHE_HOME=/FOLDER"
        ) from None
    return folder


def version_of(info: dict[str, Any]) -> str:
    """What differs between versions of a file; empty if the file system doesn't say."""
    version = next((f"{name}={info[name]}" for name in _VERSIONS if info.get(name)), "")
    return version or (str(modified_s(info)) if modified_s(info) else "")


def _key(path: RemotePath, info: dict[str, Any]) -> str:
    text = f"{path}\n{version_of(info) or _PROCESS}\n{info.get('size')}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _download(path: RemotePath, info: dict[str, Any], copy: Path) -> None:
    size = info.get("size")
    temporary = copy.with_name(f".{secrets.token_hex(6)}")
    try:
        copy.parent.mkdir(mode=0o700, exist_ok=True)
        with reaching(path):
            path.system.get_file(path.key, str(temporary), callback=callback(_teller(path, size)))
        got = temporary.stat().st_size
        if size is not None and got != size:
            raise BadInput(
                f"{shown(path)} has {size:,} bytes, and {got:,} arrived; is it still being "
                "written? Try again"
            )
        os.replace(temporary, copy)
    except OSError as error:
        if isinstance(error, FileNotFoundError):
            raise
        raise BadInput(
            f"can't keep a copy of {shown(path)} in {copy.parent}: {error.strerror or error}; make "
            "room, or choose another folder with: export XDG_CACHE_HOME=/FOLDER"
        ) from None
    finally:
        temporary.unlink(missing_ok=True)


def _teller(path: RemotePath, size: int | None) -> Callable[[int], None] | None:
    if not report:
        return None
    tell = report[-1]
    return lambda done: tell(shown(path), done, size or 0)


def limit_bytes() -> int:
    given = os.environ.get(LIMIT_VARIABLE, "")
    if given and not given.isdigit():
        raise BadInput(f"{LIMIT_VARIABLE} is {given!r}; expected a number of bytes in digits")
    return int(given) if given else LIMIT_BYTES


def _evict(newest: Path) -> None:
    """Delete the copies that were not used for longest, until the cache is small enough."""
    entries = []
    for entry in newest.parent.iterdir():
        with suppress(OSError):  # another process may be deleting it
            size = sum(file.stat().st_size for file in entry.rglob("*"))
            entries.append((entry.stat().st_mtime, size, entry))
    total, limit = sum(size for _, size, _ in entries), limit_bytes()
    for _, size, entry in sorted(entries):
        if total <= limit:
            return
        if entry != newest:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size

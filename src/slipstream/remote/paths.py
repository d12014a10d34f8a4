"""Paths that may be in a bucket: `any_path` returns a `Path`, or a `RemotePath` for a URL.

A RemotePath has the methods of Path that Slipstream uses: names, listings and sizes come from the
bucket, and nothing is downloaded for them.

    os.fspath(path), open(path)   the whole file, through the cache (`remote.cache`)
    path.open("rb")               byte ranges: what is read is transferred, and little more
    str(path)                     the URL, as messages show it
"""

from __future__ import annotations

import errno
import io
import os
import stat as modes
from collections.abc import Generator, Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PosixPath
from typing import IO, Any, BinaryIO, cast

from slipstream.remote.systems import (
    LOCAL,
    OBJECT_STORES,
    WEB,
    is_url,
    protocol_of,
    reaching,
    system_of,
)

RANGE_BYTES = 256 << 10
"""read ahead of what is asked for; s3fs alone would transfer 50 MiB at a time"""


def any_path(place: str | os.PathLike[str]) -> Path:
    """A path, wherever it is; file:// is the same as no URL."""
    if isinstance(place, RemotePath):
        return place
    if not is_url(place):
        return Path(place)
    url = str(place)
    if protocol_of(url) in LOCAL:
        return Path(url.partition("://")[2])
    # What is named by a person is looked at anew; what is found in a listing is not.
    system_of(url)[0].invalidate_cache()
    return RemotePath(url)


def is_remote(place: object) -> bool:
    """Whether a path or a text is in a bucket."""
    return isinstance(place, RemotePath) or (is_url(place) and protocol_of(str(place)) not in LOCAL)


def is_folder(path: Path) -> bool:
    """Whether a path is a folder; no for a name that no file can have."""
    return path.is_dir() if isinstance(path, RemotePath) else os.path.isdir(path)


def is_regular(path: Path) -> bool:
    """Whether a path is a file; no for a name that no file can have."""
    return path.is_file() if isinstance(path, RemotePath) else os.path.isfile(path)


def local_copy(path: Path) -> Path:
    """A file or a folder where other programs can open it; what is local stays where it is."""
    if not isinstance(path, RemotePath):
        return path
    from slipstream.remote.cache import fetched, fetched_folder

    return fetched_folder(path) if path.is_dir() else fetched(path)


class RemotePath(PosixPath):
    """A file or a folder in a bucket. Its parts begin with the protocol: `s3:`, bucket, key."""

    def __str__(self) -> str:
        first, *rest = self.parts or (".",)
        return f"{first}//{'/'.join(rest)}" if first.endswith(":") else "/".join((first, *rest))

    def __fspath__(self) -> str:
        from slipstream.remote.cache import fetched

        return str(fetched(self))

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    @property
    def system(self) -> Any:
        return system_of(str(self))[0]

    @property
    def key(self) -> str:
        """The path in the file system."""
        return system_of(str(self))[1]

    @property
    def bucket(self) -> RemotePath:
        return RemotePath("//".join(self.parts[:2]))

    @property
    def has_ranges(self) -> bool:
        """Whether a part of it can be read: a web server may send whole files only."""
        is_web = protocol_of(str(self)) in WEB
        return not is_web or bool(self.info().get("partial"))

    @property
    def has_folders(self) -> bool:
        """Whether folders exist on their own, and have to be made."""
        return protocol_of(str(self)) not in OBJECT_STORES

    def info(self) -> dict[str, Any]:
        """What the file system knows, asked once; FileNotFoundError if nothing is there."""
        known: dict[str, Any] | None = self.__dict__.get("_known")
        if known is None:
            try:
                with reaching(self):
                    known = self.__dict__["_known"] = dict(self.system.info(self.key))
            except FileNotFoundError:
                raise FileNotFoundError(errno.ENOENT, "no such file", str(self)) from None
        return known

    def absolute(self) -> RemotePath:
        return self

    def resolve(self, strict: bool = False) -> RemotePath:
        return self

    def is_symlink(self) -> bool:
        return False

    def exists(self, **_: Any) -> bool:
        return self._type() != ""

    def is_dir(self, **_: Any) -> bool:
        return self._type() == "directory"

    def is_file(self, **_: Any) -> bool:
        return self._type() == "file"

    def _type(self) -> str:
        try:
            return str(self.info().get("type", "file"))
        except FileNotFoundError:
            return ""

    def stat(self, **_: Any) -> os.stat_result:
        """Size, time and kind; nothing is downloaded."""
        info = self.info()
        kind = modes.S_IFDIR if info.get("type") == "directory" else modes.S_IFREG
        size, when = int(info.get("size") or 0), modified_s(info)
        return os.stat_result((kind | 0o600, 0, 0, 1, 0, 0, size, when, when, when))

    def iterdir(self) -> Generator[RemotePath, None, None]:
        with reaching(self):
            names = self.system.ls(self.key, detail=False)
        for name in names:
            last = str(name).rstrip("/").rpartition("/")[2]
            # A folder that was made in a web console is an object with the folder's own name.
            if last and str(name).strip("/") != self.key.strip("/"):
                yield self / last

    def files(self) -> list[RemotePath]:
        """All files below, at any depth."""
        with reaching(self):
            found = self.system.find(self.key, detail=True)
        root, files = self.key.strip("/"), []
        for name, info in sorted(found.items()):
            below = str(name).strip("/")[len(root) :].strip("/")
            if below:
                files.append(self / below)
                files[-1].__dict__["_known"] = dict(info)
        return files

    def glob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:  # type: ignore[override]
        """Files and folders by a pattern, of which only the first part may be `**`."""
        if pattern.startswith("**/"):
            below = {place for file in self.files() for place in (file, *_between(self, file))}
            ending = pattern.removeprefix("**/")
            yield from (one for one in sorted(below) if one.relative_to(self).match(ending))
            return
        # Level by level: a bucket may hold millions of files below.
        first, *more = pattern.split("/", 1)
        for place in sorted(self.iterdir()):
            if fnmatchcase(place.name, first):
                yield from place.glob(more[0]) if more else (place,)

    def rglob(self, pattern: str, **_: Any) -> Iterator[RemotePath]:  # type: ignore[override]
        return self.glob(f"**/{pattern}")

    def open(self, mode: str = "r", *_: Any, **options: Any) -> IO[Any]:  # type: ignore[override]
        """Open to read: only the ranges that are read are transferred, and little more."""
        if set(mode) - set("rbt"):
            raise io.UnsupportedOperation("files in buckets are written by atomic_write")
        with reaching(self):
            size = min(RANGE_BYTES, max(int(self.info().get("size") or 0), 1))
            raw = self.system.open(self.key, "rb", block_size=size, cache_type="readahead")
        file = cast(BinaryIO, _Ranged(raw, str(self)))
        return file if "b" in mode else io.TextIOWrapper(file, options.get("encoding"))

    def read_bytes(self) -> bytes:
        return Path(os.fspath(self)).read_bytes()

    def read_text(self, *args: Any, **options: Any) -> str:
        return Path(os.fspath(self)).read_text(*args, **options)

    def mkdir(self, *_: Any, **__: Any) -> None:
        """Make a folder, where there are any; never a bucket."""
        if self.has_folders:
            with reaching(self):
                self.system.makedirs(self.key, exist_ok=True)

    def unlink(self, missing_ok: bool = False) -> None:
        try:
            with reaching(self):
                self.system.rm_file(self.key)
        except FileNotFoundError:
            if not missing_ok:
                raise


class _Ranged(io.BufferedIOBase):
    """A file of fsspec whose errors are ours."""

    def __init__(self, raw: Any, url: str) -> None:
        self._raw, self.name = raw, url

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        with reaching(self.name):
            return bytes(self._raw.read(-1 if size is None else size))

    def read1(self, size: int = -1, /) -> bytes:
        return self.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return int(self._raw.seek(offset, whence))

    def tell(self) -> int:
        return int(self._raw.tell())

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def modified_s(info: dict[str, Any]) -> float:
    """When a file was written, in seconds since 1970; 0 if the file system doesn't say."""
    from datetime import datetime

    for name in ("LastModified", "mtime", "updated", "last_modified", "modified", "created"):
        value = info.get(name)
        if isinstance(value, str):
            try:
                value = datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime):
            return value.timestamp()
        if isinstance(value, int | float):
            return float(value)
    return 0.0


def _between(root: RemotePath, file: RemotePath) -> Iterator[RemotePath]:
    """The folders between a file and the folder that it was found below."""
    place = file.parent
    while place != root:
        yield place
        place = place.parent

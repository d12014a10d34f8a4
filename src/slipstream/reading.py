"""Input files: regular files only, unpacked within a limit, damage reported as bad input.

open_input      a file to read; a FIFO, device or folder is refused without waiting for it
open_ranges     the same for a reader that needs a part: no more is transferred from a bucket
read_input      its content, unpacked if it is compressed
read_object     its content as a JSON object
object_or_none  the same, where the file may be missing or damaged
damage          turns what a reader raises on damaged content into `BadInput`
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from slipstream.errors import BadInput
from slipstream.remote.paths import RANGE_BYTES, RemotePath, any_path
from slipstream.units import format_bytes

if TYPE_CHECKING:
    AnyPath = str | os.PathLike[str]

UNPACKED_VARIABLE = "SLIPSTREAM_MAX_UNPACKED"
"""bytes that one compressed file may unpack to"""
UNPACKED_LEAST = 64 << 20
UNPACKED_FACTOR = 100
"""by default: this many times the packed size, and not less than `UNPACKED_LEAST`"""

GZIP, XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
DAMAGE: tuple[type[Exception], ...] = (
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    OSError,
    RuntimeError,
    StopIteration,
    TypeError,
    ValueError,
    zlib.error,
)
"""what readers raise on unexpected content: missing keys, other types, deep nesting"""
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def open_input(path: AnyPath, expected: str) -> BinaryIO:
    """Open a regular file to read; `expected` says in an error what should be there.

    Of a URL, the local copy is opened.
    """
    try:
        path = any_path(path)
        # Opening a FIFO must not wait for a writer.
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.fdopen(os.open(path, flags | getattr(os, "O_BINARY", 0)), "rb")
    except (OSError, ValueError) as error:
        raise unreadable(path, error, expected) from None
    mode = os.fstat(file.fileno()).st_mode
    if not stat.S_ISREG(mode):
        file.close()
        kind = next((name for is_kind, name in _KINDS if is_kind(mode)), "not a file")
        raise BadInput(f"{path} is {kind}; expected {expected}, in a file")
    return file


def open_ranges(path: AnyPath, expected: str) -> BinaryIO:
    """Open a file of which a part is read; in a bucket, only that part is transferred.

    A small file comes as a whole, and stays in the cache for whoever reads the rest.
    """
    try:
        found = any_path(path)
        if isinstance(found, RemotePath) and found.has_ranges:
            is_large = found.stat().st_size > RANGE_BYTES
            return cast(BinaryIO, found.open("rb")) if is_large else open_input(found, expected)
    except (OSError, ValueError) as error:
        raise unreadable(path, error, expected) from None
    return open_input(found, expected)


def unreadable(path: AnyPath, error: Exception, expected: str) -> BadInput:
    """The error for a path that the system refuses: no permission, a name too long, and so on."""
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    name = str(path)
    shown = name if len(name) < 200 else f"{name[:80]}…{name[-40:]}"
    return BadInput(f"can't read {shown}: {reason}; expected {expected}")


def read_input(path: AnyPath, expected: str) -> bytes:
    """The content of a file, unpacked if it is gzip or xz."""
    with open_input(path, expected) as file:
        magic = file.read(6)
        file.seek(0)
        if magic.startswith((GZIP, XZ)):
            return unpack(file, path)
        try:
            return file.read()
        except OSError as error:
            raise unreadable(path, error, expected) from None


def unpack(file: BinaryIO, source: object) -> bytes:
    """The content of an open gzip or xz file; BadInput if it is damaged or unpacks to too much."""
    return b"".join(unpacked_pieces(file, source))


def unpacked_pieces(file: BinaryIO, source: object, at_once: int = 1 << 20) -> Iterator[bytes]:
    """The content of an open gzip or xz file, `at_once` bytes at a time."""
    import gzip
    import lzma

    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    limit = unpacked_limit(size)
    is_gzip = file.read(2) == GZIP
    file.seek(0)
    done = 0
    try:
        with gzip.GzipFile(fileobj=file) if is_gzip else lzma.LZMAFile(file) as content:
            while piece := content.read(at_once):
                done += len(piece)
                if done > limit:
                    raise too_large(source, size, limit)
                yield piece
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        kind = "gzip" if is_gzip else "xz"
        raise BadInput(
            f"{source} is not a complete {kind} file ({error}); copy it again from where it was "
            "written"
        ) from None


def unpacked_limit(packed_bytes: int) -> int:
    """Bytes that a compressed file of this size may unpack to."""
    given = os.environ.get(UNPACKED_VARIABLE, "")
    if not given:
        return max(UNPACKED_LEAST, UNPACKED_FACTOR * packed_bytes)
    if not given.isascii() or not given.isdigit() or len(given) > 18:
        raise BadInput(f"{UNPACKED_VARIABLE} is {given!r}; expected a number of bytes in digits")
    return int(given)


def too_large(source: object, packed_bytes: int, limit: int) -> BadInput:
    """The error for a compressed file that unpacks to more than the limit."""
    return BadInput(
        f"{source} unpacks to more than {format_bytes(limit)} from {format_bytes(packed_bytes)}; "
        f"if it is what you expect, raise the limit: export {UNPACKED_VARIABLE}={16 * limit}"
    )


def read_object(path: AnyPath, expected: str) -> dict[str, Any]:
    """The JSON object in a file."""
    import json

    data = read_input(path, expected)
    with damage(path, f"{expected} in JSON"):
        found = json.loads(data)
        if isinstance(found, dict):
            return found
    raise BadInput(f"{path} has {_json_kind(found)}; expected {expected}, a JSON object")


def object_or_none(path: AnyPath) -> dict[str, Any] | None:
    """The JSON object in a file of our own; None if the file is missing or damaged."""
    try:
        return read_object(path, "a file of Slipstream")
    except BadInput:
        return None


def _json_kind(value: object) -> str:
    kinds = {list: "a list", str: "a text", bool: "a boolean", type(None): "null"}
    return kinds.get(type(value), "a number")


@contextmanager
def damage(
    source: object, expected: str, also: tuple[type[Exception], ...] = (), next_step: str = ""
) -> Iterator[None]:
    """Raise BadInput for content that can't be read; `also` are errors of a format's library."""
    try:
        yield
    except (*DAMAGE, *also) as error:
        raise BadInput(
            f"{source} is damaged: expected {expected}, but saw {describe(error)}; "
            f"{next_step or 'make it again, or copy it again'}"
        ) from error


def describe(error: BaseException) -> str:
    """An exception in one short line."""
    if isinstance(error, RecursionError):
        return "nesting that is too deep"
    if isinstance(error, MemoryError):
        return "more than fits into memory"
    text = " ".join(str(error).split())
    shown = text if len(text) <= 200 else f"{text[:200]}…"
    return f"{type(error).__name__}: {shown}" if shown else type(error).__name__

"""jaxlib's shared library, read as a file without importing or running it.

XLA's flags are the fields of one message, `xla.DebugOptions`.  A library that uses protobuf
contains the descriptors of its messages as plain bytes in its data segment:

    … 0a 0d x l a / x l a . p r o t o 12 03 x l a 1a … 22 …      FileDescriptorProto of xla.proto
      name                            package     imports messages, up to an invalid tag

Names of flags without a field are in the same segment, between two zero bytes.
"""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from slipstream.errors import BadInput, Missing

INSTALL = "pip install jax"
_START = b"\x0a\x0dxla/xla.proto\x12\x03xla"
_NAMES = re.compile(rb"\0(xla_[a-z0-9_]{3,90})(?=\0)")
_BYTES, _VARINT = 2, 0
_NAME_TAG, _IMPORT_TAG = 0x0A, 0x1A
_LAST_FIELD = 14
"""of FileDescriptorProto: edition"""


@dataclass(frozen=True)
class JaxlibLibrary:
    """A jaxlib on disk."""

    version: str
    path: Path
    """the shared library that holds XLA"""

    @property
    def folder(self) -> Path:
        """The folder to put on `PYTHONPATH` for `import jaxlib`."""
        return self.path.parent.parent

    @property
    def identity(self) -> str:
        """Identifies this exact library."""
        facts = self.path.stat()
        return f"{self.version} {facts.st_size} {facts.st_mtime_ns}"


@dataclass(frozen=True)
class FileDescriptors:
    """The descriptors of xla.proto and of the files that it imports, serialized."""

    file: bytes
    imports: tuple[bytes, ...]


def installed_library() -> JaxlibLibrary:
    """The jaxlib of this Python."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        found = distribution("jaxlib")
    except PackageNotFoundError:
        raise Missing(
            "no jaxlib is installed, so its flags can't be read; install it with: "
            f"{INSTALL}, or name a release: slipstream flags list --jaxlib 0.10.2"
        ) from None
    return library_in(Path(str(found.locate_file("jaxlib"))), found.version)


def library_in(folder: Path, version: str) -> JaxlibLibrary:
    """The library in a `jaxlib` folder: the largest shared library, whatever its name."""
    files = [*folder.glob("*.so"), *folder.glob("*.dylib"), *folder.glob("*.pyd")]
    if not files:
        raise Missing(f"jaxlib {version} in {folder} has no shared library; reinstall: {INSTALL}")
    return JaxlibLibrary(version, max(files, key=lambda file: file.stat().st_size))


def read_descriptors(library: JaxlibLibrary) -> FileDescriptors:
    """Find the descriptors in a library."""
    with _mapped(library) as data:
        file = _descriptor(data, _START)
        if file is None:
            raise BadInput(
                f"{os.fspath(library.path)} has no descriptor of xla.proto, which every jaxlib "
                "from 0.4 to 0.12 has, so its flags can't be listed"
            )
        starts = [b"\x0a" + bytes([len(name)]) + name + b"\x12" for name in _imports(file)]
        found = (_descriptor(data, start) for start in starts)
        return FileDescriptors(file, tuple(imported for imported in found if imported is not None))


def read_names(library: JaxlibLibrary) -> frozenset[str]:
    """All strings that look like names of flags."""
    with _mapped(library) as data:
        # Regular expressions work on a memory map as on bytes.
        return frozenset(name.decode() for name in set(_NAMES.findall(data)))


@contextmanager
def _mapped(library: JaxlibLibrary) -> Iterator[mmap.mmap]:
    with (
        open(library.path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield data


def _descriptor(data: mmap.mmap, start: bytes) -> bytes | None:
    """The descriptor that starts with these bytes.

    Its length is not stored, but the bytes after it are not a field of a descriptor.
    """
    at = data.find(start)
    if at < 0:
        return None
    end = at
    for tag, _, after in _fields(data, at):
        is_next_file = tag == _NAME_TAG and end > at
        if is_next_file or not 1 <= tag >> 3 <= _LAST_FIELD or tag & 7 not in (_BYTES, _VARINT):
            break
        end = after
    return data[at:end]


def _imports(descriptor: bytes) -> list[bytes]:
    """The files that a file imports; enums may be defined there."""
    fields = _fields(descriptor, 0)
    return [descriptor[begin:end] for tag, begin, end in fields if tag == _IMPORT_TAG]


def _fields(data: bytes | mmap.mmap, at: int) -> Iterator[tuple[int, int, int]]:
    """The tag of each field from `at` on, and the start and end of its value."""
    while at < len(data):
        tag, begin = _varint(data, at)
        value, after = _varint(data, begin)
        begin, at = (after, after + value) if tag & 7 == _BYTES else (begin, after)
        yield tag, begin, at


def _varint(data: bytes | mmap.mmap, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at

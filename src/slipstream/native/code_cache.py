"""Machine code kept between processes: keyed by all it depends on, verified before it is mapped.

    file     magic, checksum of the rest, key, image
    folder   the package's `__pycache__`, else `slipstream/native` in the user's cache folder

Whoever can write these files can run code as the user who loads them. So folder and file must
belong to this user (or to root, where the package is installed) and be writable by their owner
only, and checksum and key must match. In any doubt there is no image, and Numba compiles again.
"""

from __future__ import annotations

import os
import stat
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import Any, NamedTuple

from slipstream.native.image import Image
from slipstream.user_cache import user_cache

try:
    from _blake2 import blake2b  # what `hashlib` has, without loading OpenSSL
except ImportError:
    from hashlib import blake2b

_MAGIC = b"slipcode"
_DIGEST_BYTES = 32
_HEADER_BYTES = len(_MAGIC) + 2 * _DIGEST_BYTES
_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_GENERATORS = ("__init__", "image", "linker", "numba_compiler")
"""our modules that decide what the machine code and its image look like"""
_NO_EFFECT = frozenset(
    ("NUMBA_CACHE_DIR", "NUMBA_NUM_THREADS", "NUMBA_THREADING_LAYER", "NUMBA_COLOR_SCHEME")
)
"""Numba's settings that jobs often make and that change no machine code"""


class _Folder(NamedTuple):
    path: str
    owners: tuple[int, ...]
    mode: int


def cache_key(signature: str, functions: tuple[Any, ...]) -> bytes | None:
    """A digest of everything the machine code depends on; None if part of it is unknown.

    `functions` are the native function and its helpers: their modules' sources count, and the
    values of the global constants they use, which may come from other modules.
    """
    modules = sorted({function.__module__ for function in functions})
    files = [getattr(sys.modules.get(module), "__file__", None) for module in modules]
    try:
        sources = [_bytes_of(str(file)) for file in files]
        parts = [_environment(), signature.encode(), *sources, *_constants(functions)]
    except (OSError, ImportError):
        return None
    return _digest(b"".join(len(part).to_bytes(8, "little") + part for part in parts))


def cached_image(name: str, key: bytes) -> Image | None:
    """The intact image of that key, from the first trustworthy folder that has one."""
    for folder in _folders():
        with suppress(OSError), _trusted(folder) as descriptor:
            data = _read(descriptor, _file_name(name, key), folder.owners)
            image = _verified(data, key)
            if image is not None:
                return image
    return None


def keep_image(name: str, key: bytes, image: Image) -> None:
    """Write an image to the first trustworthy folder that can be written, if there is one."""
    for folder in _folders():
        with suppress(OSError):
            os.makedirs(folder.path, folder.mode, exist_ok=True)
            with _trusted(folder) as descriptor:
                _write(descriptor, _file_name(name, key), key + image.to_bytes())
            return


def _folders() -> list[_Folder]:
    """Where images may lie; never below the working folder because a variable is unset."""
    user = os.geteuid()
    folders = [_Folder(os.path.join(_PACKAGE, "__pycache__"), (user, 0), 0o755)]
    cache = user_cache("slipstream", "native")
    if cache is not None:
        folders.append(_Folder(cache, (user,), 0o700))
    return folders


def _file_name(name: str, key: bytes) -> str:
    return f"{name}-{key[:8].hex()}.image"


@contextmanager
def _trusted(folder: _Folder) -> Iterator[int]:
    """The open folder; PermissionError if others can write to it."""
    descriptor = os.open(folder.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check_owner(os.fstat(descriptor), folder.owners)
        yield descriptor
    finally:
        os.close(descriptor)


def _check_owner(found: os.stat_result, owners: tuple[int, ...]) -> None:
    if found.st_uid not in owners or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("somebody else can write this")


def _read(folder: int, name: str, owners: tuple[int, ...]) -> bytes:
    # A symbolic link is refused, and opening a named pipe must not wait.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(os.open(name, flags, dir_fd=folder), "rb", buffering=0) as file:
        found = os.fstat(file.fileno())
        _check_owner(found, owners)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError("not a file")
        return file.read()


def _verified(data: bytes, key: bytes) -> Image | None:
    magic, checksum = data[: len(_MAGIC)], data[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
    content = memoryview(data)[len(_MAGIC) + _DIGEST_BYTES :]
    if magic != _MAGIC or checksum != _digest(content) or content[:_DIGEST_BYTES] != key:
        return None
    with suppress(ValueError, struct.error):
        return Image.from_bytes(data[_HEADER_BYTES:])
    return None


def _write(folder: int, name: str, content: bytes) -> None:
    """Several processes may write the same image: each replaces it by a whole one."""
    temporary = f".{name}.{os.getpid()}.{os.urandom(4).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(_MAGIC + _digest(content) + content)
        os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def _digest(data: bytes | memoryview) -> bytes:
    return blake2b(data, digest_size=_DIGEST_BYTES).digest()


@lru_cache(maxsize=1)
def _environment() -> bytes:
    """What is the same for all functions: our compiler, Numba, LLVM, Python, the processor."""
    own = (_bytes_of(os.path.join(_PACKAGE, f"{name}.py")) for name in _GENERATORS)
    names = sorted(name for name in os.environ if name.startswith("NUMBA_"))
    settings = [f"{name}={os.environ[name]}" for name in names if name not in _NO_EFFECT]
    said = [sys.implementation.cache_tag, sys.abiflags, *settings, _processor()]
    versions = (_version("numba"), _version("llvmlite"))
    return b"\0".join((*own, *versions, "\n".join(said).encode()))


def _constants(functions: tuple[Any, ...]) -> Iterator[bytes]:
    """Global constants by name and value: Numba compiles them in."""
    for function in functions:
        for name in function.__code__.co_names:
            value = function.__globals__.get(name)
            if isinstance(value, int | float | str | tuple):
                yield f"{name}={value!r}".encode()


def _version(package: str) -> bytes:
    """What states a package's version: its own file, as importing the package takes long."""
    spec = PathFinder.find_spec(package)
    with suppress(OSError):
        if spec is not None and spec.origin is not None:
            return _bytes_of(os.path.join(os.path.dirname(spec.origin), "_version.py"))
    from importlib.metadata import version

    return version(package).encode()


@lru_cache(maxsize=64)
def _bytes_of(file: str) -> bytes:
    with open(file, "rb") as opened:
        return opened.read()


def _processor() -> str:
    """The processor's model and features. Linux states them at once; elsewhere LLVM is asked."""
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            # Every core has the same lines; a machine may have hundreds of cores.
            lines = file.read(8192).partition("\n\n")[0].splitlines()
    except OSError:
        lines = []
    model = ("vendor_id", "cpu family", "model", "stepping", "CPU ")
    features = [line for line in lines if line.startswith(("flags", "Features"))]
    if features:
        return "\n".join([line for line in lines if line.startswith(model)] + features)
    import llvmlite.binding as llvm

    return f"{llvm.get_host_cpu_name()}\n{llvm.get_host_cpu_features().flatten()}"

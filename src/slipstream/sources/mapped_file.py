"""Files in memory, which others may write to or cut short while they are read.

The system answers an access behind the new end of a mapped file with the signal SIGBUS, which ends
the process:

    mapped    ████████████████████████
    file now  ████████│                    truncated, or its disk fails
    accessed              ↑ SIGBUS
    after it  ████████····░░░░░░░░░░░░    zeros: the reader goes on, and an error says why it failed

A check before each access would cost more than reading itself, so `survive_shrinking` installs a
handler for the signal. Only commands do: a handler is a matter of the whole process, which may be
somebody's job.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import weakref
from typing import Any

from slipstream.errors import BadInput

FileStamp = tuple[str, int, int, int, int, int]
"""a file's path, device, inode, size, and times of the last write and the last change"""
_MAPPED: weakref.WeakSet[MappedFile] = weakref.WeakSet()
_MAP_FIXED, _SA_SIGINFO, _SA_NODEFER = 0x10, 4, 0x40000000
_ADDRESS_OFFSET = 16
"""of the address in what the system says about the signal"""
_installed: list[Any] = []
"""what must stay in memory as long as the handler is installed"""


class MappedFile(mmap.mmap):
    """A file's bytes. Private and writable, though nobody writes: ctypes takes no others."""

    path: str
    address: int
    number: int
    """files are numbered in the order in which they are mapped"""
    is_shorter = False
    """whether the file has become shorter than it was"""


def map_file(descriptor: int, path: str | os.PathLike[str]) -> MappedFile:
    """Map an open file."""
    if hasattr(mmap, "MAP_PRIVATE"):
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000)
        mapped = MappedFile(descriptor, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
    else:
        mapped = MappedFile(descriptor, 0, access=mmap.ACCESS_COPY)
    mapped.path = os.fspath(path)
    mapped.address = ctypes.addressof(ctypes.c_ubyte.from_buffer(mapped))
    mapped.number = 1 + latest()
    _MAPPED.add(mapped)
    return mapped


def latest() -> int:
    """The number of the file that was mapped last."""
    return max((mapped.number for mapped in _MAPPED), default=0)


def file_stamp(path: str | os.PathLike[str]) -> FileStamp:
    """What changes when a file is replaced, written to, or given an older time of writing."""
    about = os.stat(path)
    times = (about.st_mtime_ns, about.st_ctime_ns)
    return (os.fspath(path), about.st_dev, about.st_ino, about.st_size, *times)


def raise_if_changed(path: str | os.PathLike[str], before: FileStamp, since: int) -> None:
    """Raise an error if a file, mapped after number `since`, was written to after a stamp.

    If it was replaced, what was read is the whole of the earlier file.
    """
    name = os.path.normpath(path)
    is_shorter = any(
        mapped.is_shorter and mapped.number > since and os.path.normpath(mapped.path) == name
        for mapped in list(_MAPPED)
    )
    try:
        now = file_stamp(path)
    except OSError:
        now = before
    is_same_file = now[1:3] == before[1:3]
    if is_shorter or (is_same_file and now[3:5] != before[3:5]):
        sizes = f"from {before[3]:,} to {now[3]:,} bytes" if is_same_file else "to fewer bytes"
        raise BadInput(
            f"{name} changed while it was read ({sizes}); is it still being written? Try again "
            "when it is complete"
        )


def survive_shrinking() -> None:
    """Let files that become shorter be an error of their reader, not the end of the process."""
    if _installed or sys.platform != "linux" or sys.maxsize < 1 << 32:
        return
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    before, action = _Action(), _Action()

    def handle(number: int, about: int, context: int) -> None:
        # Runs in the thread that was stopped, at an access to the file's bytes and nowhere else.
        address = ctypes.c_size_t.from_address(about + _ADDRESS_OFFSET).value
        if not _put_zeros(libc, address):
            libc.sigaction(signal.SIGBUS, ctypes.byref(before), None)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(handle)
    action.handler = ctypes.cast(handler, ctypes.c_void_p).value
    action.flags = _SA_SIGINFO | _SA_NODEFER
    _installed.extend((handler, before))
    libc.sigaction(signal.SIGBUS, ctypes.byref(action), ctypes.byref(before))


def _put_zeros(libc: ctypes.CDLL, address: int) -> bool:
    """Replace a mapped file by zeros, from the page of an address on; False if none is there."""
    for mapped in list(_MAPPED):
        end = mapped.address + len(mapped)
        if mapped.address <= address < end:
            mapped.is_shorter = True
            page = address - address % mmap.PAGESIZE
            rights = mmap.PROT_READ | mmap.PROT_WRITE
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
            return libc.mmap(page, end - page, rights, flags, -1, 0) == page  # type: ignore[no-any-return]
    return False


class _Action(ctypes.Structure):
    """The C library's `struct sigaction`."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )

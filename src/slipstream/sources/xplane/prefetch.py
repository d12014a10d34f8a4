"""A file that is walked before the rest of us is loaded.

Loading numpy and protobuf takes Python a tenth of a second and more. A command that names a long
file maps it first and lets native threads walk its lines meanwhile; whoever reads the file later
finds it mapped and walked.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from typing import Any

from slipstream.sources.xplane.lines import LONG_PART, Scan, long_lines, scan_line

CHUNK = 1 << 18
"""events that a thread decodes at a time: between two of them it may wait for Python"""
_NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000)
_WALKS: dict[str, _Walk] = {}


class _Walk:
    """One file, mapped, and the scans of its long lines as they are made."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self.mapped = mapped
        self.scans: dict[tuple[int, int], Scan] = {}
        self.thread = threading.Thread(target=self._walk, daemon=True)
        self.thread.start()

    def _walk(self) -> None:
        data = (ctypes.c_ubyte * len(self.mapped)).from_buffer(self.mapped)
        # One core is for Python, which is loading.
        parts = max((os.cpu_count() or 1) - 1, 1)
        for start, end in long_lines(data, len(self.mapped)):
            self.scans[start, end] = scan_line(data, start, end, CHUNK, parts)


def walk_ahead(path: str) -> None:
    """Begin to walk a file, if it is long enough for that to be worth anything."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size < 2 * LONG_PART or file.read(1) != b"\x0a":
            return
        _WALKS[os.path.abspath(path)] = _Walk(map_file(file.fileno()))


def map_file(descriptor: int) -> mmap.mmap:
    """A file's bytes. Private and writable, though nobody writes: only then ctypes takes them."""
    if not hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(descriptor, 0, access=mmap.ACCESS_COPY)
    flags = mmap.MAP_PRIVATE | _NO_RESERVE
    return mmap.mmap(descriptor, 0, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)


def mapped_ahead(path: Any) -> mmap.mmap | None:
    """The file's mapping, if there is one already."""
    walk = _WALKS.get(os.path.abspath(path))
    return walk.mapped if walk else None


def scanned_ahead(path: Any, start: int, end: int) -> Scan | None:
    """The scan of a line, if it was or is being made."""
    walk = _WALKS.get(os.path.abspath(path))
    if walk is None:
        return None
    walk.thread.join()
    return walk.scans.get((start, end))

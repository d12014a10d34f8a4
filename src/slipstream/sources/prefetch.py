"""Reading that starts before the command line is imported.

    main ──── prefetch(path) ─┬─ FileWalk   native threads find where the events of long lines lie;
                              │             meanwhile Python imports numpy and `load`
                              └─ Reading    a thread reads the file, native threads decode events;
                                            meanwhile Python imports the command and its analysis
    command ─ load(path) ─────── takes the Reading and waits for its result

Importing numpy and protobuf alone takes a tenth of a second, as long as decoding a million events.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING

from slipstream.sources.mapped_file import FileStamp, MappedFile, file_stamp, map_file
from slipstream.sources.xplane.lines import CHUNK_EVENTS, LONG_PART, Scan, long_lines, scan_line

if TYPE_CHECKING:
    from slipstream.sources.load import Reading

_PREFETCHED: dict[str, tuple[Reading, FileStamp]] = {}
"""by path, what is being read ahead of `load`, and which file that is"""


def prefetch(path: str) -> None:
    """Start to read what `load(path)` will be called for; returns once native code is at it.

    Two threads that both import Python modules would only slow each other down.
    """
    stamp = file_stamp(path)
    walk = walk_file(path)
    from slipstream.sources.load import Reading

    reading = Reading(path, walk=walk)
    _PREFETCHED[path] = reading, stamp
    reading.is_native.wait()


def take_prefetched(path: object) -> Reading | None:
    """The reading that `prefetch` started for a path; only the first caller gets it.

    None if the file was replaced or written to since.
    """
    if not isinstance(path, str) or path not in _PREFETCHED:
        return None
    reading, stamp = _PREFETCHED.pop(path)
    try:
        return reading if file_stamp(path) == stamp else None
    except OSError:
        return None


def walk_file(path: str) -> FileWalk | None:
    """Start to walk over a recording, if it is long enough for that to be worth anything."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < 2 * LONG_PART or file.read(1) != b"\x0a":
                return None
            return FileWalk(map_file(file.fileno(), path))
    except OSError:
        return None  # whoever reads it gets the error


class FileWalk:
    """A mapped recording, and the scans of its long lines as native threads make them."""

    def __init__(self, mapped: MappedFile) -> None:
        self.mapped = mapped
        self._scans: dict[tuple[int, int], Scan] = {}
        self._thread = threading.Thread(target=self._walk, daemon=True)
        self._thread.start()

    def scan(self, start: int, end: int) -> Scan | None:
        """The scan of the line at these bytes, if it is a long one."""
        self._thread.join()
        return self._scans.get((start, end))

    def _walk(self) -> None:
        data = (ctypes.c_ubyte * len(self.mapped)).from_buffer(self.mapped)
        # One core is for Python, which is importing.
        parts = max((os.cpu_count() or 1) - 1, 1)
        for start, end in long_lines(data, len(self.mapped)):
            self._scans[start, end] = scan_line(data, start, end, CHUNK_EVENTS, parts)

"""The output of a profile run: kept in files, and replayed if the run turns out to be the job."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from typing import TextIO

from slipstream.writing import open_private

_XLA_INFO = re.compile(rb"^(?:I\d{4} [\d:.]+ +\d+ |[\d-]+ [\d:.]+:? I )\S+\.(?:cc|h):\d+\] ")
"""a line that XLA writes only because we asked it to"""
_CHUNK = 1 << 16
_LONGEST_WAIT_S = 5.0
"""for output of processes that outlive the job"""


class CapturedStream:
    """One stream of a job, kept in a file, or in memory once the disk is full."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten = bytearray()
        self._reading, self.writing = os.pipe()
        self._pump = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> CapturedStream:
        self._pump.start()
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.writing)
        self._pump.join(_LONGEST_WAIT_S)

    def _keep(self) -> None:
        with open(self._reading, "rb", buffering=0) as reading:
            try:
                with open_private(self._path) as file:
                    while data := reading.read(_CHUNK):
                        self._unwritten += data
                        file.write(data)
                        self._unwritten.clear()
            except OSError:
                while data := reading.read(_CHUNK):
                    self._unwritten += data

    def replay(self, to: TextIO, is_verbose: bool = False) -> None:
        """Copy it to a stream; with `is_verbose`, leave out the lines we made XLA write."""
        data = (self._path.read_bytes() if self._path.exists() else b"") + bytes(self._unwritten)
        lines = data.splitlines(keepends=True)
        if is_verbose:
            lines = [line for line in lines if not _XLA_INFO.match(line)]
        to.flush()
        buffer = getattr(to, "buffer", None)
        if buffer is not None:
            buffer.write(b"".join(lines))
        else:
            to.write(b"".join(lines).decode("utf-8", "replace"))
        to.flush()

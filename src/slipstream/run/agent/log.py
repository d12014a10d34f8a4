"""The agent's log: in the run's folder, never on the job's own output."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path


def log_to(path: Path) -> None:
    """What Slipstream has to say in this process goes there, and nowhere else."""
    handler = _QuietHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log = logging.getLogger("slipstream")
    log.addHandler(handler)
    log.propagate = False


class _QuietHandler(logging.FileHandler):
    """Keeps quiet where it can't write, too: the disk may be full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass

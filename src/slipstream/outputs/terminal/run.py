"""Progress of a run on stderr, phase by phase; stdout is the job's."""

from __future__ import annotations

import os
import sys
from typing import Any

from slipstream.outputs.formatting import printable
from slipstream.outputs.terminal.layout import paragraph

NUMBERS = {"check": 1, "profile": 2, "costs": 3, "compile": 4, "compare": 5}
_INDENT = 11
_LARGEST_WIDTH = 120


class PhaseReporter:
    """Prints a line for each phase, `2 profile  steps 5–7 captured`; a spinner while it runs."""

    def __init__(self) -> None:
        self._status: Any = None

    def say(self, phase: str, text: str) -> None:
        """A phase that ends in `…` has just begun; an empty phase is a warning."""
        if phase.endswith("…"):
            self._begin(phase.rstrip("…"), text)
            return
        self._end()
        head = f"{NUMBERS[phase]} {phase}" if phase in NUMBERS else phase or "!"
        lines = paragraph(printable(text), _width(), head.ljust(_INDENT), " " * _INDENT)
        print("\n".join(lines), file=sys.stderr, flush=True)

    def _begin(self, phase: str, text: str) -> None:
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.text import Text

        self._end()
        head = f"{NUMBERS.get(phase, '')} {phase}".ljust(_INDENT)
        self._status = Console(stderr=True, highlight=False).status(Text(head + printable(text)))
        self._status.start()

    def _end(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def __enter__(self) -> PhaseReporter:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()


def _width() -> int:
    try:
        return min(
            os.get_terminal_size(sys.stderr.fileno()).columns or _LARGEST_WIDTH, _LARGEST_WIDTH
        )
    except (OSError, ValueError, AttributeError):
        return _LARGEST_WIDTH

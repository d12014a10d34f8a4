"""Results as they arrive, on stderr: the last few on a terminal, one line each elsewhere."""

from __future__ import annotations

import sys
import threading
from typing import Any, Self

from slipstream.cli.common import note
from slipstream.outputs.formatting import printable_lines

MAX_ROWS = 15


class LiveLines:
    """Lines of several threads; a line of progress gives way to the next line."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: list[str] = []
        self._live: Any = None

    def progress(self, text: str) -> None:
        self.show(f"… {text}")

    def show(self, line: str) -> None:
        with self._lock:
            if self._live is None:
                return note(line)
            from rich.text import Text

            self._lines = [*(one for one in self._lines if one[:1] != "…"), line][-MAX_ROWS:]
            self._live.update(Text(printable_lines("\n".join(self._lines)), no_wrap=True))

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

"""Progress in a notebook: one bar, updated in place."""

from __future__ import annotations

import sys
import time
from importlib import import_module
from typing import Any

SHOW_AFTER_S = 2.0
"""how long work may take before a bar is shown, as in the terminal"""
EVERY_S = 0.1
"""a notebook redraws the bar each time, so not for every block that was read"""


class NotebookProgress:
    """A progress bar for `load`: `load("logs/", progress=NotebookProgress())`.

    It appears if the work takes a while, and is gone when the work is done. Outside of IPython it
    shows nothing.
    """

    def __init__(self, doing: str = "reading", after_s: float = SHOW_AFTER_S) -> None:
        self._doing = doing
        self._next = time.monotonic() + after_s
        self._handle: Any = None

    def __call__(self, done: int, total: int) -> None:
        if "IPython" not in sys.modules:
            return
        if done >= total:
            return self._show("") if self._handle is not None else None
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + EVERY_S
            bar = f'<progress value="{done}" max="{total}"></progress>'
            self._show(f"{bar} {self._doing}, {done / total:.0%}")

    def _show(self, html: str) -> None:
        # Not all of IPython has types.
        shown: Any = import_module("IPython.display")
        if self._handle is None:
            self._handle = shown.display(shown.HTML(html), display_id=True)
        else:
            self._handle.update(shown.HTML(html))

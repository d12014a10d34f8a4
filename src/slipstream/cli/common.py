"""What commands share: their arguments, loading with a progress bar, and printing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

    from slipstream.profile.profile import Profile

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="What JAX's profiler wrote (a folder, or .xplane.pb), an Nsight Systems .sqlite or "
        ".nsys-rep, or an nsys-jax .zip (or a folder of them).",
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="NAME", help="Which run of the folder to read.  [default: the newest]"
    ),
]
LinksOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="MACHINE",
        help="How the GPUs are connected, as in 4x8xH100.  [default: as the profile seems]",
    ),
]
SliceOption = Annotated[
    float | None,
    typer.Option(
        metavar="GBPS",
        min=0.001,
        help="Gbit/s that the network between TPU slices carries for a host, one direction.",
    ),
]
DumpsOption = Annotated[
    str | None,
    typer.Option(
        "--dumps",
        metavar="DIR",
        help="Programs that XLA dumped, for Nsight.  [default: those beside PATH]",
    ),
]
TopOption = Annotated[
    int | None,
    typer.Option(
        "--top", metavar="N", min=1, help="How many rows.  [default: a screenful; all with --json]"
    ),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print JSON, as docs/json.md describes it.")
]

PLAIN_WIDTH = 80
"""columns where the output is no terminal"""
MOST_WIDTH = 120
"""columns a wide terminal gets: longer lines are hard to read"""
PATIENCE_S = 2.0
"""how long a load may take before it shows a bar"""


def open_profile(path: str, run: str | None = None, dumps: str | None = None) -> Profile:
    """Loads a profile, with a bar on a terminal if that takes long."""
    from slipstream.sources.load import load

    with LoadBar() as bar:
        return load(path, run=run, progress=bar.update, dumps=dumps)


class LoadBar:
    """A progress bar on stderr: appears after `PATIENCE_S`, never where stderr is no terminal."""

    def __init__(self, doing: str = "reading", *, is_bytes: bool = True) -> None:
        self._doing, self._is_bytes = doing, is_bytes
        self._began = time.monotonic()
        self._progress: Progress | None = None

    def update(self, done_bytes: int, total_bytes: int) -> None:
        if self._progress is None:
            if time.monotonic() - self._began < PATIENCE_S or not sys.stderr.isatty():
                return
            self._progress = self._start()
        self._progress.update(self._progress.task_ids[0], completed=done_bytes, total=total_bytes)

    def _start(self) -> Progress:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            DownloadColumn,
            MofNCompleteColumn,
            Progress,
            TextColumn,
        )

        counts = DownloadColumn() if self._is_bytes else MofNCompleteColumn()
        columns = (TextColumn(self._doing), BarColumn(), counts)
        progress = Progress(*columns, console=Console(stderr=True), transient=True)
        progress.add_task(self._doing)
        progress.start()
        return progress

    def __enter__(self) -> LoadBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def show(text_of_width: Callable[[int], Text]) -> None:
    """Prints a rendered result: as wide as the terminal, plain and 80 columns elsewhere."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    width = min(console.width, MOST_WIDTH) if console.is_terminal else PLAIN_WIDTH
    _until_closed(lambda: console.print(text_of_width(width), soft_wrap=True))


def show_json(data: Any) -> None:
    """Prints JSON."""
    from slipstream.outputs.json import dumps

    echo(dumps(data))


def echo(text: str) -> None:
    """Prints text as it is."""
    _until_closed(lambda: print(text, flush=True))


def _until_closed(write: Callable[[], None]) -> None:
    try:
        write()
    except BrokenPipeError:
        # Whoever read this has seen enough (`| head`); Python's own flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None

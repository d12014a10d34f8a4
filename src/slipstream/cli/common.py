"""What commands share: arguments, loading with a progress bar, and printing."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.outputs.formatting import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

    from slipstream.profile.profile import Profile

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Profile: a folder or .xplane.pb written by JAX's profiler, an Nsight Systems "
        ".sqlite or .nsys-rep, or an nsys-jax .zip (or a folder of them).",
    ),
]
RunOption = Annotated[
    str | None,
    typer.Option(
        "--run", metavar="NAME", help="Run to read, in a folder of runs.  [default: the newest]"
    ),
]
MachineOption = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="MACHINE",
        help="Machine the profile was recorded on: 4x8xH100.  [default: guessed from it]",
    ),
]
SliceBandwidthOption = Annotated[
    float | None,
    typer.Option(
        metavar="GBPS",
        min=0.001,
        help="Bandwidth between TPU slices in Gbit/s, per host and direction.",
    ),
]
DumpsOption = Annotated[
    str | None,
    typer.Option(
        "--dumps",
        metavar="DIR",
        help="Folder of programs dumped by XLA, for Nsight profiles.  [default: beside PATH]",
    ),
]
TopOption = Annotated[
    int | None,
    typer.Option(
        "--top",
        metavar="N",
        min=1,
        help="Number of rows to print.  [default: a screenful; all with --json]",
    ),
]
WholeOption = Annotated[
    bool, typer.Option("--all", help="Count the whole recording, not only the steps.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON (docs/json.md).")]

ABOUT_FILES = ("not-read", "same-device", "different-programs")
"""codes of warnings about which files were read"""
PLAIN_WIDTH = 80
"""columns where the output is not a terminal"""
MAX_WIDTH = 120
"""columns used of a wide terminal: longer lines are hard to read"""
SHOW_AFTER_S = 2.0
"""how long work may take before progress is shown"""


def open_profile(
    path: str, run: str | None = None, dumps: str | None = None, shows_warnings: bool = False
) -> Profile:
    """Load a profile; on a terminal, show a progress bar if it takes long.

    Doubts about which files were read go to stderr, unless the command shows all warnings.
    """
    from slipstream.sources.load import load

    with ProgressBar() as bar:
        profile = load(path, run=run, progress=bar.update, dumps=dumps)
    doubts = [one.message for one in profile.warnings if one.code in ABOUT_FILES]
    if doubts and not shows_warnings:
        from slipstream.outputs.formatting import printable

        for text in doubts:
            print(f"warning: {printable(text)}", file=sys.stderr)
    return profile


class ProgressBar:
    """A progress bar on stderr, shown after `SHOW_AFTER_S` and only on a terminal."""

    def __init__(self, doing: str = "reading", *, is_bytes: bool = True) -> None:
        self._doing, self._is_bytes = doing, is_bytes
        self._began = time.monotonic()
        self._progress: Progress | None = None

    def update(self, done_bytes: int, total_bytes: int) -> None:
        if self._progress is None:
            if time.monotonic() - self._began < SHOW_AFTER_S or not sys.stderr.isatty():
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

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def show(text_of_width: Callable[[int], Text], *outputs: str | None) -> None:
    """Print a rendered result: as wide as the terminal; elsewhere plain, in 80 columns.

    `outputs` are what the command wrote: if it went to stdout, this goes to stderr.
    """
    from rich.console import Console

    is_aside = _is_aside(outputs)
    console = Console(highlight=False, markup=False, emoji=False, stderr=is_aside)
    width = min(console.width, MAX_WIDTH) if console.is_terminal else PLAIN_WIDTH
    text = text_of_width(width)
    text.plain = printable_lines(text.plain)
    _until_closed(lambda: console.print(text, soft_wrap=True))


def show_json(data: Any, *outputs: str | None) -> None:
    """Print JSON; see `show` for `outputs`."""
    from slipstream.outputs.json import dumps

    echo(dumps(data), *outputs)


def echo(text: str, *outputs: str | None) -> None:
    """Print text, without control characters; see `show` for `outputs`."""
    if _is_aside(outputs):
        return note(text)
    _until_closed(lambda: print(printable_lines(text), flush=True))


def note(text: str) -> None:
    """Print text on stderr, without control characters."""
    print(printable_lines(text), file=sys.stderr, flush=True)


def _is_aside(outputs: Sequence[str | None]) -> bool:
    """Whether stdout is kept for what a command wrote, as with `-o /dev/stdout`."""
    if not any(outputs):
        return False
    from slipstream.writing import is_stdout

    return any(output is not None and is_stdout(output) for output in outputs)


def _until_closed(write: Callable[[], None]) -> None:
    try:
        write()
    except BrokenPipeError:
        # The reader has closed the pipe (`| head`); Python's own flush at exit must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None

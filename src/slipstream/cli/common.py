"""What commands share: arguments, loading with a progress bar, and printing."""

from __future__ import annotations

import inspect
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.errors import BadInput
from slipstream.outputs.formatting import printable_lines

if TYPE_CHECKING:
    from rich.progress import Progress
    from rich.text import Text

    from slipstream.outputs.terminal.table_options import TableOptions
    from slipstream.profile.profile import Profile

PathArgument = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="Profile: a folder or .xplane.pb written by JAX's profiler, an Nsight Systems "
        ".sqlite or .nsys-rep, or an nsys-jax .zip (or a folder of them); or its URL.",
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
FlatOption = Annotated[
    bool, typer.Option("--flat", help="List equal ops of unrolled layers one by one.")
]
TABLE_OPTIONS = {
    "sort": Annotated[
        str | None,
        typer.Option(
            "--sort", metavar="COLUMN", help="Sort tables by a column; COLUMN:asc turns it round."
        ),
    ],
    "filter": Annotated[
        str | None,
        typer.Option("--filter", metavar="REGEX", help="Show rows that match, ignoring case."),
    ],
    "columns": Annotated[
        str | None,
        typer.Option(
            "--columns", metavar="A,B", help="Show these columns; an unknown one lists them all."
        ),
    ],
    "wide": Annotated[
        bool, typer.Option("--wide", help="Cut nothing, however wide the tables get.")
    ],
}
"""options of every command that prints tables"""

ABOUT_FILES = ("not-read", "same-device", "different-programs")
"""codes of warnings about which files were read"""
PLAIN_WIDTH = 80
"""columns where the output is not a terminal and COLUMNS is not set"""
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


@contextmanager
def fetching() -> Iterator[None]:
    """On a terminal, show how much of a file has come from its bucket, if that takes long."""
    from slipstream.remote.cache import report

    bar: ProgressBar | None = None

    def told(url: str, done_bytes: int, total_bytes: int) -> None:
        nonlocal bar
        bar = bar or ProgressBar("fetching")
        bar.update(done_bytes, total_bytes)
        if done_bytes >= total_bytes:
            bar.__exit__()
            bar = None

    report.append(told)
    try:
        yield
    finally:
        report.remove(told)
        if bar is not None:
            bar.__exit__()


def show(text_of_width: Callable[[int], Text], *outputs: str | None) -> None:
    """Print a rendered result: as wide as the terminal; elsewhere plain, in COLUMNS or 80 columns.

    `outputs` are what the command wrote: if it went to stdout, this goes to stderr.
    """
    from rich.console import Console

    from slipstream.outputs.terminal.table_options import arranged_tables, check_columns

    is_aside = _is_aside(outputs)
    console = Console(highlight=False, markup=False, emoji=False, stderr=is_aside)
    is_sized = console.is_terminal or os.environ.get("COLUMNS", "").isdigit()
    width = console.width if is_sized else PLAIN_WIDTH
    text = arranged_tables(lambda: text_of_width(width))
    check_columns()
    text.plain = printable_lines(text.plain)
    _until_closed(lambda: console.print(text, soft_wrap=True))


def with_tables(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose tables the user can arrange: adds `TABLE_OPTIONS` to its parameters."""
    own = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=False if name == "wide" else None,
            annotation=kind,
        )
        for name, kind in TABLE_OPTIONS.items()
    ]

    @wraps(command)
    def arranged(*arguments: Any, **values: Any) -> None:
        given = {name: values.pop(name, None) for name in TABLE_OPTIONS}
        plain = [f"--{name}" for name in ("json", "csv") if values.get(name)]
        options = _table_options(given, plain)
        if options is None:
            return command(*arguments, **values)
        from slipstream.outputs.terminal.table_options import arranging

        with arranging(options):
            command(*arguments, **values)

    parameters = [*own.parameters.values(), *added]
    signature = own.replace(parameters=parameters)
    arranged.__signature__ = signature  # type: ignore[attr-defined]
    arranged.__annotations__ = {one.name: one.annotation for one in parameters}
    return arranged


def _table_options(given: dict[str, Any], plain: Sequence[str]) -> TableOptions | None:
    """What was asked for; BadInput if `plain` options ask for an output without tables."""
    named = [f"--{name}" for name, value in given.items() if value]
    if not named:
        return None
    if plain:
        raise BadInput(
            f"{named[0]} arranges tables, and {plain[0]} prints none; leave one of them out"
        )
    from slipstream.outputs.terminal.table_options import table_options

    return table_options(given["sort"], given["filter"], given["columns"], bool(given["wide"]))


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


def save_comment(path: str, text: str) -> None:
    """Write the comment of a pull request."""
    from slipstream.writing import atomic_write

    with atomic_write(path) as file:
        file.write_bytes(text.encode("utf-8", "replace"))  # names of files may be any bytes
    note(f"comparison: {path}")


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

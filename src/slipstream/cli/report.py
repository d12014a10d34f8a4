"""`slipstream report`: a profile as one page of HTML that people can send to each other."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import (
    PATIENCE_S,
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    echo,
    open_profile,
    show_json,
)

if TYPE_CHECKING:
    from slipstream.outputs.html.report_data import Progress


def report(
    path: PathArgument,
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="FILE", help="The page to write.")
    ] = "report.html",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="Another profile, the one before: the page says what changed."
        ),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Writes a profile as one page of HTML: every analysis, findings, and a timeline.

    The page is one file that holds all it shows and asks nothing of any network. The step of
    median length is there in full detail, the rest of the recording in sums.
    """
    # Loaded while the profile is being read.
    from slipstream.diagnosis.diagnose import diagnose
    from slipstream.outputs.html.report import report_json, write_report
    from slipstream.outputs.html.report_data import results

    profile = open_profile(path, run, dumps)
    other = open_profile(against) if against is not None else None
    with stages() as progress:
        progress("findings")
        found = results(
            profile,
            Path(path).name,
            other,
            Path(against).name if against is not None else "",
            diagnose(profile),
            progress=progress,
        )
        size = write_report(found, output)
    if json:
        return show_json(report_json(found, output, size))
    from slipstream.units import format_bytes

    echo(f"wrote {output}: {len(profile.events):,} events, {format_bytes(size)}")


@contextmanager
def stages() -> Iterator[Progress]:
    """Says what is being done on a terminal's last line, once that takes long."""
    began, status = time.monotonic(), None

    def update(stage: str) -> None:
        nonlocal status
        if status is None and sys.stderr.isatty() and time.monotonic() - began > PATIENCE_S:
            from rich.console import Console

            status = Console(stderr=True).status("")
            status.start()
        if status is not None:
            status.update(stage)

    try:
        yield update
    finally:
        if status is not None:
            status.stop()

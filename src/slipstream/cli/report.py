"""`slipstream report`: a profile as one HTML file to share."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import (
    SHOW_AFTER_S,
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
        str, typer.Option("--output", "-o", metavar="FILE", help="File to write.")
    ] = "report.html",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER", help="Earlier profile to compare with; the page shows what changed."
        ),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Write an HTML report: findings, every analysis, a timeline.

    The report is one self-contained file that needs no network. It shows the step of median
    length in full detail, and the rest of the recording in totals.
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
            against=other,
            against_name=Path(against).name if against is not None else "",
            diagnosis=diagnose(profile),
            progress=progress,
        )
        size = write_report(found, output)
    if json:
        return show_json(report_json(found, output, size), output)
    from slipstream.units import format_bytes

    text = f"wrote {output}: {len(profile.events):,} events, {format_bytes(size)}"
    echo(text, output)


@contextmanager
def stages() -> Iterator[Progress]:
    """Show the current stage on a terminal once the work takes long."""
    began, status = time.monotonic(), None

    def update(stage: str) -> None:
        nonlocal status
        if status is None and sys.stderr.isatty() and time.monotonic() - began > SHOW_AFTER_S:
            from rich.console import Console

            status = Console(stderr=True).status("")
            status.start()
        if status is not None:
            from rich.text import Text

            status.update(Text(stage))

    try:
        yield update
    finally:
        if status is not None:
            status.stop()

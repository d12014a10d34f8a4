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
from slipstream.cli.profiles.fleets import (
    FleetOption,
    HostOption,
    JobsOption,
    RayOption,
    in_detail,
    open_fleet,
)

if TYPE_CHECKING:
    from slipstream.outputs.html.report_data import Progress

from slipstream.errors import BadInput


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
    redact: Annotated[
        bool,
        typer.Option("--redact", help="Replace names of files, scopes, functions and hosts."),
    ] = False,
    run: RunOption = None,
    dumps: DumpsOption = None,
    fleet: FleetOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    host: HostOption = None,
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

    hosts = open_fleet(path, run, dumps, fleet, jobs, ray)
    if hosts is not None and redact:
        raise BadInput(
            "--redact hides the names of one recording, and this run is read host by host; "
            "expected the recording of one host, or --no-fleet"
        )
    if hosts is not None:
        profile, context = in_detail(hosts, host, dumps)
    else:
        profile, context = open_profile(path, run, dumps), None
    other = open_profile(against) if against is not None else None
    names = Path(path).name, Path(against).name if against is not None else ""
    if redact:
        from slipstream.profile.redacted import Names, redacted

        chosen = Names()
        profile, names = (
            redacted(profile, chosen),
            ("recording", "earlier recording" if other else ""),
        )
        other = redacted(other, chosen) if other is not None else None
    with stages() as progress:
        progress("findings")
        found = results(
            profile,
            names[0],
            against=other,
            against_name=names[1],
            diagnosis=diagnose(profile, fleet=context),
            fleet=context,
            progress=progress,
        )
        size = write_report(found, output)
    if json:
        return show_json(report_json(found, output, size), output)
    from slipstream.units import format_bytes

    text = f"wrote {output}: {found.events:,} events, {format_bytes(size)}"
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

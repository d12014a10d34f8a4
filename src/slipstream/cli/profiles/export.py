"""`slipstream export`: write a profile for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import DumpsOption, PathArgument, RunOption, echo, open_profile
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.remote.paths import any_path, local_copy

SUFFIXES = {
    ".pftrace": "perfetto",
    ".perfetto-trace": "perfetto",
    ".parquet": "parquet",
    ".csv": "csv",
}
FORMATS = ("perfetto", "parquet", "csv")


def export(
    path: PathArgument,
    output: Annotated[str, typer.Option("--output", "-o", metavar="FILE", help="File to write.")],
    format_: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="perfetto, parquet or csv.  "
            "[default: by FILE's suffix: .pftrace, .perfetto-trace, .parquet or .csv]",
        ),
    ] = None,
    table: Annotated[
        str,
        typer.Option(
            metavar="TABLE",
            help="Table to write as Parquet or CSV: events, host_events or transfers.",
        ),
    ] = "events",
    run: RunOption = None,
    dumps: DumpsOption = None,
    open_: Annotated[
        bool, typer.Option("--open", help="Open the Perfetto trace in a browser.")
    ] = False,
) -> None:
    """Export a profile to Perfetto, Parquet or CSV.

    A Perfetto trace holds device and host events, steps, counters, and arrows from launches and
    asynchronous starts; open it at ui.perfetto.dev. Parquet and CSV files hold one table with a
    row for each event.
    """
    chosen = format_ or _format_of(output)
    if chosen not in FORMATS:
        raise BadInput(no_such("format", chosen, FORMATS))
    from slipstream.outputs import tables
    from slipstream.outputs.perfetto import trace as perfetto
    from slipstream.units import format_bytes

    if table not in tables.TABLES:
        raise BadInput(no_such("table", table, tables.TABLES))
    if chosen == "perfetto" and table != "events":
        raise BadInput(
            "a Perfetto trace always holds events and host events; --table needs parquet or csv"
        )
    if open_ and chosen != "perfetto":
        raise BadInput(f"--open is for Perfetto traces; {output} is {chosen}")
    if open_ and any_path(output).exists() and not any_path(output).is_file():
        raise BadInput(f"--open needs a file; {output} is none; choose another: -o trace.pftrace")
    profile = open_profile(path, run, dumps)
    if chosen == "perfetto":
        perfetto.write_perfetto(profile, output)
        count = len(profile.events) + len(profile.host_events)
    else:
        write = tables.write_parquet if chosen == "parquet" else tables.write_csv
        write(profile, output, table)
        count = len(getattr(profile, table))
    written = any_path(output)
    size = f", {format_bytes(written.stat().st_size)}" if written.is_file() else ""
    echo(f"wrote {output}: {count:,} events{size}", output)
    if chosen == "perfetto":
        from slipstream.cli.profiles.perfetto_ui import PAGE, serve_trace

        if open_:
            serve_trace(local_copy(written), echo)
        else:
            hint = f"open it at {PAGE} (the file stays in your browser), or add --open"
            echo(hint, output)


def _format_of(output: str) -> str:
    suffix = Path(output).suffix
    if suffix not in SUFFIXES:
        raise BadInput(
            f"the suffix of {output} names no format; expected {', '.join(SUFFIXES)}, "
            f"or add --format with one of: {', '.join(FORMATS)}"
        )
    return SUFFIXES[suffix]

"""`slipstream query`: query a profile with SQL."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    echo,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.errors import BadInput


@with_tables
def query(
    path: PathArgument,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="Query in DuckDB's SQL.")],
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, with a header.")] = False,
) -> None:
    """Query a profile with SQL.

    Tables: events, host_events, transfers, ops, lanes, devices, programs, instructions. A query
    can read the profile and nothing else.
    """
    if json and csv:
        raise BadInput("--json and --csv can't be combined; choose one")
    from slipstream.outputs import query_rows
    from slipstream.outputs.sql import query as ask

    found = ask(open_profile(path, run, dumps), sql)
    if json:
        return show_json(query_rows.rows_json(found))
    if csv:
        return echo(query_rows.rows_csv(found))
    show(lambda width: query_rows.render_rows(found, width))

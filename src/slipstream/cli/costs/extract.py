"""`slipstream costs PROFILE -o OUT`: extract costs from a profile."""

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
    show_json,
)


def extract(
    path: PathArgument,
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="File (.pb or .pbtxt), or a folder for XLA to search.",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="Statistic: typical, percentile:N, max-communication or jax (docs/costs.md).",
        ),
    ] = "typical",
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Extract instruction costs from a profile, for XLA's scheduler.

    A manifest (.json) beside each file records where the costs come from. A file that would match
    no instruction is not written.
    """
    profile = open_profile(path, run, dumps)
    from slipstream.costs.coverage import check_profile
    from slipstream.costs.extract import extract_costs

    table = extract_costs(profile, policy)
    files = table.write(output)
    known = any(program.looked_up is not None for program in table.programs)
    coverage = check_profile(table, profile) if known else None
    if json:
        from slipstream.outputs.terminal.costs import table_json

        return show_json({"files": files, **table_json(table, coverage)})
    from slipstream.outputs.terminal.costs import extracted_lines

    echo("\n".join(extracted_lines(table, coverage, files)))

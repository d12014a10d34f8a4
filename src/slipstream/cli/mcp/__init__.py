"""`slipstream mcp`: the commands that only read, as tools for agents."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.errors import missing_extra


def mcp(
    allow_run: Annotated[
        bool,
        typer.Option(
            "--allow-run",
            help="Let predict run the Python of FILE.py:FUNCTION and pass flags to XLA.",
        ),
    ] = False,
) -> None:
    """Serve commands as tools for agents (MCP).

    Speaks the Model Context Protocol on stdin and stdout. Each tool is a command that only reads,
    and returns what it prints with --json. Without --allow-run, no tool runs a user's code, trains
    or writes files.
    """
    try:
        from slipstream.cli.mcp.server import serve
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        raise missing_extra("mcp", "mcp", "slipstream mcp") from None
    serve(allow_run)

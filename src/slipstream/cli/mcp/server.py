"""The MCP server: each call is a `slipstream` process of its own.

So a call prints exactly what the command does, can be cancelled, and can't harm the server.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import anyio
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp_types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    TextContent,
    Tool,
    ToolAnnotations,
)

from slipstream.cli.mcp.tools import CommandTool, command_tools
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

INSTRUCTIONS = (
    "Slipstream reads profiles of JAX programs on GPUs and TPUs, and predicts steps. Begin with "
    "summary and diagnose on a profile's path. Times are microseconds (_us), shares are 0 to 1."
)
# Without -P, modules in the working folder could take the place of Python's own.
PROGRAM = (sys.executable, "-P", "-m", "slipstream")


def serve(allow_run: bool) -> None:
    """Answer on stdin and stdout until the client leaves."""
    anyio.run(_serve, command_tools(allow_run))


async def _serve(tools: Mapping[str, CommandTool]) -> None:
    server = _server(tools)
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())


def _server(tools: Mapping[str, CommandTool]) -> Server[Any]:
    async def list_tools(context: Any, params: Any) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in tools.values()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        try:
            if params.name not in tools:
                raise BadInput(no_such("tool", params.name, tools))
            line = tools[params.name].command_line(params.arguments or {})
        except BadInput as error:
            return _failed(str(error))
        done = await anyio.run_process([*PROGRAM, *line], stdin=subprocess.DEVNULL, check=False)
        return outcome(done.returncode, done.stdout.decode(), done.stderr.decode(errors="replace"))

    return Server(
        "slipstream",
        version=_version(),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _described(tool: CommandTool) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.input_schema,
        annotations=ToolAnnotations(read_only_hint=not tool.may_run, open_world_hint=tool.may_run),
    )


def outcome(code: int, printed: str, said: str) -> CallToolResult:
    """What a command printed as a tool's result; a failed check still has its findings."""
    if not printed.strip():
        return _failed(said.strip().removeprefix("error: ") or f"it ended with exit code {code}")
    data = json.loads(printed)
    # A tool's result is an object; `query` prints a list of rows.
    result = data if isinstance(data, dict) else {"rows": data}
    texts = [json.dumps(result, ensure_ascii=False, separators=(",", ":"))]
    if said.strip():
        texts.append(said.strip())
    return CallToolResult(content=_content(texts), structured_content=result)


def _failed(text: str) -> CallToolResult:
    return CallToolResult(content=_content([text]), is_error=True)


def _content(texts: Sequence[str]) -> list[Any]:
    return [TextContent(type="text", text=text) for text in texts]


def _version() -> str:
    try:
        return version("slipstream")
    except PackageNotFoundError:
        return ""

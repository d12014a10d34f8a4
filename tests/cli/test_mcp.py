"""`slipstream mcp`: a real server process, asked by the SDK's own client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import pytest
from jsonschema import Draft202012Validator
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client
from typer.testing import CliRunner

from json_contract import check
from slipstream.cli.main import app
from slipstream.cli.mcp.server import outcome
from slipstream.cli.mcp.tools import COMMANDS, command_tools
from slipstream.errors import BadInput

DATA = Path(__file__).parents[1] / "data"
PROFILE = str(DATA / "off_default.xplane.pb.gz")


def asked(questions: Callable[[ClientSession], Awaitable[Any]], *options: str, cwd: Any = None):
    """What `questions` returns of a session with a server of its own."""

    async def session() -> Any:
        server = StdioServerParameters(
            command=sys.executable,
            args=["-P", "-m", "slipstream", "mcp", *options],
            env=dict(os.environ),
            cwd=cwd,
        )
        with open(os.devnull, "w") as silence:
            async with (
                stdio_client(server, errlog=silence) as (reading, writing),
                ClientSession(reading, writing) as client,
            ):
                await client.initialize()
                return await questions(client)

    return anyio.run(session)


def cli_json(*arguments: str) -> Any:
    shown = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
    return json.loads(shown.stdout)


def test_tools_and_results_are_the_commands(tmp_path):
    """One session, because starting a server takes a while."""
    setting = tmp_path / "job.sh"
    setting.write_text("export XLA_FLAGS=--xla_gpu_no_such_flag=true\n")

    async def questions(client: ClientSession) -> dict[str, Any]:
        call = client.call_tool
        return {
            "tools": (await client.list_tools()).tools,
            "ops": await call("ops", {"path": PROFILE, "top": 2, "by": "phase"}),
            "default": await call("ops", {"path": PROFILE}),
            "query": await call("query", {"path": PROFILE, "sql": "select 1 as one"}),
            "lint": await call("flags_lint", {"paths": [str(setting)], "jaxlib": "0.10.0"}),
            "explain": await call("flags_explain", {"name": "xla_gpu_autotune_level"}),
            "absent": await call("summary", {"path": str(tmp_path / "none.xplane.pb")}),
            "unknown": await call("ops", {"pth": PROFILE}),
            "no tool": await call("run", {"command": ["python", "train.py"]}),
            "usage": await call("ops", {"path": PROFILE, "top": 0}),
            "option": await call("ops", {"path": "--help"}),
        }

    found = asked(questions)

    tools = {tool.name: tool for tool in found["tools"]}
    assert list(tools) == ["_".join(command.split()) for command in COMMANDS]
    assert all(tool.annotations.read_only_hint for tool in tools.values())
    for tool in tools.values():
        Draft202012Validator.check_schema(tool.input_schema)

    assert found["ops"].structured_content == cli_json(
        "ops", PROFILE, "--top", "2", "--by", "phase"
    )
    assert json.loads(found["ops"].content[0].text) == found["ops"].structured_content
    assert len(found["default"].structured_content["ops"]) == 20
    assert found["query"].structured_content == {"rows": [{"one": 1}]}
    check("flags explain", json.dumps(found["explain"].structured_content))

    lint = found["lint"]
    assert (lint.is_error, lint.structured_content["findings"][0]["severity"]) == (False, "abort")
    assert "would abort the job" in lint.content[1].text

    failed = {name: found[name] for name in ("absent", "unknown", "no tool", "usage", "option")}
    assert all(one.is_error for one in failed.values())
    texts = {name: one.content[0].text for name, one in failed.items()}
    assert texts["absent"] == f"{tmp_path / 'none.xplane.pb'} does not exist"
    assert texts["unknown"].startswith("there is no argument of ops 'pth'; did you mean path?")
    assert texts["no tool"].startswith("there is no tool 'run'")
    assert "'--top'" in texts["usage"]
    # A value is never an option.
    assert texts["option"].startswith("--help does not exist")


def test_without_allowance_nothing_runs(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef build(devices): ...\n")
    # A module of the working folder must not take the place of Python's own.
    (tmp_path / "dataclasses.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")

    async def questions(client: ClientSession) -> list[Any]:
        return [
            await client.call_tool("predict", {"target": f"{script}:build"}),
            await client.call_tool(
                "predict", {"target": str(script), "baseline": f"{script}:build"}
            ),
            await client.call_tool("predict", {"target": str(script), "flags": "--xla_dump_to=x"}),
            await client.call_tool("flags_lint", {"paths": [str(script)], "fix": True}),
            await client.call_tool("machines_show", {"spec": "8xH200"}),
        ]

    *refused, shown = asked(questions, cwd=tmp_path)
    assert all(one.is_error for one in refused)
    assert all("slipstream mcp --allow-run" in one.content[0].text for one in refused[:2])
    assert refused[2].content[0].text.startswith("there is no argument of predict 'flags'")
    assert refused[3].content[0].text.startswith("there is no argument of flags_lint 'fix'")
    assert shown.structured_content["devices"] == 8
    assert not (tmp_path / "ran").exists()


def processes(mark: str) -> int:
    """How many processes have this text in their command line."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it ended meanwhile
            found += mark.encode() in path.read_bytes()
    return found


def test_a_cancelled_call_ends_its_process(tmp_path):
    mark = f"-- {tmp_path}"
    endless = f"select count(*) from range(1000000000000) {mark}"

    async def until(count: int) -> None:
        while processes(mark) != count:
            await anyio.sleep(0.1)

    async def questions(client: ClientSession) -> Any:
        async with anyio.create_task_group() as calls:
            calls.start_soon(client.call_tool, "query", {"path": PROFILE, "sql": endless})
            await until(1)
            calls.cancel_scope.cancel()
        await until(0)
        return await client.call_tool("machines_show", {"spec": "8xH200"})

    assert asked(questions).structured_content["devices"] == 8


def test_no_tool_has_an_option_that_writes_or_runs():
    writing = {"output", "out", "html", "timeline", "fix", "command", "json"}
    for tool in command_tools(allow_run=True).values():
        names = {one["name"] for one in tool.parameters}
        assert not names & writing, tool.name
    assert [one.name for one in command_tools(True).values() if one.may_run] == ["predict"]
    assert not any(one.may_run for one in command_tools().values())
    assert "flags" in {one["name"] for one in command_tools(True)["predict"].parameters}
    assert "flags" not in {one["name"] for one in command_tools()["predict"].parameters}


def test_command_lines():
    tools = command_tools(allow_run=True)
    line = tools["predict"].command_line(
        {"target": "train.py:build", "on": "8xH100", "command_buffers": False, "flags": "--x=1"}
    )
    assert line == [
        *("predict", "--on=8xH100", "--flags=--x=1", "--no-command-buffers", "--json", "--"),
        "train.py:build",
    ]
    assert tools["flags_lint"].command_line({"paths": ["a.sh", "b.sh"]})[-3:] == [
        "--",
        "a.sh",
        "b.sh",
    ]


@pytest.mark.parametrize(
    ("given", "seen"),
    [
        ({"path": ["a", "b"]}, "path is a list; expected one value"),
        ({"path": {"a": 1}}, "expected text"),
        ({"path": "a\0b"}, "expected text"),
        ({"path": "a", "whole": "yes"}, "whole is 'yes'; expected true or false"),
    ],
)
def test_wrong_values_are_refused(given, seen):
    with pytest.raises(BadInput, match=seen):
        command_tools()["ops"].command_line(given)


def test_a_command_that_says_nothing_has_failed():
    assert outcome(137, "", "").content[0].text == "it ended with exit code 137"


def test_without_the_package_it_says_what_to_install():
    script = (
        "import sys; sys.modules['mcp'] = None; sys.argv = ['slipstream', 'mcp']\n"
        "from slipstream.cli.main import _run\n"
        "sys.exit(_run())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (3, "")
    assert "pip install 'slipstream[mcp]'" in done.stderr

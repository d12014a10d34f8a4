"""Which commands are tools, what they take, and the command line of a call."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer.main

from slipstream.cli.app import build_app
from slipstream.cli.command_tree import command_at, command_tree
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

COMMANDS = (
    "summary", "ops", "overlap", "collectives", "slack", "gaps", "roofline", "memory", "network",
    "hosts", "programs", "diff", "diagnose", "query", "simulate", "predict", "doctor",
    "machines list", "machines show", "flags list", "flags explain", "flags diff", "flags lint",
    "flags preset", "flags thresholds", "costs show", "costs check", "costs diff",
)  # fmt: skip
"""commands that only read"""
LEFT_OUT = (
    "json", "csv", "form", "list_all", "waits", "html", "timeline", "fix", "output", "markdown",
    "sort", "filter", "columns", "wide", "flat",
)  # fmt: skip
"""parameters that write files, or concern text alone"""
RUNS = ("predict",)
"""the command whose target may be Python"""
TARGETS = ("target", "baseline")
"""its parameters that may be Python"""
NEED_ALLOWANCE = ("flags", "maxtext", "setting")
"""its parameters that may do more than read: flags can make XLA write files or start programs, and
MaxText runs"""
DEFAULT_TOP = 20
"""rows, unless the agent asks for more: --json alone prints all"""
JSON_TYPES = {"text": "string", "choice": "string"}
"""by our name of a type; the others are JSON's own"""


@dataclass(frozen=True)
class CommandTool:
    """One command as a tool."""

    command: tuple[str, ...]
    description: str
    parameters: tuple[Mapping[str, Any], ...]
    """as in `--help --json`"""
    allow_run: bool

    @property
    def name(self) -> str:
        return "_".join(self.command)

    @property
    def may_run(self) -> bool:
        """Whether a call may run a user's code."""
        return self.allow_run and self.command == RUNS

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON Schema of its arguments."""
        return {
            "type": "object",
            "properties": {one["name"]: _schema(one) for one in self.parameters},
            "required": [one["name"] for one in self.parameters if one["required"]],
            "additionalProperties": False,
        }

    def command_line(self, given: Mapping[str, Any]) -> list[str]:
        """What to type after `slipstream`; values can't be taken for options."""
        known = [one["name"] for one in self.parameters]
        for name in given:
            if name not in known:
                raise BadInput(no_such(f"argument of {self.name}", name, known))
        self._check_target(given)
        options, arguments = [], []
        for one in self.parameters:
            value = given.get(one["name"])
            if value is None and one["name"] == "top":
                value = DEFAULT_TOP
            if value is None:
                continue
            if one["kind"] == "argument":
                arguments += _texts(one, value)
            elif one["takes_value"]:
                options += [f"{one['flags'][0]}={text}" for text in _texts(one, value)]
            else:
                options += _switch(one, value)
        return [*self.command, *options, "--json", "--", *arguments]

    def _check_target(self, given: Mapping[str, Any]) -> None:
        targets = [given[name] for name in TARGETS if given.get(name) is not None]
        others = [one for one in targets if not os.path.isfile(str(one))]
        if self.allow_run or not others:
            return
        raise BadInput(
            f"{others[0]} is not a file with a program, and this server runs no Python; expected "
            "StableHLO (.mlir) or HLO (.hlo.pb, .txt). To predict FILE.py:FUNCTION or a run's "
            "folder, the user must start the server with: slipstream mcp --allow-run"
        )


def command_tools(allow_run: bool = False) -> dict[str, CommandTool]:
    """All tools, by name."""
    root = typer.main.get_command(build_app(dict.fromkeys(one.split()[0] for one in COMMANDS)))
    made = [_tool(root, tuple(one.split()), allow_run) for one in COMMANDS]
    return {tool.name: tool for tool in made}


def _tool(root: Any, command: tuple[str, ...], allow_run: bool) -> CommandTool:
    node = command_tree(command_at(root, command), ["slipstream", *command])
    hidden = LEFT_OUT if allow_run or command != RUNS else (*LEFT_OUT, *NEED_ALLOWANCE)
    parameters = tuple(one for one in node["parameters"] if one["name"] not in hidden)
    return CommandTool(command, node["help"], parameters, allow_run)


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    kind = parameter["type"]
    one: dict[str, Any] = {"type": JSON_TYPES.get(kind, kind)}
    if parameter["choices"]:
        one["enum"] = parameter["choices"]
    one |= {key: parameter[key] for key in ("minimum", "maximum") if parameter[key] is not None}
    schema = {"type": "array", "items": one} if parameter["repeatable"] else one
    is_top = parameter["name"] == "top"
    default = DEFAULT_TOP if is_top else parameter["default"]
    text = "Number of rows to return." if is_top else parameter["help"]
    described = {"description": text} if text else {}
    return schema | described | ({} if default is None else {"default": default})


def _texts(parameter: Mapping[str, Any], value: Any) -> list[str]:
    """The values of a parameter as the command line takes them."""
    several: Sequence[Any] = value if isinstance(value, list) else [value]
    if isinstance(value, list) and not parameter["repeatable"]:
        raise BadInput(f"{parameter['name']} is a list; expected one value")
    for one in several:
        if isinstance(one, bool) or not isinstance(one, str | int | float) or "\0" in str(one):
            raise BadInput(f"{parameter['name']} is {one!r}; expected {parameter['type']}")
    return [str(one) for one in several]


def _switch(parameter: Mapping[str, Any], value: Any) -> list[str]:
    if not isinstance(value, bool):
        raise BadInput(f"{parameter['name']} is {value!r}; expected true or false")
    flags = parameter["flags"] if value else parameter["off_flags"]
    return list(flags[:1])

"""`--help --json`: the command line as data, equal to what Typer parses and prints."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Literal

import pytest
import typer.main
from typer.testing import CliRunner

from slipstream.cli.command_tree import asked_command, command_at, command_tree
from slipstream.cli.main import COMMANDS, app


def tree(*names: str) -> dict[str, Any]:
    shown = CliRunner().invoke(app, [*names, "--help", "--json"], catch_exceptions=False)
    assert shown.exit_code == 0
    return json.loads(shown.stdout)


def commands(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for below in node["commands"]:
        yield from commands(below)


WHOLE = tree()
ALL = {node["command"]: node for node in commands(WHOLE)}


def test_the_whole_command_line():
    assert [node["name"] for node in WHOLE["commands"]] == list(COMMANDS)
    assert [node["group"] for node in WHOLE["commands"]] == [one.group for one in COMMANDS.values()]
    assert ALL["slipstream plan"]["default"] == "start"
    assert [node["name"] for node in ALL["slipstream costs"]["commands"]][:2] == ["extract", "show"]


@pytest.mark.parametrize("command", ["ops", "flags", "flags lint", "export"])
def test_one_command_is_a_part_of_the_whole(command):
    assert tree(*command.split()) == ALL[f"slipstream {command}"]


def test_a_command_with_arguments_options_and_ranges():
    node = ALL["slipstream ops"]
    assert node["summary"] == "Show device time by instruction, scope, phase or source line."
    assert node["help"].splitlines()[2].startswith("The longest come first.")
    by_name = {one["name"]: one for one in node["parameters"]}
    own = ["path", "by", "depth", "flat", "top", "whole", "run", "dumps", "json"]
    assert list(by_name) == [*own, "sort", "filter", "columns", "wide"]
    assert by_name["top"] == {
        "name": "top",
        "kind": "option",
        "flags": ["--top"],
        "off_flags": [],
        "type": "integer",
        "takes_value": True,
        "required": False,
        "repeatable": False,
        "default": None,
        "choices": [],
        "minimum": 1,
        "maximum": None,
        "metavar": "N",
        "help": "Number of rows to print. [default: a screenful; all with --json]",
    }
    path = by_name["path"]
    assert (path["kind"], path["flags"], path["required"]) == ("argument", [], True)
    assert (by_name["by"]["default"], by_name["by"]["metavar"]) == ("instruction", "GROUPING")
    assert (by_name["whole"]["takes_value"], by_name["whole"]["flags"]) == (False, ["--all"])


def test_repeatable_arguments_and_flags_that_turn_off():
    by_name = {one["name"]: one for one in ALL["slipstream flags lint"]["parameters"]}
    assert (by_name["paths"]["repeatable"], by_name["paths"]["required"]) == (True, False)
    by_name = {one["name"]: one for one in ALL["slipstream predict"]["parameters"]}
    assert by_name["command_buffers"]["off_flags"] == ["--no-command-buffers"]


def test_every_type_is_one_of_the_contract():
    types = {one["type"] for node in ALL.values() for one in node["parameters"]}
    assert types <= {"text", "integer", "number", "boolean", "choice"}


def test_choices_are_listed():
    other = typer.Typer()

    @other.command()
    def paint(colour: Literal["red", "blue"] = "red") -> None: ...

    (colour,) = [
        one
        for one in command_tree(typer.main.get_command(other), ["paint"])["parameters"]
        if one["name"] == "colour"
    ]
    assert (colour["type"], colour["choices"], colour["default"]) == (
        "choice",
        ["red", "blue"],
        "red",
    )


@pytest.mark.parametrize("command", ["slipstream tune start", "slipstream flags", "slipstream run"])
def test_it_has_every_option_of_the_help(command):
    names = command.split()[1:]
    shown = CliRunner().invoke(app, [*names, "--help"]).output.partition("Options:")[2]
    in_help = set(re.findall(r"^  (?:-\w, )?(--[\w-]+)", shown, flags=re.MULTILINE)) - {"--help"}
    node = ALL[command]
    in_tree = {flag for one in node["parameters"] for flag in one["flags"]}
    assert in_help <= in_tree
    assert "--in-place" not in in_tree


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        ("--help --json", []),
        ("--json -h", []),
        ("flags lint --json --help", ["flags", "lint"]),
        ("ops --help", None),
        ("ops run --json", None),
        ("run -- python train.py --help --json", None),
        ("run --json -- python train.py --help", None),
        ("ops --top 3 --help --json", None),
    ],
)
def test_only_help_as_json_is_answered(typed, asked):
    assert asked_command(typed.split()) == asked


def test_an_unknown_command_is_an_error():
    assert command_at(typer.main.get_command(app), ["flags", "nope"]) is None
    shown = CliRunner().invoke(app, ["nope", "--help", "--json"])
    assert (shown.exit_code, shown.stdout) == (2, "")


def test_from_a_shell_nothing_heavy_is_imported():
    script = (
        "import sys; sys.argv = ['slipstream', 'flags', '--help', '--json']\n"
        "from slipstream.cli.main import _run\n"
        "assert _run() == 0\n"
        "print([m for m in ('numpy', 'numba', 'rich', 'jax') if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert json.loads(done.stdout) == ALL["slipstream flags"]
    assert done.stderr.strip() == "[]"

"""Text from files is shown as text: no command sends a terminal what it would obey."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import profile
from slipstream.cli import main as cli
from slipstream.cli.main import app
from slipstream.errors import SlipstreamError
from slipstream.outputs.tables import write_csv

EVIL = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egpj.\u2066\r\x00"
COMMANDS = (
    *("summary", "diagnose", "ops", "overlap", "collectives", "slack", "gaps", "roofline"),
    *("memory", "network", "hosts", "programs"),
)


def check_plain(text: str) -> None:
    found = {c for c in text if not c.isprintable() and c not in "\n\t"}
    assert not found, sorted(map(ascii, found))


def shown(*arguments: str | Path) -> str:
    """What a command prints, or the message of its error."""
    try:
        done = CliRunner().invoke(app, [str(a) for a in arguments], catch_exceptions=False)
    except SlipstreamError as error:
        return f"error: {error}"
    return done.output


@pytest.fixture(scope="module")
def recording(hostile) -> Path:
    """Its host, devices, programs, kernels and scopes are named with escape codes."""
    return hostile / "hostile.xplane.pb"


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("options", [(), ("--json",)], ids=["text", "json"])
def test_a_hostile_recording(recording, command, options):
    text = shown(command, recording, *options)
    assert len(text) > 40
    check_plain(text)


def test_other_commands_on_a_hostile_recording(recording, tmp_path):
    check_plain(shown("diff", recording, recording))
    check_plain(shown("costs", recording, "-o", tmp_path / "costs.pb"))
    check_plain(shown("costs", "show", tmp_path / "costs.pb"))
    check_plain(shown("report", recording, "-o", tmp_path / "page.html"))
    for form in ((), ("--csv",), ("--json",)):
        check_plain(shown("query", recording, "select * from events limit 100", *form))


def test_a_hostile_program(hostile):
    check_plain(shown("simulate", hostile / "esc.hlo", "--on", "2xH200"))
    check_plain(shown("simulate", hostile / "esc.hlo", "--on", "2xH200", "--json"))


@pytest.mark.parametrize(
    "path", ["esc_error.sqlite", f"{EVIL}.xplane.pb"], ids=["a damaged export", "a name"]
)
def test_an_error_message(hostile, path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["slipstream", "summary", str(hostile / path)])
    if "\0" in path:
        monkeypatch.setattr(sys, "argv", ["slipstream", "summary", path.replace("\0", "")])
    assert cli._run() == 2
    printed = capsys.readouterr().err
    assert printed.startswith("error: ")
    check_plain(printed)


def test_the_check_can_fail():
    with pytest.raises(AssertionError, match="x1b"):
        check_plain(EVIL)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t"])
def test_a_cell_is_never_a_formula(tmp_path, start):
    text = f"{start}HYPERLINK(1)"
    built = profile().host(text).device(text).execution_of().kernel(text, 10, lane=text)
    write_csv(built.build(), tmp_path / "events.csv")
    with (tmp_path / "events.csv").open(newline="") as file:
        (row,) = csv.DictReader(file)
    texts = {row[name] for name in ("name", "op", "lane_name", "device", "host")}
    assert f"'{text}" in texts and row["host"] == f"'{text}"
    assert not [value for value in row.values() if value.startswith(start)]
    assert re.fullmatch(r"\d+", row["duration_ps"])


def test_a_carriage_return_does_not_start_a_row(tmp_path):
    write_csv(profile().kernel("a\rb", 10).build(), tmp_path / "events.csv")
    with (tmp_path / "events.csv").open(newline="") as file:
        assert len(list(csv.reader(file))) == 2

"""The command as a whole: help, versions, exit codes, closed pipes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from slipstream.cli import main as cli
from slipstream.errors import BadInput, CheckFailed, Missing

HEAVY = ("numpy", "numba", "pandas", "pyarrow", "duckdb", "google.protobuf", "jax", "rich")


def slipstream(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def plain_help(*command: str) -> str:
    environment = {**os.environ, "COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    return slipstream(*command, "--help", env=environment).stdout


def listed(shown: str) -> dict[str, list[str]]:
    """The commands under each heading of a help text."""
    _, *sections = re.split(r"^(\S.*):$", shown, flags=re.MULTILINE)
    return {
        heading: re.findall(r"^  (\w+) ", body, flags=re.MULTILINE)
        for heading, body in zip(sections[::2], sections[1::2], strict=True)
        if heading != "Options"
    }


def test_help_names_every_command_by_its_purpose():
    assert listed(plain_help()) == {
        "Start here": ["run", "summary", "diagnose", "predict", "plan"],
        "Read a profile": [
            *("ops", "overlap", "collectives", "slack", "gaps", "roofline", "memory", "network"),
            *("hosts", "programs", "diff", "report", "serve"),
        ],
        "Without a GPU": ["compile", "simulate", "schedule", "machines"],
        "Settings": ["tune", "flags", "costs", "doctor"],
        "Other tools": ["export", "query", "mcp"],
    }
    assert sorted(sum(listed(plain_help()).values(), [])) == sorted(cli.COMMANDS)


@pytest.mark.parametrize("group", [(), ("costs",), ("flags",), ("machines",), ("tune",)])
def test_every_command_is_described_on_one_line(group):
    shown = plain_help(*group)
    body = shown[shown.index("Show this message and exit.") :].splitlines()[2:]
    rows = [line for line in body if line and not line.endswith(":")]
    assert rows
    assert all(re.fullmatch(r"  \w+ +[A-Z][^…]+[^….]\.", line) for line in rows), rows
    assert max(map(len, rows)) <= 80


def test_one_sentence_says_what_slipstream_does():
    root = Path(__file__).parents[2]
    described = tomllib.loads((root / "pyproject.toml").read_text())["project"]["description"]
    readme = (root / "README.md").read_text(encoding="utf-8")
    assert described == cli.TAGLINE
    assert cli.TAGLINE in readme.splitlines()[:6]
    assert cli.TAGLINE in " ".join(plain_help().split())


def test_every_command_that_reads_a_profile_is_read_ahead():
    for name, about in cli.COMMANDS.items():
        shown = plain_help(name).partition("Options:")[0]
        assert about.reads_profile == bool(re.search(r"^  \S+ +Profile", shown, re.MULTILINE)), name


@pytest.mark.parametrize("arguments", [("--help",), ("ops", "--help"), ("--version",)])
def test_help_imports_nothing_heavy(arguments):
    script = (
        "import sys; from slipstream.cli.main import app\n"
        f"try: app({list(arguments)!r})\n"
        "except SystemExit: pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
    assert shown.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("error", "code"), [(BadInput("no"), 2), (CheckFailed("no"), 1), (Missing("no"), 3)]
)
def test_errors_become_exit_codes(error, code, monkeypatch, capsys):
    def fail(**options):
        raise error

    monkeypatch.setattr("slipstream.cli.app.build_app", lambda names: fail)
    assert cli._run() == code
    assert capsys.readouterr() == ("", "error: no\n")


def test_usage_errors_suggest_and_exit_with_2():
    wrong = slipstream("sumary", "x")
    assert wrong.returncode == 2
    assert "summary" in wrong.stderr
    assert slipstream("ops").returncode == 2
    assert slipstream("ops", "x", "--top", "0").returncode == 2


def test_a_path_that_is_not_there():
    missing = slipstream("summary", "/no/such/profile.xplane.pb")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("error: ")
    assert "/no/such/profile.xplane.pb" in missing.stderr


def test_a_closed_pipe_is_no_error():
    reading, writing = os.pipe()
    os.close(reading)
    script = (
        "from slipstream.cli import app, common, main\n"
        "main.app.command('talk')(lambda: common.echo('x' * 1_000_000))\n"
        "app.build_app = lambda names: main.app\n"
        "import sys; sys.argv = ['slipstream', 'talk']; main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], stdout=writing, stderr=subprocess.PIPE, text=True
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")

"""The command as a whole: help, versions, exit codes, closed pipes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slipstream.cli import main as cli
from slipstream.errors import BadInput, CheckFailed, Missing

COMMANDS = ("summary", "ops", "programs", "export", "query")
HEAVY = ("numpy", "numba", "pandas", "pyarrow", "duckdb", "google.protobuf", "jax", "rich")


def slipstream(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_help_names_every_command():
    shown = slipstream("--help").stdout
    assert all(f"\n  {command} " in shown for command in COMMANDS)


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

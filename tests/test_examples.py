"""Examples in the docs and the README are what the commands really print."""

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(
    r"^```(?:text|json)?\n\$ slipstream ([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def examples():
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        # A command may go on in the next line.
        text = re.sub(r" \\\n\s*", " ", page.read_text())
        for command, shown in BLOCK.findall(text):
            whole = command.count('"') % 2 == 0 and "costs.pb" not in command
            if "tests/data" in command and " -o " not in command and whole:
                yield pytest.param(command, shown, id=f"{page.stem}: {command[:60]}")


@pytest.mark.parametrize(("command", "shown"), list(examples()))
def test_an_example_is_what_the_command_prints(command, shown, monkeypatch, tmp_path):
    """Lines in order; a line of `…` stands for any number of lines that are left out."""
    # It may write files, which `$ cat FILE` then shows.
    for name in ("docs", "examples", "tests"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    arguments, _, pipe = command.partition(" | ")
    printed = CliRunner().invoke(app, shlex.split(arguments)).output.splitlines()

    at = 0
    for line in shown.splitlines():
        if line.strip() in ("…", "...") or not line.strip():
            continue
        if line.startswith("$ cat "):
            printed, at = Path(line.removeprefix("$ cat ")).read_text().splitlines(), 0
            continue
        rest = [other.rstrip() for other in printed[at:]]
        assert line.rstrip() in rest, f"not printed: {line!r}"
        at += rest.index(line.rstrip()) + 1

"""Completion in bash, zsh and fish, with commands that are loaded only when they are called."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BIN = Path(sys.executable).parent


def completed(**variables):
    env = {"PATH": f"{BIN}:{os.environ['PATH']}", **variables}
    done = subprocess.run([BIN / "slipstream"], env=env, capture_output=True, text=True)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("slipstream fl", ["flags"]),
        ("slipstream flags l", ["list", "lint"]),
        ("slipstream summary --ru", ["--run"]),
    ],
)
def test_bash(typed, expected):
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    found = completed(_SLIPSTREAM_COMPLETE="complete_bash", **words)
    assert found.splitlines() == expected


def test_zsh_and_fish():
    asked = {"_TYPER_COMPLETE_ARGS": "slipstream flags l"}
    zsh = completed(_SLIPSTREAM_COMPLETE="complete_zsh", **asked)
    assert '"list":' in zsh and '"lint":' in zsh
    asked["_TYPER_COMPLETE_FISH_ACTION"] = "get-args"
    fish = completed(_SLIPSTREAM_COMPLETE="complete_fish", **asked)
    assert [line.partition("\t")[0] for line in fish.splitlines()] == ["list", "lint"]


def test_bash_installs_and_uses_it(tmp_path):
    """In a shell of its own home, as a person would."""
    env = {"HOME": str(tmp_path), "PATH": f"{BIN}:{os.environ['PATH']}"}
    typed = (
        "slipstream --install-completion >/dev/null; source ~/.bashrc\n"
        "COMP_WORDS=(slipstream flags l); COMP_CWORD=2; _slipstream_completion slipstream\n"
        'echo "${COMPREPLY[*]}"\n'
    )
    done = subprocess.run(["bash", "-c", typed], env=env, capture_output=True, text=True)
    assert done.stdout.split() == ["list", "lint"], done.stderr

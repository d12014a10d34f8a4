"""Completion in bash, zsh and fish, with commands that are loaded only when they are called."""

import os
import pty
import re
import select
import shutil
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


def own_home(folder, shell):
    """The environment of a shell that has completion installed, as a person would install it."""
    if shutil.which(shell) is None:
        pytest.skip(f"not installed: {shell}")
    env = {"HOME": str(folder), "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb"}
    installing = [BIN / "slipstream", "--install-completion", shell]
    told_which = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    subprocess.run(installing, env=env | told_which, check=True, stdout=subprocess.DEVNULL)
    return env


def test_fish_itself(tmp_path):
    env = own_home(tmp_path, "fish")
    typed = ["fish", "-c", 'complete -C "slipstream flags l"']
    done = subprocess.run(typed, env=env, capture_output=True, text=True)
    assert re.findall(r"^(\w+)\t", done.stdout, re.MULTILINE) == ["lint", "list"], done.stderr


def test_zsh_itself(tmp_path):
    """It completes only what is typed into a terminal."""
    env = own_home(tmp_path, "zsh")
    terminal, end = pty.openpty()
    with subprocess.Popen(["zsh", "-i"], env=env, stdin=end, stdout=end, stderr=end) as shell:
        os.close(end)
        # What it echoes is not what it prints.
        until(terminal, "bindkey '^I' list-choices; echo REA''DY\n", "READY")
        # The first Tab only loads what Typer has installed.
        said = until(terminal, "slipstream flags l\t", "lint", "list", again="\t")
        shell.kill()
    os.close(terminal)
    assert "list" in said and "-- Find settings that abort" in said


def until(terminal, typed, *awaited, again=""):
    """What a terminal shows after something was typed, up to all that is awaited."""
    os.write(terminal, typed.encode())
    said = ""
    for _ in range(60):
        while select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 4096).decode(errors="replace")
        if all(one in said for one in awaited):
            break
        os.write(terminal, again.encode())
    return said


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

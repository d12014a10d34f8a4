"""What the job's command shows before the job starts: its script, and what keeps Slipstream out.

    python -I train.py · env -i python train.py · env PYTHONPATH=src python train.py

The agent is found through `PYTHONPATH` and told what to do by `SLIPSTREAM_AGENT`; a Python that is
started without them never loads it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from slipstream.run.agent.request import ENVIRONMENT
from slipstream.run.job_python import PREFIXES, PROJECT_TOOLS, is_python

CONTAINERS = ("apptainer", "docker", "enroot", "podman", "shifter", "singularity", "ssh", "sudo")
"""commands that may start their command without our variables or our files"""
_OPTIONS = {
    "I": "ignores PYTHONPATH",
    "E": "ignores PYTHONPATH",
    "S": "loads no sitecustomize",
}
"""options of Python that keep Slipstream out of the job"""
_ENTRY = "through which Slipstream enters the job"
_HEAD_BYTES = 256


@dataclass(frozen=True)
class PythonCall:
    """How a command starts Python."""

    options: str
    """the letters of its options"""
    script: Path | None
    """the file that it runs, if it is known and there"""


def python_call(command: Sequence[str], environment: Mapping[str, str]) -> PythonCall | None:
    """The first Python that a command starts; None if the command is not recognisably Python."""
    name = Path(command[0]).name
    if name in PROJECT_TOOLS and len(command) > 2 and command[1] == "run":
        return _read_call(command[3:] if is_python(command[2]) else command[2:])
    if name in PREFIXES or is_python(name):
        places = (i for i, word in enumerate(command) if is_python(Path(word).name))
        index = next(places, None)
        return None if index is None else _read_call(command[index + 1 :])
    script = shutil.which(command[0], path=environment.get("PATH"))
    first = _first_line(script)
    if script is None or not first.startswith("#!"):
        return None
    words = first.removeprefix("#!").split()
    is_ours = bool(words) and (is_python(Path(words[0]).name) or Path(words[0]).name == "env")
    return python_call([*words, script], environment) if is_ours else None


def obstacle(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    """What in the command keeps Slipstream out of the job for certain, and what to do about it."""
    for word in _env_words(command):
        if word in ("-", "-i", "--ignore-environment"):
            return (
                f"env {word} removes PYTHONPATH, {_ENTRY}; write: "
                f"env {word} … slipstream run -- python …"
            )
        if word in ("PYTHONPATH", ENVIRONMENT) or word.startswith(
            ("PYTHONPATH=", f"{ENVIRONMENT}=")
        ):
            name = word.partition("=")[0]
            return (
                f"env changes {name}, {_ENTRY}; let env start slipstream: "
                "env … slipstream run -- python …"
            )
    call = python_call(command, environment)
    option = next((letter for letter in call.options if letter in _OPTIONS), None) if call else None
    if option is None:
        return None
    return f"python -{option} {_OPTIONS[option]}, {_ENTRY}; leave out -{option}"


def suspect(command: Sequence[str]) -> str | None:
    """What in the command may have kept Slipstream out of the job, and what to do about it."""
    name = next((n for n in (Path(word).name for word in command) if n in CONTAINERS), None)
    if name is None:
        return None
    return (
        f"{name} may not pass on PYTHONPATH, {_ENTRY}; run Slipstream inside: "
        f"{name} … slipstream run -- python …"
    )


def _read_call(words: Sequence[str]) -> PythonCall:
    """Read what follows `python`."""
    options, rest = "", iter(words)
    for word in rest:
        if word == "-" or not word.startswith("-"):
            return PythonCall(options, _existing(Path(word)))
        if word.startswith("--"):
            continue
        for index, letter in enumerate(word[1:], 2):
            if letter == "c":
                return PythonCall(options, None)
            if letter == "m":
                return PythonCall(options, _module_file(word[index:] or next(rest, "")))
            if letter in "WX":
                if index == len(word):
                    next(rest, None)  # its value
                break
            options += letter
    return PythonCall(options, None)


def _module_file(module: str) -> Path | None:
    base = Path(*module.split("."))
    return _existing(base.with_name(f"{base.name}.py")) or _existing(base / "__main__.py")


def _existing(file: Path) -> Path | None:
    return file if file.is_file() else None


def _env_words(command: Sequence[str]) -> Iterator[str]:
    """Options, removed variables and assignments of every `env` in front of the job."""
    names = [Path(word).name for word in command]
    if names[0] not in PREFIXES:
        return
    for index, name in enumerate(names):
        if is_python(name):
            return
        if name != "env":
            continue
        rest = iter(command[index + 1 :])
        for word in rest:
            if word in ("-u", "--unset"):
                yield next(rest, "")
            elif word.startswith("--unset="):
                yield word.partition("=")[2]
            elif word.startswith("-u"):
                yield word[2:]
            elif word.startswith("-") or "=" in word:
                yield word
            else:
                break


def _first_line(file: str | None) -> str:
    try:
        with open(file or "", "rb") as opened:
            return opened.read(_HEAD_BYTES).decode("utf-8", "replace").partition("\n")[0]
    except OSError:
        return ""

"""The Python that the job's command runs, asked before the job starts: can it load the agent?

    python train.py · .venv/bin/python -m train · train (a script with a python shebang)
    env A=1 numactl -N 0 python train.py · mpirun -n 2 python train.py · uv run train.py

Slipstream may be installed in another environment than the job's. The agent then uses our package
(see `site/sitecustomize.py`) with the job's own numpy, protobuf and Numba, so these must be there.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from slipstream.errors import Missing
from slipstream.reading import DAMAGE
from slipstream.run.rank import LAUNCHERS

NEEDED = {"numpy": "numpy", "protobuf": "google.protobuf", "numba": "numba"}
"""packages that the agent imports, and the modules that show them to be there"""
OLDEST = (3, 11)
PREFIXES = (
    *LAUNCHERS, "env", "exec", "ionice", "nice", "nohup", "nsys", "numactl", "setsid", "stdbuf",
    "taskset", "time", "timeout",
)  # fmt: skip
"""commands that run the command that follows their own options"""
PROJECT_TOOLS = ("uv", "poetry")
"""commands whose `run` uses the project's environment"""
LONGEST_ANSWER_S = 60.0
_PYTHON = re.compile(r"python(\d+(\.\d+)?)?$")
_SHELL_TRAMPOLINE = re.compile(r"^'''exec' (.+?) \"\$0\" \"\$@\"")
"""how installers write a shebang that is too long, or that holds a space"""
_HEAD_BYTES = 1024

_PROBE = """
import importlib.util, json, re, sys
sys.path[:] = [path for path in sys.path if path]
def found(name):
    try:
        return importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return None
def version(name):
    try:
        from importlib.metadata import version
        return version(name)
    except Exception:
        return None
ours = found("slipstream")
release = None
if ours is not None and ours.origin:
    with open(ours.origin, encoding="utf-8") as file:
        stated = re.search(r'__version__ = "(.+?)"', file.read())
    release = stated.group(1) if stated else "unknown"
print(json.dumps({
    "executable": sys.executable,
    "version": sys.version_info[:3],
    "slipstream": release,
    "has_jax": found("jax") is not None,
    "jaxlib": version("jaxlib"),
    "missing": [name for name, module in NEEDED.items() if found(module) is None],
}))
"""


@dataclass(frozen=True)
class JobPython:
    """What the job's Python says about itself."""

    executable: str
    version: tuple[int, ...]
    slipstream: str | None
    """the version that is installed there"""
    has_jax: bool
    jaxlib: str | None
    missing: tuple[str, ...]
    """packages that the agent needs and that are not there"""


def check_python(command: Sequence[str], environment: Mapping[str, str]) -> JobPython | None:
    """The job's Python; None if the command is not recognisably Python.

    Missing, with the command that installs it, if the agent can't be loaded there.
    """
    words = python_of(command, environment)
    found = _ask(words, environment) if words is not None else None
    if found is not None and found.has_jax:
        _require(found)
    return found


def is_python(name: str) -> bool:
    """Whether a command of this name is Python itself."""
    return _PYTHON.match(name) is not None


def missing_packages() -> list[str]:
    """The packages of `NEEDED` that this Python lacks."""
    return [name for name, module in NEEDED.items() if not _is_here(module)]


def _is_here(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def install_command(executable: str) -> str:
    return f"{shlex.quote(executable)} -m pip install slipstream"


def _require(python: JobPython) -> None:
    own = import_module("slipstream").__version__
    if python.version < OLDEST:
        seen = f"is Python {'.'.join(map(str, python.version))}; Slipstream needs 3.11 or newer"
        fix = "run the job with a newer Python"
    elif python.slipstream not in (None, own):
        seen = f"has slipstream {python.slipstream}, and this is slipstream {own}"
        fix = f"type: {install_command(python.executable)}=={own}"
    elif python.missing:
        seen = f"has no {' and no '.join(python.missing)}, which Slipstream needs inside the job"
        fix = f"type: {install_command(python.executable)}"
    else:
        return
    raise Missing(f"the job's Python, {python.executable}, {seen}; {fix}; nothing was started")


def _ask(python: Sequence[str], environment: Mapping[str, str]) -> JobPython | None:
    """None if it doesn't answer: then the job itself will show why."""
    script = f"NEEDED = {NEEDED!r}\n{_PROBE}"
    try:
        done = subprocess.run(
            [*python, "-c", script], env=dict(environment), stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=LONGEST_ANSWER_S,
        )  # fmt: skip
        answer = json.loads(done.stdout.strip().splitlines()[-1])
        return JobPython(
            answer["executable"] or python[0],
            tuple(answer["version"]),
            answer["slipstream"],
            answer["has_jax"],
            answer["jaxlib"],
            tuple(answer["missing"]),
        )
    except subprocess.SubprocessError:
        return None
    except DAMAGE:
        return None


def python_of(command: Sequence[str], environment: Mapping[str, str]) -> list[str] | None:
    """The words that start the job's Python; None if the command is not recognisably Python."""
    path = environment.get("PATH")
    name = Path(command[0]).name
    if name in PREFIXES:
        # Which of the words are the prefix's own options is unknown; the first Python counts.
        found = (_python_in(word, path) for word in command[1:])
        return next((words for words in found if words is not None), None)
    if name in PROJECT_TOOLS and len(command) > 2 and command[1] == "run":
        return _project_python(command[2], environment)
    return _python_in(command[0], path)


def _python_in(word: str, path: str | None) -> list[str] | None:
    """The Python that a word names, or that runs the script it names."""
    file = shutil.which(word, path=path)
    if file is None:
        return None
    return [file] if is_python(Path(file).name) else _shebang(Path(file), path)


def _shebang(script: Path, path: str | None) -> list[str] | None:
    try:
        with script.open("rb") as file:
            first, _, rest = file.read(_HEAD_BYTES).decode("utf-8", "replace").partition("\n")
    except OSError:
        return None
    if not first.startswith("#!"):
        return None
    trampoline = _SHELL_TRAMPOLINE.match(rest)
    if trampoline is not None:
        # A relocatable script looks for the Python beside it.
        python = trampoline[1].rpartition("/")[2] if "$0" in trampoline[1] else trampoline[1]
        words = [str(script.resolve().parent / python.strip("\"'"))]
        return words if is_python(Path(words[0]).name) else None
    words = first.removeprefix("#!").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-") and "=" not in word]
    if not words or not is_python(Path(words[0]).name):
        return None
    found = shutil.which(words[0], path=path)
    return [found] if found is not None else None


def _project_python(word: str, environment: Mapping[str, str]) -> list[str] | None:
    """The Python in the environment of the nearest project, if it is there already."""
    if word.startswith("-") or _has_own_requirements(Path(word)):
        return None
    folders = [Path.cwd(), *Path.cwd().parents]
    project = next((f for f in folders if (f / "pyproject.toml").exists()), None)
    if project is None:
        return None
    python = project / environment.get("UV_PROJECT_ENVIRONMENT", ".venv") / "bin" / "python"
    return [str(python)] if os.access(python, os.X_OK) else None


def _has_own_requirements(script: Path) -> bool:
    """Whether a script declares its packages in a comment, so that uv makes an environment."""
    try:
        return script.suffix == ".py" and "# /// script" in script.read_text(errors="replace")
    except OSError:
        return False

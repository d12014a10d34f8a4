"""A folder of `slipstream run` as something to tune: its hot program, what it cost, and its job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.run.run_dir import done_facts, read_json
from slipstream.tune.measure.backends import JobSpec

_PHASES = ("profile", "compare")
"""where a run leaves the program: the second, if all of it was done in place"""


def as_target(given: str) -> tuple[str, str | None]:
    """What to compile, and the recording to take costs from where there is one."""
    folder = Path(given)
    if not folder.is_dir():
        return given, None
    for phase in _PHASES:
        rank = folder / phase / "rank0"
        programs = sorted((rank / "programs").glob("*.stablehlo"), key=_size)
        if programs:
            return str(programs[-1]), _recording(rank)
    raise BadInput(
        f"{given} is a folder without a program (profile/rank0/programs/*.stablehlo); expected "
        "one that slipstream run wrote, or FILE.py:FUNCTION"
    )


def _size(file: Path) -> int:
    return file.stat().st_size


def _recording(rank: Path) -> str | None:
    """What kernels of a GPU took; what a CPU took says nothing about one."""
    folder, facts = rank / "profiles" / "before", done_facts(rank) or {}
    if facts.get("platform", "gpu") != "gpu":
        return None
    return str(folder) if any(folder.rglob("*.xplane.pb*")) else None


def job_order(target: str, command: Sequence[str], start: int, steps: int) -> JobSpec:
    """How a target's candidates are run: by the command, by that of its run, or as a function."""
    known = job_of(target) if not command else JobSpec(tuple(command), os.getcwd())
    return replace(known or JobSpec(), start=start, steps=steps)


def job_of(given: str) -> JobSpec | None:
    """The job that `slipstream run` ran there, in its folder, with what it had set."""
    facts = read_json(Path(given) / "run.json") or {}
    command, cwd, environment = (facts.get(name) for name in ("command", "cwd", "environment"))
    if not isinstance(command, list) or not command:
        return None
    return JobSpec(tuple(command), cwd, environment if isinstance(environment, dict) else {})

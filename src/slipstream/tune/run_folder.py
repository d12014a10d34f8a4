"""A folder of `slipstream run` as a target: its hot program, its recorded costs, and its job."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from slipstream.errors import BadInput
from slipstream.masking import MASK
from slipstream.remote.paths import any_path
from slipstream.run.run_dir import done_facts, read_json
from slipstream.tune.study_folder import JobSpec

_PHASES = ("profile", "compare")
"""where a run leaves the program: only in the second if there is no profile, as with `--auto`"""


def as_target(given: str) -> tuple[str, str | None]:
    """What to compile, and the recording to take costs from, if there is one."""
    folder = any_path(given)
    if not folder.is_dir():
        return given, None
    for phase in _PHASES:
        rank = folder / phase / "rank0"
        programs = sorted((rank / "programs").glob("*.stablehlo"), key=_size)
        if programs:
            return str(programs[-1]), _recording(rank)
    raise BadInput(
        f"{given} is a folder without a program (profile/rank0/programs/*.stablehlo); expected a "
        "folder that slipstream run wrote, or FILE.py:FUNCTION"
    )


def _size(file: Path) -> int:
    return file.stat().st_size


def _recording(rank: Path) -> str | None:
    """The profile of a GPU run; times of a CPU run say nothing about a GPU."""
    folder, facts = rank / "profiles" / "before", done_facts(rank) or {}
    if facts.get("platform", "gpu") != "gpu":
        return None
    return str(folder) if any(folder.rglob("*.xplane.pb*")) else None


def job_spec(target: str, command: Sequence[str], start: int, steps: int) -> JobSpec:
    """The job to time: the given command, that of the target's run, or none (a function)."""
    job = JobSpec(tuple(command), os.getcwd()) if command else recorded_job(target) or JobSpec()
    if any(MASK in word for word in (*job.command, *job.environment.values())):
        raise BadInput(
            f"the job's credentials are not in {target}, since they never leave their machine; "
            "give the command: slipstream tune TARGET --measure -- CMD"
        )
    return replace(job, start=start, steps=steps)


def recorded_job(given: str) -> JobSpec | None:
    """The job that `slipstream run` ran in a folder, with its working directory and settings."""
    facts = read_json(any_path(given) / "run.json") or {}
    command, cwd, environment = (facts.get(name) for name in ("command", "cwd", "environment"))
    environment = {} if environment is None else environment
    if not isinstance(command, list) or not command or not isinstance(environment, dict):
        return None
    if not all(isinstance(text, str) for text in (*command, *environment.values(), cwd or "")):
        return None
    return JobSpec(tuple(command), cwd, environment)

"""The settings of `slipstream run`."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.masking import mask_command

DEFAULT_FOLDER = "slipstream-run"
PROFILER = "SLIPSTREAM_PROFILER_OPTIONS"
"""JSON: attributes of `jax.profiler.ProfileOptions` for every recording of a run"""


@dataclass(frozen=True)
class Settings:
    """One run, as typed."""

    command: tuple[str, ...]
    out: Path = Path(DEFAULT_FOLDER)
    presets: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    start: int = 5
    steps: int = 3
    rounds: int = 30
    policy: str = "typical"
    functions: tuple[str, ...] = ()
    """names of the functions to optimise; empty for those that take most time"""
    profile_first: bool = False
    """run the job for a few steps just for the profile, before the job itself"""
    in_place: bool = False
    """`--in-place` was typed: the default, said explicitly"""
    auto: bool = False
    """use JAX's AutoPGLE, and measure what it does"""
    nsys: bool = False
    """record with Nsight Systems, not JAX's profiler"""
    schedule: bool = False
    """compare an order of our own, too"""
    layouts: bool = False
    """compare how many processes share the GPUs"""
    simulate: str | None = None
    """the machine to simulate"""
    again: bool = False
    rank: tuple[int, int | None] | None = None
    """this process, and of how many; None to ask Slurm or MPI"""
    is_json: bool = False
    """stdout is for the receipt; the job's stdout goes to stderr"""
    track: tuple[str, ...] = ("auto",)
    """trackers that get the receipt: see `run/trackers`"""
    profiler: Mapping[str, Any] = field(default_factory=dict)

    @property
    def starts_twice(self) -> bool:
        return self.profile_first or self.nsys

    def repeat(self) -> dict[str, Any]:
        """How to repeat the run, without secrets; run.json has the command as it was."""
        return {
            "command": mask_command(["slipstream", *sys.argv[1:]]),
            "job": mask_command(self.command),
            "cwd": os.getcwd(),
            "when": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }


def parse_capture(text: str) -> tuple[int, int]:
    """`5:3`: calls of the hot function before the capture, and during it."""
    match = re.fullmatch(r"(\d+):(\d+)", text.strip())
    if match is None or int(match[1]) < 1 or int(match[2]) < 1:
        raise BadInput(
            f"--capture is {text!r}; expected START:COUNT, both at least 1: --capture 5:3 records "
            "3 steps after the first 5"
        )
    return int(match[1]), int(match[2])


def parse_rank(text: str | None) -> tuple[int, int | None] | None:
    """`0/2`: the first of two processes; `0` if Slurm or MPI know how many there are."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+)(?:/(\d+))?", text.strip())
    if match is None or (match[2] is not None and int(match[1]) >= int(match[2])):
        raise BadInput(
            f"--rank is {text!r}; expected INDEX/COUNT, counted from 0: two processes are "
            "--rank 0/2 and --rank 1/2"
        )
    return int(match[1]), None if match[2] is None else int(match[2])


def profiler_attributes(environment: Mapping[str, str]) -> dict[str, Any]:
    """Options for JAX's profiler, from the environment."""
    text = environment.get(PROFILER)
    if not text:
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise BadInput(
            f"{PROFILER} is {text[:200]!r}; expected JSON with attributes of "
            'jax.profiler.ProfileOptions: {"host_tracer_level": 1}'
        )
    return found

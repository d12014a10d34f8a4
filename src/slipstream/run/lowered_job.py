"""A job that runs on this machine's CPU, for a machine that is not here, until its step is known.

the job ── as many CPU devices as the machine has ──► the agent, in `lower` mode
  jits that multiply matrices are lowered for the machine's GPU, and not run (jaxhooks/dry_run)
  └ the hot program's StableHLO ──► folder/done.json
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from slipstream.compiler.compile import known_config
from slipstream.machines.machine import Machine
from slipstream.run.agent.request import LOWER, Request
from slipstream.run.launcher import job_environment
from slipstream.run.run_dir import DONE, FAILED, REQUEST, STATUS, done_facts, read_json

_QUICK = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
"""the CPU's programs are compiled to learn shardings, or run once"""
CALLS = 3
"""of a program until it counts as the step: few, since nothing is timed"""


def lowering_environment(
    base: Mapping[str, str], folder: Path, machine: Machine, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of such a job; its agent writes into the folder."""
    asked = Request(
        LOWER, str(folder), CALLS, launcher=os.getpid(), target=known_config(machine)
    ).write(folder / REQUEST)
    environment = job_environment(base, asked, more)
    environment["JAX_PLATFORMS"] = "cpu"
    # Unlike a flag of XLA's, it survives a script that sets XLA_FLAGS.
    environment["JAX_NUM_CPU_DEVICES"] = str(machine.devices)
    environment["XLA_FLAGS"] = " ".join([environment.get("XLA_FLAGS", ""), *_QUICK]).strip()
    return environment


def lowered_program(folder: Path, code: int | None) -> dict[str, Any] | None:
    """What is known of the job's step; None if there is none. `code`: None if the job was ended."""
    found = done_facts(folder)
    if found is None and code == 0:
        # The job is over, and no program ran often enough; take the largest.
        found = read_json(folder / "candidate.json")
    return found


def is_over(folder: Path) -> bool:
    """Whether the agent has the step, or never will."""
    return (folder / DONE).exists() or (folder / FAILED).exists()


def failure(folder: Path) -> str | None:
    """Why the agent can't work in this job."""
    return str((read_json(folder / FAILED) or {}).get("why") or "") or None


def why_nothing(folder: Path) -> str | None:
    """Why the agent found no step, if it said so."""
    status = read_json(folder / STATUS) or {}
    return str(status["why"]) if status.get("why") else None

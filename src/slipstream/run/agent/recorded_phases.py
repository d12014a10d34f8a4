"""The profile and costs phases of a job that is started once: recorded inside it, for later runs.

    profile/rank0/   the recording of the hot program, and the program
    costs/           its costs

Both are as a run with `--profile-first` leaves them, so whatever reads one reads the other.
"""

from __future__ import annotations

import logging
import os

from slipstream.costs.files import read_costs
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import Preparation, prepare_arms
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.precomputed import coverage_facts
from slipstream.run.agent.recorder import job_facts, profile_facts
from slipstream.run.agent.request import Request
from slipstream.run.run_dir import DONE, RunDir, mark_done, sha256

log = logging.getLogger("slipstream")


def saving_phases(request: Request) -> Preparation:
    """A preparation that saves the profile and its costs before it compiles."""

    def prepare(
        compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        def save() -> None:
            if outcome.problem is None:  # else another program has taken over
                save_phases(request, compiled, outcome)

        prepare_arms(compiled, plan, outcome, save)

    return prepare


def save_phases(request: Request, compiled: CompiledProgram, outcome: ExperimentOutcome) -> None:
    """Move the recording and the costs of an experiment to where later runs look for them."""
    if request.run_folder is None or "before" not in outcome.profiles:
        return
    run_dir = RunDir(request.run_folder, request.rank)
    try:
        _save_profile(run_dir, request, compiled, outcome)
        if run_dir.rank == 0:  # one rank saves the costs, which are the same for all
            _save_costs(run_dir, request, outcome)
    except Exception:
        # Whatever it is: only a later run loses by it, and this one must go on.
        log.warning("slipstream: the profile is not kept for later runs", exc_info=True)


def _save_profile(
    run_dir: RunDir, request: Request, compiled: CompiledProgram, outcome: ExperimentOutcome
) -> None:
    assert outcome.captured is not None
    phase = run_dir.clear(run_dir.profile)
    recording = phase / "profiles" / "before"
    recording.parent.mkdir()
    os.rename(outcome.profiles["before"], recording)
    outcome.profiles["before"] = recording
    facts = profile_facts(compiled, phase, recording, outcome.captured)
    files = facts.pop("files")
    mark_done(phase, files, facts | request.conditions())


def _save_costs(run_dir: RunDir, request: Request, outcome: ExperimentOutcome) -> None:
    if outcome.costs is None or outcome.coverage is None:
        return
    phase = run_dir.clear(run_dir.costs)
    before, outcome.costs = outcome.costs, run_dir.costs_file
    files = [phase / file.name for file in before.parent.glob(f"{before.name}*")]
    for file in files:
        os.rename(before.parent / file.name, file)
    facts = {
        "instructions": len(read_costs(run_dir.costs_file)),
        "coverage": coverage_facts(outcome.coverage),
        "policy": request.policy,
        "ranks": job_facts()["processes"],
        "profile": sha256(run_dir.profile / DONE),
    }
    mark_done(phase, files, facts)

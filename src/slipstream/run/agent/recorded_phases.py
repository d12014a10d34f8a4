"""The profile and costs phases of a job that is started once: recorded inside it, for later runs.

    profile/rank0/   the recording of the hot program, and the program
    costs/           its costs

Both are as a run with `--profile-first` leaves them, so whatever reads one reads the other.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from slipstream.costs.table import CostTable
from slipstream.errors import SlipstreamError
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import prepare_arms
from slipstream.experiment.shared_costs import ranks_to_merge
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.precomputed import coverage_facts
from slipstream.run.agent.recorder import profile_facts
from slipstream.run.agent.request import Request
from slipstream.run.run_dir import DONE, RunDir, mark_done, sha256

log = logging.getLogger("slipstream")


class RecordedPhases:
    """Where an experiment puts its profile and costs, and what marks them as done."""

    def __init__(self, request: Request, run_dir: RunDir) -> None:
        self.request = request
        self.run_dir = run_dir

    def begin(self, plan: ExperimentPlan) -> ExperimentPlan:
        """The plan with the folders of the run; what an earlier run left in them is removed."""
        run_dir = self.run_dir
        plan = replace(plan, recording=run_dir.profile / "profiles" / "before")
        with suppress(OSError, SlipstreamError):  # a full disk, say: then the capture tells
            run_dir.clear(run_dir.profile)
            if run_dir.rank == 0:
                run_dir.clear(run_dir.costs)
        # One rank writes the costs, which are the same for all.
        return replace(plan, costs=run_dir.costs_file) if run_dir.rank == 0 else plan

    def prepare(
        self, compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        """A preparation that saves what it learns before it compiles."""
        prepare_arms(compiled, plan, outcome, lambda table: self._save(compiled, outcome, table))

    def _save(
        self, compiled: CompiledProgram, outcome: ExperimentOutcome, table: CostTable
    ) -> None:
        if outcome.problem is not None:
            return  # another program may have taken over, and with it the folder
        try:
            self._save_profile(compiled, outcome)
            if self.run_dir.rank == 0 and outcome.costs is not None:
                self._save_costs(outcome, outcome.costs.parent, table)
        except Exception:
            # Whatever it is: only a later run loses by it, and this one must go on.
            log.warning("slipstream: the profile is not kept for later runs", exc_info=True)

    def _save_profile(self, compiled: CompiledProgram, outcome: ExperimentOutcome) -> None:
        assert outcome.captured is not None
        phase, recording = self.run_dir.profile, outcome.profiles["before"]
        facts = profile_facts(compiled, phase, recording, outcome.captured)
        files = facts.pop("files")
        mark_done(phase, files, facts | {"xla_flags": self.request.xla_flags})

    def _save_costs(self, outcome: ExperimentOutcome, phase: Path, table: CostTable) -> None:
        assert outcome.coverage is not None
        facts = {
            "instructions": len(table),
            "coverage": coverage_facts(outcome.coverage),
            "policy": self.request.policy,
            "ranks": len(ranks_to_merge(outcome.consensus.ranks)),
            "profile": sha256(self.run_dir.profile / DONE),
        }
        mark_done(phase, phase.glob(f"{self.run_dir.costs_file.name}*"), facts)

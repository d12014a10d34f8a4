"""Flags for the best layouts: a study of `slipstream tune` for each of them, in the plan's storage.

slipstream-plan/flags/8xH100/3f9a…/     one layout; `slipstream tune show` reads it
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from slipstream.compiler.combinations import combinations
from slipstream.compiler.compile import machine_of
from slipstream.compiler.targets import Target
from slipstream.flags.catalogue.catalogue import default_catalogue
from slipstream.plan.plan_folder import PlanConfig, storage_of
from slipstream.plan.report.ranking import order
from slipstream.results.planning import Candidate, MachinePlan
from slipstream.results.tuning import Tuning
from slipstream.tune.apply import as_flags
from slipstream.tune.studies import TuneOptions, resume, show, start
from slipstream.tune.study_folder import has_study
from slipstream.units import PS_PER_US, format_time
from slipstream.writing import file_name

FLAGS = "flags"
TRIALS = 24
"""candidates of each layout's study"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class FlagSearch:
    """The studies of one machine's best layouts."""

    folder: Path
    config: PlanConfig
    machine: str

    def run(
        self, plan: MachinePlan, layouts: int, budget_s: float, jobs: int | None, progress: Progress
    ) -> None:
        """Tune the flags of the best few layouts, one after the other."""
        end = time.monotonic() + budget_s
        best = order(plan.candidates, self.config.objective.kind)[:layouts]
        for place, candidate in enumerate(best):
            share = max((end - time.monotonic()) / (len(best) - place), 1.0)
            folder = self._folder_of(candidate.choices)
            progress(f"flags of layout {place + 1} of {len(best)} on {self.machine}")
            if not has_study(folder):
                start(self._lowered(candidate), self._options(folder, share), progress)
            resume(folder, jobs=jobs, budget_s=share, progress=progress)

    def added_to(self, plan: MachinePlan) -> MachinePlan:
        """The plan with the flags that were found for its candidates."""
        if not (self.folder / FLAGS / file_name(self.machine)).is_dir():
            return plan
        candidates = tuple(map(self._with_flags, plan.candidates))
        by_number = {one.number: one for one in candidates}
        best = by_number[plan.best.number] if plan.best is not None else None
        tuned = [self._reason(one) for one in candidates if one.flags]
        return replace(plan, candidates=candidates, best=best, reasons=(*plan.reasons, *tuned))

    def _reason(self, candidate: Candidate) -> str:
        before, after = candidate.step_us or 0.0, candidate.flags_step_us or 0.0
        return (
            f"flags of #{candidate.number}: {format_time(before * PS_PER_US)} → "
            f"{format_time(after * PS_PER_US)}; see slipstream tune show "
            f"{self._folder_of(candidate.choices)}"
        )

    def _with_flags(self, candidate: Candidate) -> Candidate:
        folder = self._folder_of(candidate.choices)
        if not has_study(folder):
            return candidate
        found: Tuning = show(folder)
        best = found.best
        if best is None or not best.settings or best.step_us is None:
            return candidate
        flags = as_flags(best.settings, default_catalogue(), self.config.costs)
        return replace(candidate, flags=flags, flags_step_us=best.step_us)

    def _folder_of(self, choices: Mapping[str, object]) -> Path:
        name = hashlib.sha256(json.dumps(dict(choices)).encode()).hexdigest()[:12]
        return self.folder / FLAGS / file_name(self.machine) / name

    def _lowered(self, candidate: Candidate) -> Target:
        with combinations(self.config.as_target, machine_of(self.machine)) as session:
            return session.portable_target(candidate.choices)

    def _options(self, folder: Path, budget_s: float) -> TuneOptions:
        return TuneOptions(
            on=self.machine,
            trials=TRIALS,
            budget_s=budget_s,
            folder=folder,
            storage=storage_of(self.folder, self.config),
            study_prefix=f"{folder.relative_to(self.folder)} ",
            costs=self.config.costs,
            most_memory_bytes=self.config.objective.memory_limit(
                machine_of(self.machine).chip.memory_bytes
            ),
        )

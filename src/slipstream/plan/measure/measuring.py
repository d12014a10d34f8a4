"""Candidates of one machine's plan, measured side by side.

chosen ─► compiled, run once ─► rounds of visits ─► study `plan SPEC measured JAXLIB`
                │ does not fit, crash, hang

A visit puts one combination on the devices, warms it up and times several steps. The candidates
take turns visit by visit, as `tune` has them take turns step by step (`tune/measure/ab_window.py`),
and are compared by their time for a unit of work, round by round, with the one predicted best.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from slipstream.errors import BadInput
from slipstream.experiment.stats import CONFIDENCE
from slipstream.machines.machine import Machine
from slipstream.plan.measure.arms import Arms, Prepared
from slipstream.plan.measure.launched_arms import LaunchedArms
from slipstream.plan.measure.measured import (
    MEASURED_WITH,
    Key,
    key_of,
    key_of_candidate,
    open_measured,
    settings_of_candidate,
)
from slipstream.plan.measure.selection import MeasureOptions, chosen, predicted_value
from slipstream.plan.plan_folder import PlanConfig
from slipstream.plan.search.search import open_study
from slipstream.plan.space.search_space import SearchSpace
from slipstream.plan.space.space import space_of
from slipstream.results.planning import INVALID, Candidate, MachinePlan
from slipstream.results.tuning import OK
from slipstream.tune.measure.ab_window import (
    BASELINE,
    NULL,
    ABWindow,
    ArmFailed,
    outcome_of,
    run_ab_window,
)
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.seeds import SEARCH, Suggestion
from slipstream.tune.search.study import Candidate as Trial
from slipstream.tune.search.study import Study

WINDOW = 8
"""candidates that are measured side by side; results are kept after each window"""
PORTION = 16
"""candidates that are compiled together: a budget that ends before all are compiled leaves the
results of the first ones"""
Progress = Callable[[str], None]
OnMeasured = Callable[[Candidate, Outcome], None]


class Measuring:
    """Measures candidates of one machine's plan, and keeps their outcomes."""

    def __init__(
        self,
        folder: Path,
        config: PlanConfig,
        machine: Machine,
        arms: Arms | LaunchedArms,
        options: MeasureOptions,
        on_result: OnMeasured,
        progress: Progress,
    ) -> None:
        self._folder, self._config, self._machine = folder, config, machine
        self._arms, self._options = arms, options
        self._on_result, self._progress = on_result, progress
        self._end = time.monotonic() + options.budget_s
        self.space = SearchSpace(config.choices, space_of(config.choices, machine, config.where))
        self._ready: dict[int, Prepared] = {}
        """candidates that were run, by number"""
        self._is_finite: dict[int, bool] = {}
        self.measured: list[tuple[float, Candidate]] = []
        """what was measured just now: the time for a unit of work"""

    def run(self, plan: MachinePlan) -> None:
        """Measure until nothing is left or the budget is spent."""
        config, jaxlib = self._config, self._arms.here.jaxlib
        wanted = chosen(plan, config.objective.kind, self._options)
        if not wanted:
            raise BadInput(
                f"no candidate of the plan in {self._folder} can be run on {plan.machine}; see: "
                f"slipstream plan show {self._folder}"
            )
        place = (self._folder, config, self.space, self._machine.spec)
        with closing(open_study(*place)) as main:
            main.note(MEASURED_WITH, jaxlib)
        with closing(open_measured(*place, jaxlib)) as study:
            study.enqueue([Suggestion(settings_of_candidate(one), SEARCH) for one in wanted])
            self._windows(study, wanted, {key_of_candidate(one): one for one in plan.candidates})

    def _windows(
        self, study: Study, wanted: Sequence[Candidate], candidates: Mapping[Key, Candidate]
    ) -> None:
        study.requeue_dead()
        reference = None
        while not self._is_over and (asked := self._asked(study, candidates)):
            self._arms.begin_anew()
            running = self._running(study, asked)
            if running and reference is None:
                reference = self._reference(study, wanted, candidates)
            while running and not self._is_over:
                some, running = running[:WINDOW], running[WINDOW:]
                if reference is None or reference.number not in self._ready:
                    reference = min((one for _, one in some), key=predicted_value)
                self._window(study, some, reference)
            for trial, _ in running:
                study.release(trial)

    @property
    def _is_over(self) -> bool:
        return time.monotonic() >= self._end

    def _asked(
        self, study: Study, candidates: Mapping[Key, Candidate]
    ) -> list[tuple[Trial, Candidate]]:
        """The next that are to be measured."""
        waiting = sum(row.state == "waiting" for row in study.rows())
        asked: list[tuple[Trial, Candidate]] = []
        for _ in range(min(waiting, PORTION)):
            trial = study.ask()
            found = candidates.get(key_of(trial.settings)) if trial is not None else None
            if trial is not None and found is not None:
                asked.append((trial, found))
            elif trial is not None:  # proposed by Optuna, as another process took the last one
                study.tell(trial, Outcome(INVALID, note="not a candidate of the plan"))
        return asked

    def _running(
        self, study: Study, asked: Sequence[tuple[Trial, Candidate]]
    ) -> list[tuple[Trial, Candidate]]:
        """Those that run; outcomes of the others are kept at once.

        All of them together: their peaks of memory can be told apart only in ascending order.
        """
        failed = self._prepare([one for _, one in asked])
        for trial, one in asked:
            if (failure := failed[one.number]) is not None:
                self._tell(study, trial, one, self._outcome_of_failure(failure))
        return [(trial, one) for trial, one in asked if failed[one.number] is None]

    def _reference(
        self, study: Study, wanted: Sequence[Candidate], candidates: Mapping[Key, Candidate]
    ) -> Candidate | None:
        """The candidate predicted best of those that were measured before, if it still runs."""
        done = [row for row in study.rows() if row.outcome is not None and row.outcome.is_ok]
        known = {candidates[key_of(row.settings)].number for row in done}
        for one in wanted:
            is_ready = one.number in self._ready
            if one.number in known and (is_ready or self._prepare([one])[one.number] is None):
                return one
        return None

    def _prepare(self, some: Sequence[Candidate]) -> dict[int, ArmFailed | None]:
        """Compile candidates and run them once; what went wrong with each."""
        self._progress(f"compiling {len(some)} combinations for {self._machine.spec}")
        made = self._arms.prepare({str(one.number): dict(one.choices) for one in some})
        found: dict[int, ArmFailed | None] = {}
        for name, prepared in made.items():
            if isinstance(prepared, ArmFailed):
                found[int(name)] = prepared
            else:
                found[int(name)] = None
                self._ready[int(name)] = prepared
        return found

    def _window(
        self, study: Study, running: Sequence[tuple[Trial, Candidate]], reference: Candidate
    ) -> None:
        """Measure some candidates side by side with the reference, which may be one of them."""
        others = {str(one.number): one for _, one in running if one != reference}
        try:
            window = self._timed(reference, others)
        except ArmFailed as failure:
            # Without the reference, nothing is known about the others: they are measured again.
            self._ready.pop(reference.number, None)
            for trial, one in running:
                if one == reference:
                    self._tell(study, trial, one, self._outcome_of_failure(failure))
                else:
                    study.release(trial)
            return
        for trial, one in running:
            self._tell(study, trial, one, self._outcome(window, one, one == reference))

    def _timed(self, reference: Candidate, others: Mapping[str, Candidate]) -> ABWindow:
        visits = 0

        def time_one(name: str) -> float:
            nonlocal visits
            visits += 1
            self._progress(f"{len(others) + 1} combinations side by side, visit {visits}")
            one = others.get(name, reference)
            visit = self._arms.visit(str(one.number), self._options.steps)
            self._is_finite[one.number] = visit.is_finite
            return visit.step_s / self._work(one)

        return run_ab_window(
            list(others),
            time_one,
            schedule=self._options.schedule,
            is_over=lambda: time.monotonic() >= self._end,
        )

    def _work(self, candidate: Candidate) -> float:
        return candidate.work or 1.0

    def _outcome(self, window: ABWindow, candidate: Candidate, is_reference: bool) -> Outcome:
        """An outcome in seconds for a unit of work, as microseconds of a step."""
        number = candidate.number
        memory = self._ready[number].measured_memory_bytes
        if is_reference:
            found = _own_outcome([*window.times_s[BASELINE], *window.times_s[NULL]])
        else:
            found = outcome_of(window, str(number), None)
        if found.status != OK:
            return self._outcome_of_failure(window.failures[str(number)])
        value, (low, high) = found.step_us or 0.0, found.interval_us or _range(window, str(number))
        work = self._work(candidate)
        notes = [found.note.removeprefix("; ")]
        if not self._is_finite.get(number, True):
            notes.append("its numbers are not finite for synthetic inputs")
        return replace(
            found,
            value=value,
            step_us=value * work,
            interval_us=(low * work, high * work),
            memory_bytes=memory,
            compile_s=self._ready[number].compile_s,
            note="; ".join(filter(None, notes)),
            details=self._details(candidate),
        )

    def _outcome_of_failure(self, failure: ArmFailed) -> Outcome:
        return Outcome(
            failure.status, basis="measured", note=failure.note, details=self._details(None)
        )

    def _details(self, candidate: Candidate | None) -> dict[str, Any]:
        here = self._arms.here
        found = {"jaxlib": here.jaxlib, "device": here.kind, "date": _today()}
        if candidate is None:
            return found
        return {
            **found,
            "work": candidate.work,
            "planned_bytes": self._ready[candidate.number].memory_bytes,
        }

    def _tell(self, study: Study, trial: Trial, candidate: Candidate, outcome: Outcome) -> None:
        study.tell(trial, outcome)
        if outcome.is_ok and outcome.value is not None:
            self.measured.append((outcome.value, candidate))
        self._on_result(candidate, outcome)


def _own_outcome(times_s: Sequence[float]) -> Outcome:
    """The reference's own: the median of its visits, and the range that has it in 95% of cases."""
    times = sorted(times_s)
    count = len(times)
    # The k smallest and largest of n are left out if the median is so seldom beyond them.
    tail, left_out = 0.5**count, 0
    while count and 2 * tail <= 1 - CONFIDENCE and left_out < count // 2:
        left_out += 1
        tail += math.comb(count, left_out) * 0.5**count
    cut = max(left_out - 1, 0)
    return Outcome(
        OK,
        step_us=median(times) * 1e6,
        basis="measured",
        interval_us=(times[cut] * 1e6, times[count - 1 - cut] * 1e6),
        note=f"the others were compared with it; {count} visits",
    )


def _range(window: ABWindow, name: str) -> tuple[float, float]:
    """Of a candidate with too few rounds for an interval: its fastest and slowest round."""
    ratios = window.ratios(name)
    before = median(window.times_s[BASELINE][: len(ratios)]) * 1e6
    return before * min(ratios), before * max(ratios)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()

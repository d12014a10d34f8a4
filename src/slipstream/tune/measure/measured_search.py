"""Measured candidates: the best of a screen first, then what Optuna makes of their times.

screen's ranking ─► windows of a few candidates ─► finals of the winners
                    all of it in a study of its own, beside the screen's
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path

from slipstream.results.tuning import OK, NoiseFloor
from slipstream.tune.folder import StudyConfig
from slipstream.tune.measure import finals
from slipstream.tune.measure.ab_window import ABWindow, ArmFailed, outcome_of, run_ab_window
from slipstream.tune.measure.in_process import Backend
from slipstream.tune.measure.next_candidates import next_candidates
from slipstream.tune.outcome import Outcome
from slipstream.tune.report.report import MEASURED, open_study
from slipstream.tune.search.seeds import SIMPLIFY
from slipstream.tune.search.study import Candidate, Study, TrialRow
from slipstream.tune.space.space import Space

WINDOW = 4
"""candidates that run beside the baseline and the null arm"""
OnResult = Callable[[Candidate, Outcome], None]


def measure_candidates(
    folder: Path,
    facts: StudyConfig,
    measure: Backend,
    *,
    trials: int,
    budget_s: float,
    on_result: OnResult = lambda candidate, outcome: None,
    space: Space | None = None,
    name: str = MEASURED,
) -> str:
    """Windows until the budget is spent; the reason to stop."""
    with closing(open_study(folder, facts)) as screen:
        screened = screen.rows()
    with closing(open_study(folder, facts, name, space)) as study:
        runs = _MeasuredSearch(study, measure, budget_s, on_result)
        why = runs.search(screened, trials)
        runs.finals()
        return why


class _MeasuredSearch:
    """Windows, one after the other."""

    def __init__(
        self, study: Study, measure: Backend, budget_s: float, on_result: OnResult
    ) -> None:
        self._study = study
        self._measure = measure
        self._budget_s = budget_s
        self._end = time.monotonic() + budget_s
        self._on_told = on_result
        self._ready: set[str] = set()

    def search(self, screened: Sequence[TrialRow], trials: int) -> str:
        """Until there is a reason to stop."""
        while True:
            rows = self._study.rows()
            mine = [row for row in rows if row.settings and row.repeat_of is None]
            done = sum(row.state == "done" for row in mine)
            if self._is_over():
                return f"the budget of {self._budget_s:.0f} s is spent"
            if done >= trials:
                return f"{done} candidates were measured"
            if done >= self._study.space.size - 1:
                return "every setting of the space was measured"
            if not self._fill(screened, rows, min(WINDOW, trials - done)):
                return "the search proposes nothing new"

    def _is_over(self) -> bool:
        """What is left then is the finals'."""
        return time.monotonic() >= self._end - finals.SHARE * self._budget_s

    def finals(self) -> None:
        """The winners beside each other: fresh times say who is best."""
        playing: dict[str, int] = {}
        for row in finals.finalists(self._study.rows()):
            name = f"trial {row.number}"
            # A study that was gone on with has winners that this process never ran.
            with suppress(ArmFailed):
                if name not in self._ready:
                    self._measure.prepare(name, row.settings)
                playing[name] = row.number
        if not playing:
            return
        window = run_ab_window(
            list(playing), self._measure.time, schedule=self._measure.schedule.final,
            is_over=lambda: time.monotonic() >= self._end,
        )  # fmt: skip
        if said := finals.written(window, playing):
            self._study.note(finals.NOTE, said)
            _note(self._study, window)

    def _fill(self, screened: Sequence[TrialRow], rows: Sequence[TrialRow], most: int) -> bool:
        """One window; False if there is nobody for it."""
        study = self._study
        waiting = sum(row.state == "waiting" for row in rows)
        next_ones = next_candidates(study.space, screened, rows, study.objective)
        study.enqueue(next_ones, max(most - waiting, 0))
        batch: list[Candidate] = []
        while len(batch) < most and (candidate := study.ask()) is not None:
            if candidate.settings:
                batch.append(candidate)
            else:
                study.tell(candidate, _baseline(study))
        if batch:
            self._window(batch)
        return bool(batch)

    def _window(self, batch: Sequence[Candidate]) -> None:
        ready: dict[str, Candidate] = {}
        memory: dict[str, int | None] = {}
        if not self._is_over():
            self._measure.compile_ahead({f"trial {one.number}": one.settings for one in batch})
        for candidate in batch:
            name = f"trial {candidate.number}"
            if self._is_over():
                self._study.release(candidate)
                continue
            try:
                memory[name] = self._measure.prepare(name, candidate.settings)
                ready[name] = candidate
                self._ready.add(name)
            except ArmFailed as failed:
                self._tell(candidate, Outcome(failed.status, basis="measured", note=failed.note))
        if not ready:
            return

        def prune(name: str, change: float, rounds: int) -> bool:
            # Who has fewer settings need not be better than those before, only as good.
            is_simpler = ready[name].origin == SIMPLIFY
            return not is_simpler and self._study.should_prune(ready[name], change, rounds)

        window = run_ab_window(
            list(ready), self._measure.time, schedule=self._measure.schedule,
            is_over=self._is_over, prune=prune,
        )  # fmt: skip
        for name, candidate in ready.items():
            if not window.is_known(name):
                # The time was over: somebody with more of it may try.
                self._study.release(candidate)
                continue
            numbers = self._measure.numbers(name)
            self._tell(candidate, outcome_of(window, name, memory[name], numbers))
        _note(self._study, window)

    def _tell(self, candidate: Candidate, outcome: Outcome) -> None:
        self._study.tell(candidate, outcome)
        self._on_told(candidate, outcome)


def _baseline(study: Study) -> Outcome:
    """Nothing set: that is in every window already."""
    step_us = study.notes().get("baseline_us")
    known = float(step_us) if step_us else None
    return Outcome(OK, known, basis="measured", change=0.0, note="the baseline itself")


def _note(study: Study, window: ABWindow) -> None:
    """The noise floor of the worst window counts."""
    floor = window.noise_floor
    if floor is None:
        return
    known = study.notes().get("noise_floor")
    before = NoiseFloor(**json.loads(known)) if known else None
    if before is None or abs(floor.change) > abs(before.change):
        facts = {"change": floor.change, "low": floor.low, "high": floor.high}
        study.note("noise_floor", json.dumps(facts))
    (comparison, *_) = window.comparisons.values()
    study.note("baseline_us", str(comparison.before_us))

"""The search with measured times: the best simulated candidates first, then Optuna's proposals.

simulated ranking ─► A/B windows of a few candidates ─► finals of the winners
                     kept in a study of its own
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path

from slipstream.results.tuning import OK, NoiseFloor
from slipstream.tune.measure import finals
from slipstream.tune.measure.ab_window import ABWindow, ArmFailed, outcome_of, run_ab_window
from slipstream.tune.measure.in_process import Backend
from slipstream.tune.measure.next_candidates import next_candidates
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.search import OnResult
from slipstream.tune.search.seeds import SIMPLIFY
from slipstream.tune.search.study import Candidate, Study, TrialRow
from slipstream.tune.space.space import Space
from slipstream.tune.study_folder import StudyConfig, open_study

WINDOW = 4
"""candidates per window, besides the baseline and the null arm"""


def measure_candidates(
    folder: Path,
    config: StudyConfig,
    backend: Backend,
    *,
    trials: int,
    budget_s: float,
    on_result: OnResult = lambda candidate, outcome: None,
    space: Space | None = None,
) -> str:
    """Measure candidates until the budget is spent; returns the reason to stop."""
    with closing(open_study(folder, config)) as screen:
        screened = screen.rows()
    with closing(open_study(folder, config, config.measured_study, space)) as study:
        search = _MeasuredSearch(study, backend, budget_s, on_result)
        why = search.run(screened, trials)
        search.finals()
        study.note("stopped_because", why)
        return why


class _MeasuredSearch:
    """A/B windows, one after the other, on one study."""

    def __init__(
        self, study: Study, backend: Backend, budget_s: float, on_result: OnResult
    ) -> None:
        self._study = study
        self._backend = backend
        self._budget_s = budget_s
        self._end = time.monotonic() + budget_s
        self._on_told = on_result
        self._ready: set[str] = set()

    def run(self, screened: Sequence[TrialRow], trials: int) -> str:
        """Fill windows until there is a reason to stop."""
        while True:
            rows = self._study.rows()
            done = sum(
                row.state == "done" and bool(row.settings) and row.repeat_of is None for row in rows
            )
            if self._is_over():
                return f"the budget of {self._budget_s:.0f} s is spent"
            if done >= trials:
                return f"{done} candidates were measured"
            if done >= self._study.space.size - 1:
                return "every setting of the space was measured"
            if not self._fill_window(screened, rows, min(WINDOW, trials - done)):
                return "the search proposes nothing new"

    def _is_over(self) -> bool:
        """Whether only the time reserved for the finals is left."""
        return time.monotonic() >= self._end - finals.SHARE * self._budget_s

    def finals(self) -> None:
        """Time the winners once more, side by side: fresh times decide which is best."""
        numbers: dict[str, int] = {}
        for row in finals.finalists(self._study.rows()):
            name = f"trial {row.number}"
            # Winners of a resumed study may not be prepared in this process yet.
            with suppress(ArmFailed):
                if name not in self._ready:
                    self._backend.prepare(name, row.settings)
                numbers[name] = row.number
        if not numbers:
            return
        window = run_ab_window(
            list(numbers), self._backend.time, schedule=self._backend.schedule.final,
            is_over=lambda: time.monotonic() >= self._end,
        )  # fmt: skip
        if note := finals.to_note(window, numbers):
            self._study.note(finals.NOTE, note)
            _note_noise(self._study, window)

    def _fill_window(
        self, screened: Sequence[TrialRow], rows: Sequence[TrialRow], most: int
    ) -> bool:
        """Run one window; False if there are no candidates for it."""
        study = self._study
        waiting = sum(row.state == "waiting" for row in rows)
        proposed = next_candidates(study.space, screened, rows, study.objective)
        study.enqueue(proposed, max(most - waiting, 0))
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
            self._backend.compile_ahead({f"trial {one.number}": one.settings for one in batch})
        for candidate in batch:
            name = f"trial {candidate.number}"
            if self._is_over():
                self._study.release(candidate)
                continue
            try:
                memory[name] = self._backend.prepare(name, candidate.settings)
                ready[name] = candidate
                self._ready.add(name)
            except ArmFailed as failed:
                self._tell(candidate, Outcome(failed.status, basis="measured", note=failed.note))
        if not ready:
            return

        def prune(name: str, change: float, rounds: int) -> bool:
            # A candidate with fewer settings needs only to be as good as earlier ones.
            is_simpler = ready[name].origin == SIMPLIFY
            return not is_simpler and self._study.should_prune(ready[name], change, rounds)

        window = run_ab_window(
            list(ready), self._backend.time, schedule=self._backend.schedule,
            is_over=self._is_over, prune=prune,
        )  # fmt: skip
        for name, candidate in ready.items():
            if not window.is_known(name):
                # Out of time: another process may try it.
                self._study.release(candidate)
                continue
            check = self._backend.results_check(name)
            self._tell(candidate, outcome_of(window, name, memory[name], check))
        _note_noise(self._study, window)

    def _tell(self, candidate: Candidate, outcome: Outcome) -> None:
        self._study.tell(candidate, outcome)
        self._on_told(candidate, outcome)


def _baseline(study: Study) -> Outcome:
    """The outcome of a candidate without settings, which is part of every window."""
    step_us = study.notes().get("baseline_us")
    known = float(step_us) if step_us else None
    return Outcome(OK, known, basis="measured", change=0.0, note="the baseline itself")


def _note_noise(study: Study, window: ABWindow) -> None:
    """Keep the noise floor of the worst window, and the baseline's step."""
    floor = window.noise_floor
    if floor is None:
        return
    known = study.notes().get("noise_floor")
    before = NoiseFloor.from_note(known) if known else None
    if before is None or abs(floor.change) > abs(before.change):
        study.note("noise_floor", floor.to_note())
    (comparison, *_) = window.comparisons.values()
    study.note("baseline_us", str(comparison.before_us))

"""Measured candidates: the best of a screen first, then what Optuna makes of their times.

screen's ranking ─► windows of a few candidates ─► a study of their own, beside the screen's
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from slipstream.analyses.tuning import NoiseFloor
from slipstream.tune.folder import Facts
from slipstream.tune.measure import Measure
from slipstream.tune.outcome import Outcome
from slipstream.tune.report import MEASURED, open_study, ranked
from slipstream.tune.study import Candidate, Study
from slipstream.tune.suggestions import Suggestion
from slipstream.tune.windows import ArmFailed, Window, outcome_of, run_window

WINDOW = 4
"""candidates that run beside the baseline and the null arm"""
FROM_SCREEN = 8
"""of the screen's ranking, so many distinct programs are measured first"""
OnTold = Callable[[Candidate, Outcome], None]


def measure_best(
    folder: Path,
    facts: Facts,
    measure: Measure,
    *,
    trials: int,
    budget_s: float,
    on_told: OnTold = lambda candidate, outcome: None,
) -> str:
    """Windows until the budget is spent; the reason to stop."""
    end = time.monotonic() + budget_s
    screen = open_study(folder, facts)
    best = ranked(screen.rows(), facts.objective)[:FROM_SCREEN]
    screen.close()
    study = open_study(folder, facts, MEASURED)
    try:
        chosen = [Suggestion(row.settings, row.origin) for row in best if row.settings]
        study.enqueue(chosen)
        while True:
            done = sum(row.state == "done" and row.repeat_of is None for row in study.rows())
            if time.monotonic() >= end:
                return f"the budget of {budget_s:.0f} s is spent"
            if done >= trials:
                return f"{done} candidates were measured"
            batch = _batch(study, min(WINDOW, trials - done))
            if not batch:
                return "the search proposes nothing new"
            _run(study, batch, measure, on_told)
    finally:
        study.close()


def _batch(study: Study, most: int) -> list[Candidate]:
    found: list[Candidate] = []
    while len(found) < most and (candidate := study.ask()) is not None:
        found.append(candidate)
    return found


def _run(study: Study, batch: list[Candidate], measure: Measure, on_told: OnTold) -> None:
    ready: dict[str, Candidate] = {}
    memory: dict[str, int | None] = {}
    for candidate in batch:
        name = f"trial {candidate.number}"
        try:
            memory[name] = measure.prepare(name, candidate.settings)
            ready[name] = candidate
        except ArmFailed as failed:
            outcome = Outcome(failed.status, basis="measured", note=failed.note)
            study.tell(candidate, outcome)
            on_told(candidate, outcome)
    if not ready:
        return
    window = run_window(list(ready), measure.time)
    for name, candidate in ready.items():
        outcome = outcome_of(window, name, memory[name])
        study.tell(candidate, outcome)
        on_told(candidate, outcome)
    _note(study, window)


def _note(study: Study, window: Window) -> None:
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

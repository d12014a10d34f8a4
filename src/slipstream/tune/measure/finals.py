"""The finals: the winners of all windows, timed once more side by side with the baseline.

The candidate that measured best of many was partly lucky. Fresh times, which played no part in
selecting it, decide which is best and by how much. Among those as fast as the fastest, the one with
the fewest settings wins: settings without an effect are not recommended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from slipstream.experiment.rounds import AS_FAST
from slipstream.experiment.stats import Comparison, compare
from slipstream.reading import damage
from slipstream.results.tuning import MEASURE_AGAIN
from slipstream.tune.measure.ab_window import ABWindow
from slipstream.tune.search.study import TrialRow

FINALISTS = 4
SHARE = 0.15
"""share of the budget that is reserved for the finals"""
NOTE = "finals"
"""key of the study's note"""


@dataclass(frozen=True)
class VersusFastest:
    """One finalist compared with the fastest, round by round."""

    verdict: str
    change: float
    low: float
    high: float


@dataclass(frozen=True)
class FinalResult:
    """One finalist's change of the step, by fresh times."""

    change: float
    low: float
    high: float
    before_us: float
    beside: VersusFastest | None = None

    @property
    def is_as_fast(self) -> bool:
        """Whether it is as fast as the fastest; true for the fastest itself."""
        return self.beside is not None and self.beside.verdict in AS_FAST


def winners(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Candidates that are significantly faster than their baseline, the fastest first."""
    found = []
    for row in rows:
        outcome = row.outcome
        if outcome is None or not outcome.is_ok or outcome.change_interval is None:
            continue
        if outcome.change_interval[1] < 0 and row.repeat_of is None:
            found.append((outcome.change or 0.0, row.number, row))
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def without_redundant(best_first: Sequence[TrialRow]) -> list[TrialRow]:
    """Winners, without those that only add settings with no certain gain to another winner."""
    return [row for row in best_first if not any(_is_enough(other, row) for other in best_first)]


def _is_enough(simple: TrialRow, row: TrialRow) -> bool:
    """Whether a subset of the settings may be as fast."""
    if not simple.settings.items() < row.settings.items():
        return False
    assert simple.outcome is not None and simple.outcome.change_interval is not None
    assert row.outcome is not None
    return simple.outcome.change_interval[0] <= (row.outcome.change or 0.0)


def finalists(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The fastest, the fastest with one and with two settings, and the next ones."""
    best_first = winners(rows)
    few = [next((row for row in best_first if len(row.settings) == n), None) for n in (1, 2)]
    wanted = [*best_first[:1], *few, *without_redundant(best_first), *best_first]
    return list({row.number: row for row in wanted if row is not None}.values())[:FINALISTS]


def to_note(window: ABWindow, numbers: Mapping[str, int]) -> str:
    """Results by trial number, as a note for the study; empty if time ran out."""
    known = {name: window.comparisons[name] for name in numbers if name in window.comparisons}
    found = {numbers[name]: asdict(_result(window, name, known)) for name in known}
    return json.dumps(found) if found else ""


def _result(window: ABWindow, name: str, known: Mapping[str, Comparison]) -> FinalResult:
    one = known[name]
    faster = [other for other in known if known[other].high < 0]
    fastest = min(faster or known, key=lambda other: known[other].change)
    # Not corrected for the number of finalists: uncertainty must not cost a gain.
    found = compare(window.times_s[fastest], window.times_s[name])
    beside = VersusFastest(found.verdict, found.change, found.low, found.high)
    return FinalResult(one.change, one.low, one.high, one.before_us, beside)


def from_notes(notes: Mapping[str, str]) -> dict[int, FinalResult]:
    """The results that `to_note` wrote; empty if there were no finals."""
    with damage(f"the study's note {NOTE!r}", "the results of finals", next_step=MEASURE_AGAIN):
        data = json.loads(notes.get(NOTE) or "{}")
        found = {int(number): FinalResult(**result) for number, result in data.items()}
        return {number: replace(one, beside=_beside(one.beside)) for number, one in found.items()}


def _beside(data: Any) -> VersusFastest | None:
    return VersusFastest(**data) if data else None

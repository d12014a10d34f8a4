"""The finals: the winners of all windows run once more, beside each other and the baseline.

Of many candidates the one that measured best is partly the luckiest. Who is best, and by how much,
is said by times that had no part in choosing it. Of those that are as fast as the fastest, the one
with the fewest settings is the best: what changes nothing is not recommended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from slipstream.experiment.stats import Comparison, compare
from slipstream.tune.measure.ab_window import ABWindow
from slipstream.tune.search.study import TrialRow

FINALISTS = 4
SHARE = 0.15
"""of the budget, which the windows before leave"""
NOTE = "finals"
"""what the study calls them"""
AS_FAST = ("faster", "no different")
"""verdicts on who may stand in for the fastest; where nothing can be told, the fastest stays"""


@dataclass(frozen=True)
class VersusFastest:
    """One finalist against the fastest, round by round."""

    verdict: str
    change: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """What one finalist's step changed, by fresh times."""

    change: float
    low: float
    high: float
    before_us: float
    beside: VersusFastest | None = None

    @property
    def is_as_fast(self) -> bool:
        """As the fastest, which is so itself."""
        return self.beside is not None and self.beside.verdict in AS_FAST


def winners(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """Those that are surely faster than their baseline, the fastest first."""
    found = []
    for row in rows:
        outcome = row.outcome
        if outcome is None or not outcome.is_ok or outcome.change_interval is None:
            continue
        if outcome.change_interval[1] < 0 and row.repeat_of is None:
            found.append((outcome.change or 0.0, row.number, row))
    return [row for _, _, row in sorted(found, key=lambda one: one[:2])]


def plain(best_first: Sequence[TrialRow]) -> list[TrialRow]:
    """Winners without those that are another one with more settings and no sure gain by them."""
    return [row for row in best_first if not any(_is_enough(other, row) for other in best_first)]


def _is_enough(simple: TrialRow, row: TrialRow) -> bool:
    """Whether a part of the settings does as much, as far as is known."""
    if not simple.settings.items() < row.settings.items():
        return False
    assert simple.outcome is not None and simple.outcome.change_interval is not None
    assert row.outcome is not None
    return simple.outcome.change_interval[0] <= (row.outcome.change or 0.0)


def finalists(rows: Sequence[TrialRow]) -> list[TrialRow]:
    """The fastest, the fastest with one setting and with two, and who comes next."""
    best_first = winners(rows)
    few = [next((row for row in best_first if len(row.settings) == n), None) for n in (1, 2)]
    wanted = [*best_first[:1], *few, *plain(best_first), *best_first]
    return list({row.number: row for row in wanted if row is not None}.values())[:FINALISTS]


def written(window: ABWindow, playing: Mapping[str, int]) -> str:
    """Results by the number of the trial, for the study; empty where the time was too short."""
    known = {name: window.comparisons[name] for name in playing if name in window.comparisons}
    found = {playing[name]: asdict(_result(window, name, known)) for name in known}
    return json.dumps(found) if found else ""


def _result(window: ABWindow, name: str, known: Mapping[str, Comparison]) -> Result:
    one = known[name]
    surely = [other for other in known if known[other].high < 0]
    fastest = min(surely or known, key=lambda other: known[other].change)
    # Not wider for the number of finalists: a gain is not to be given up for want of certainty.
    found = compare(window.times_s[fastest], window.times_s[name])
    beside = VersusFastest(found.verdict, found.change, found.low, found.high)
    return Result(one.change, one.low, one.high, one.before_us, beside)


def read(notes: Mapping[str, str]) -> dict[int, Result]:
    """What `written` gave, if there was one."""
    data = json.loads(notes.get(NOTE) or "{}")
    found = {int(number): Result(**result) for number, result in data.items()}
    return {number: replace(one, beside=_beside(one.beside)) for number, one in found.items()}


def _beside(data: Any) -> VersusFastest | None:
    return VersusFastest(**data) if data else None

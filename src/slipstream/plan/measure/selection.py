"""Which candidates of a plan to measure: the best few, and a few that should be bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.plan.measure.arms import STEPS
from slipstream.plan.report.ranking import order
from slipstream.results.planning import CANNOT_WIN, Candidate, MachinePlan
from slipstream.tune.measure.ab_window import JOBS, LookSchedule

BEST, BAD = 4, 2
BUDGET_S = 600.0
TIMEOUT_S = 300.0
"""a combination that takes longer, be it to compile or for a visit, counts as hung"""
ALL_ROUNDS = 3
"""rounds if every combination is measured: enough for a table, too few for small differences"""

MOST_AGAIN = 24
"""of the best candidates that are simulated again with recorded costs"""


@dataclass(frozen=True)
class MeasureOptions:
    """What to measure, and for how long."""

    best: int = BEST
    bad: int = BAD
    is_all: bool = False
    """every combination that fits"""
    rounds: int | None = None
    """of visits; by default, until the result is clear"""
    steps: int = STEPS
    """of a visit"""
    budget_s: float = BUDGET_S
    timeout_s: float = TIMEOUT_S
    records: bool = True
    """on GPUs: profile the best one, and simulate the others with its costs"""

    @property
    def schedule(self) -> LookSchedule:
        rounds = self.rounds or (ALL_ROUNDS if self.is_all else None)
        return JOBS if rounds is None else LookSchedule(0, (rounds,))


def chosen(plan: MachinePlan, objective: str, options: MeasureOptions) -> list[Candidate]:
    """The candidates to measure, as ranked: the best, and some that should be bad."""
    ordered = sorted(order(plan.candidates, objective), key=predicted_value)
    if options.is_all:
        unknown = [one for one in plan.candidates if one.status == CANNOT_WIN]
        return [*ordered, *unknown]
    best, rest = ordered[: options.best], ordered[options.best :]
    if options.bad < 1 or not rest:
        return best
    # Spread over the rest, the last one included.
    places = {round((i + 1) * len(rest) / options.bad) - 1 for i in range(options.bad)}
    return [*best, *(rest[place] for place in sorted(places) if place >= 0)]


def to_simulate_again(
    plan: MachinePlan, objective: str, measured: Sequence[Candidate]
) -> list[Candidate]:
    """The best candidates, and all that were measured."""
    ordered = sorted(order(plan.candidates, objective), key=predicted_value)
    done = {one.number for one in measured}
    return [*ordered[:MOST_AGAIN], *(one for one in ordered[MOST_AGAIN:] if one.number in done)]


def predicted_value(candidate: Candidate) -> float:
    """Predicted time for a unit of work."""
    step = candidate.predicted_us or candidate.step_us or 0.0
    return step * candidate.accumulate / (candidate.work or 1.0)

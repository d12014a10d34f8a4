"""Which candidate is best, how sure that is, and which are worth a look besides.

Errors of predictions are shared: if the models of products are 5% too fast, they are so for every
layout.  What two candidates spend the same share of their steps on therefore cancels out in a
comparison, and only the parts in which they differ make their order uncertain:

a   ██████ products ██████ ░░ exposed ░░     σ² = PAIR_ERROR² + Σ (error of a part
b   ██████████ products ██████████ ░░                              · difference of its shares)²

Two candidates are a tie unless they differ by more than 1.645 σ: then the order is right in 95% of
all pairs.  The errors are those of modelled kernels and collectives (`machines/jitter.py`).  The 79
pairs of variants of four models that were measured on an H200 (`tests/plan/report/test_ranking.py`)
agree with this σ; the errors of the two models that took no part in any fit are 1.5 times as large.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from slipstream.machines.jitter import COLLECTIVES, KERNELS, PAIR_ERROR, PAIR_QUANTILE, PALLAS
from slipstream.plan.report.reasons import (
    Rival,
    choices_text,
    different_choices,
    idle_choices,
    reasons,
)
from slipstream.results.planning import (
    ATTENTION,
    COMMUNICATION_PARTS,
    COPIES,
    MEASURED,
    OTHER_KERNELS,
    PRODUCTS,
    RECOMPUTATION,
    TIME,
    TRAFFIC,
    Candidate,
    MachinePlan,
)
from slipstream.results.tuning import OK

UNKNOWN_PARTS = 0.08
"""that of two steps whose parts are not known: root mean square over pairs of variants of one model
(a Llama, an encoder; docs/accuracy.md)"""
_KINDS = {
    PRODUCTS: KERNELS["gemm"],
    ATTENTION: KERNELS["attention"],
    TRAFFIC: KERNELS["fusion"],
    RECOMPUTATION: KERNELS["fusion"],
    OTHER_KERNELS: PALLAS,
    COPIES: KERNELS["copy"],
    **dict.fromkeys(COMMUNICATION_PARTS, (COLLECTIVES, 0.0)),
}
_ERRORS = {part: math.hypot(shared, own) for part, (shared, own) in _KINDS.items()}
"""of the time in which two candidates differ: few kernels, whose own errors don't cancel out"""


def ranked(plan: MachinePlan, objective: str, unit: str = "steps") -> MachinePlan:
    """`plan` with its best candidate, ties, Pareto front and reasons, from its candidates."""
    best = best_of(plan.candidates, objective)
    ties = ties_of(best, plan.candidates, objective) if best is not None else ()
    found = replace(plan, best=best, ties=ties, pareto=pareto_front(plan.candidates, objective))
    rivals = _rivals(found, objective) if best is not None else []
    return replace(found, reasons=reasons(found, rivals, unit))


def _rivals(plan: MachinePlan, objective: str) -> list[Rival]:
    """The other candidates next to the best, in order."""
    best = plan.best
    assert best is not None
    top = score(best, objective) or 0.0
    idle = idle_choices(plan.candidates)
    return [
        Rival(
            one,
            top / (score(one, objective) or top) - 1,
            choices_text(different_choices(one.choices, best.choices, idle)),
            one.number in plan.ties,
        )
        for one in order(plan.candidates, objective)
        if one.number != best.number
    ]


def score(candidate: Candidate, objective: str) -> float | None:
    """The more, the better: work per second, or how often a global batch fits into a second.

    Work per second for each device or dollar ranks the candidates of one machine as work per second
    does.
    """
    if candidate.step_us is None or candidate.step_us <= 0:
        return None
    if objective == TIME:
        return 1e6 / (candidate.step_us * candidate.accumulate)
    return candidate.work_per_s if candidate.work_per_s is not None else 1e6 / candidate.step_us


def order(candidates: Iterable[Candidate], objective: str) -> list[Candidate]:
    """The candidates that can be run, each program once, the best first."""
    scored = [
        (found, one)
        for one in candidates
        if one.status == OK and (found := score(one, objective)) is not None
    ]
    return [one for _, one in sorted(scored, key=lambda pair: (-pair[0], pair[1].number))]


def best_of(candidates: Iterable[Candidate], objective: str) -> Candidate | None:
    """The best candidate; a measured one, if any was measured."""
    ordered = order(candidates, objective)
    measured = [one for one in ordered if one.basis == MEASURED]
    return next(iter(measured or ordered), None)


def ties_of(best: Candidate, candidates: Iterable[Candidate], objective: str) -> tuple[int, ...]:
    """Numbers of the candidates that may be as good as the best, which comes first."""
    ordered = order(candidates, objective)
    others = [one for one in ordered if one.number != best.number]
    found = tuple(one.number for one in others if is_tie(best, one, objective))
    return (best.number, *found) if found else ()


def is_tie(best: Candidate, other: Candidate, objective: str) -> bool:
    """Whether `other` may be as good as `best`, given the errors of both."""
    first, second = score(best, objective), score(other, objective)
    if not first or not second:
        return False
    return math.log(first / second) < margin(best, other)


def margin(one: Candidate, other: Candidate) -> float:
    """The logarithm of the ratio from which on the order of two candidates is 95% sure."""
    if one.basis == MEASURED and other.basis == MEASURED:
        return math.hypot(_half_interval(one), _half_interval(other))
    return PAIR_QUANTILE * pair_error(one, other)


def pair_error(one: Candidate, other: Candidate) -> float:
    """The standard error of the logarithm of the ratio of two predicted steps."""
    if not (one.parts_us and other.parts_us and one.step_us and other.step_us):
        return UNKNOWN_PARTS
    differences = (
        error * (_share(one, part) - _share(other, part)) for part, error in _ERRORS.items()
    )
    return math.hypot(PAIR_ERROR, *differences)


def _share(candidate: Candidate, part: str) -> float:
    """Parts are those of the simulated step, also for a measured candidate."""
    return candidate.parts_us.get(part, 0.0) / sum(candidate.parts_us.values())


def _half_interval(candidate: Candidate) -> float:
    """Half of the 95% interval of a measured step, relative to it."""
    if not candidate.step_us or candidate.low_us is None or candidate.high_us is None:
        return PAIR_ERROR
    return (candidate.high_us - candidate.low_us) / 2 / candidate.step_us


def pareto_front(candidates: Sequence[Candidate], objective: str) -> tuple[int, ...]:
    """Numbers of the candidates that none beats in both throughput and memory, by memory."""
    known = [
        (one.memory_bytes, -(score(one, objective) or 0.0), one.number)
        for one in order(candidates, objective)
        if one.memory_bytes is not None
    ]
    front: list[int] = []
    least = math.inf
    for _, negative, number in sorted(known):
        if negative < least:
            least = negative
            front.append(number)
    return tuple(front)

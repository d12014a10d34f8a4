"""Measured candidates of a plan, in studies of their own beside those of the search.

    plan 8xH200                   the search: every candidate, simulated
    plan 8xH200 measured 0.11.2   what was measured there with this jaxlib

Another jaxlib compiles other programs, so its measurements are kept apart; those of the last one
that was used count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from slipstream.plan.plan_folder import PlanConfig, storage_of
from slipstream.plan.search.evaluation import VALUE
from slipstream.plan.space.search_space import SearchSpace, settings_of
from slipstream.plan.space.space import Combination
from slipstream.results.planning import MEASURED, SIMULATED, Candidate
from slipstream.results.tuning import OK, SAME
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.study import Study

MEASURED_WITH = "measured_with"
"""note of the search's study: the jaxlib that was used last"""
Key = tuple[tuple[str, str], ...]


def open_measured(
    folder: Path, config: PlanConfig, space: SearchSpace, spec: str, jaxlib: str
) -> Study:
    """The study of what was measured with a jaxlib."""
    name = f"plan {spec} measured {jaxlib}"
    return Study(storage_of(folder, config), name, space, VALUE, config.seed)


def measured_outcomes(
    folder: Path, config: PlanConfig, space: SearchSpace, spec: str, jaxlib: str
) -> dict[Key, Outcome]:
    """Outcomes by settings."""
    with closing(open_measured(folder, config, space, spec, jaxlib)) as study:
        rows = study.rows()
    return {
        key_of(row.settings): row.outcome
        for row in rows
        if row.state == "done" and row.outcome is not None and row.repeat_of is None
    }


def key_of(settings: Mapping[str, str]) -> Key:
    return tuple(sorted(settings.items()))


def key_of_candidate(candidate: Candidate) -> Key:
    return key_of(settings_of_candidate(candidate))


def settings_of_candidate(candidate: Candidate) -> dict[str, str]:
    return settings_of(Combination(tuple(candidate.choices.items())))


def with_measured(
    candidates: Sequence[Candidate], outcomes: Mapping[Key, Outcome]
) -> tuple[Candidate, ...]:
    """Candidates with their measured steps; those of the same program are measured with it."""
    by_number = {
        one.number: outcomes[key]
        for one in candidates
        if (key := key_of_candidate(one)) in outcomes
    }
    found = []
    for one in candidates:
        outcome = by_number.get(one.number)
        if outcome is None and one.same_program_as is not None:
            outcome = by_number.get(one.same_program_as)
        found.append(one if outcome is None else _measured(one, outcome))
    return tuple(found)


def _measured(candidate: Candidate, outcome: Outcome) -> Candidate:
    if outcome.status != OK:
        return replace(candidate, status=outcome.status, basis=MEASURED, why=outcome.note)
    assert outcome.step_us is not None
    work = candidate.work or (outcome.details or {}).get("work")
    low, high = outcome.interval_us or (None, None)
    is_fitting = candidate.status in (OK, SAME)
    return replace(
        candidate,
        status=candidate.status if is_fitting else OK,
        basis=MEASURED,
        step_us=outcome.step_us,
        low_us=low,
        high_us=high,
        work=work,
        work_per_s=work / outcome.step_us * 1e6 if work else None,
        predicted_us=candidate.step_us if candidate.basis == SIMULATED else None,
        measured_memory_bytes=outcome.memory_bytes,
        why=outcome.note,
    )

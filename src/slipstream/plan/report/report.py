"""What a plan found on a machine: the study's trials as candidates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from slipstream.machines.machine import Machine
from slipstream.plan.measure.measurements import Measurements, with_measurements
from slipstream.plan.report.ranking import ranked
from slipstream.plan.search.objective import Objective
from slipstream.plan.space.expression import WHERE
from slipstream.plan.space.search_space import Settings, combination_of
from slipstream.plan.space.space import Skipped, Space
from slipstream.results.planning import (
    BOUND,
    CANNOT_WIN,
    FAILED,
    MEASURED,
    SIMULATED,
    Candidate,
    Limit,
    MachinePlan,
    PlanCounts,
)
from slipstream.results.tuning import NO_FIT, OK, SAME
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.study import TrialRow


def machine_plan(
    machine: Machine,
    space: Space,
    rows: Sequence[TrialRow],
    objective: Objective,
    stopped_because: str,
    measurements: Measurements | None = None,
) -> MachinePlan:
    """The candidates of a study, ranked."""
    simulated = _candidates(rows)
    candidates, agreement = with_measurements(simulated, measurements)
    measured = sum(one.basis == MEASURED for one in candidates)
    capacity = machine.chip.memory_bytes
    found = MachinePlan(
        machine=machine.spec,
        devices=machine.devices,
        candidates=candidates,
        best=None,
        ties=(),
        pareto=(),
        counts=replace(_counts(space, simulated), measured=measured),
        skipped=_skipped(space),
        memory_capacity_bytes=capacity,
        memory_limit_bytes=objective.memory_limit(capacity),
        price_per_hour=objective.price_per_hour(machine),
        stopped_because=stopped_because,
        agreement=agreement,
    )
    found = ranked(found, objective.kind, unit_of(rows, objective))
    if agreement is None:
        return found
    return replace(found, reasons=(*found.reasons, agreement.text))


def _skipped(space: Space) -> tuple[str, ...]:
    """What was ruled out, by reason: thousands of combinations have the same few."""
    by_reason: dict[str, list[Skipped]] = {}
    for one in space.skipped:
        by_reason.setdefault(one.why, []).append(one)
    return tuple(
        str(those[0]) if len(those) == 1 else f"{len(those):,} sets of values: {why}"
        for why, those in by_reason.items()
    )


def why_empty(space: Space) -> tuple[str, ...]:
    """Why nothing is left of a space; a condition, which sizes of a mesh come before, leads."""
    return tuple(sorted(_skipped(space), key=lambda text: WHERE not in text))


def unit_of(rows: Sequence[TrialRow], objective: Objective) -> str:
    """What the work is called."""
    seen = (row.outcome.details for row in rows if row.outcome is not None)
    return objective.unit or next((one["unit"] for one in seen if one and one["unit"]), "units")


def _candidates(rows: Sequence[TrialRow]) -> list[Candidate]:
    found: list[Candidate] = []
    programs: dict[str, int] = {}
    for row in rows:
        if row.state != "done" or row.outcome is None or row.repeat_of is not None:
            continue
        one = candidate_of(len(found), row.settings, row.outcome)
        program = row.outcome.program
        if program:
            first = programs.setdefault(program, one.number)
            if first != one.number:
                status = SAME if one.status == OK else one.status
                one = replace(one, status=status, same_program_as=first)
        found.append(one)
    return found


def candidate_of(number: int, settings: Settings, outcome: Outcome) -> Candidate:
    details = outcome.details or {}
    work, accumulate = details.get("work"), int(details.get("accumulate", 1))
    step = outcome.step_us
    return Candidate(
        number=number,
        choices=combination_of(settings).keywords,
        status=outcome.status,
        step_us=step,
        low_us=outcome.low_us,
        high_us=outcome.high_us,
        work=work,
        work_per_s=work / step * 1e6 if step and work else None,
        memory_bytes=outcome.memory_bytes,
        basis=SIMULATED if outcome.program else BOUND,
        accumulate=accumulate,
        accumulator_bytes=int(details.get("accumulator_bytes", 0)),
        limits=tuple(Limit(**one) for one in details.get("limits", ())),
        parts_us=outcome.parts_us or {},
        why=outcome.note,
    )


def _counts(space: Space, candidates: Sequence[Candidate]) -> PlanCounts:
    uncompiled = [one for one in candidates if one.basis == BOUND]
    bounded = [one for one in uncompiled if one.status in (NO_FIT, CANNOT_WIN)]
    failed = [one for one in uncompiled if one.status in FAILED and one not in bounded]
    return PlanCounts(
        combinations=space.count,
        bounded=len(bounded),
        compiled=sum(one.basis == SIMULATED for one in candidates),
        same=sum(one.same_program_as is not None for one in candidates),
        failed=len(failed),
    )

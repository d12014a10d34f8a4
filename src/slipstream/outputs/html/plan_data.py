"""A plan as data for its page: candidates in the order of their throughput, values as indices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from slipstream.machines.topology import chip_name
from slipstream.results.planning import PARTS, Candidate, MachinePlan, Plan, ScalingPoint


def plan_data(plan: Plan) -> dict[str, Any]:
    """What the scripts of the page read."""
    names = choice_names(plan)
    parts = part_names(plan)
    return {
        "unit": plan.unit,
        "first": first_shown(plan),
        "names": names,
        "parts": parts,
        "machines": [_machine(one, names, parts) for one in plan.machines],
        "scaling": [_point(one) for one in plan.scaling],
        "strong": [_point(one) for one in strong_points(plan)],
    }


def first_shown(plan: Plan) -> int:
    """The machine that the page shows at first: one on which something can be run."""
    found = [at for at, one in enumerate(plan.machines) if one.best is not None]
    return found[0] if found else 0


def strong_points(plan: Plan) -> tuple[ScalingPoint, ...]:
    """Strong scaling, if that is not what the best candidates do anyway."""
    return plan.strong if not all(one.same_work for one in plan.scaling) else ()


def choice_names(plan: Plan) -> list[str]:
    """The choices of all machines, in the order of the signature."""
    found = {n: None for one in plan.machines for c in one.candidates for n in c.choices}
    return list(found)


def part_names(plan: Plan) -> list[str]:
    """The parts that any step has."""
    found = {n: None for one in plan.machines for c in one.candidates for n in c.parts_us}
    return [*(n for n in PARTS if n in found), *(n for n in found if n not in PARTS)]


def value_text(value: object) -> str:
    """A choice's value: `4`, `0.5`, `full`, `True`."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def ordered_values(values: Iterable[object]) -> list[object]:
    """Distinct values: numbers by size, anything else in the order given; None is first."""
    found = list({(type(one), one): one for one in values}.values())
    numbers = [one for one in found if isinstance(one, int | float) and not isinstance(one, bool)]
    if len(numbers) + (None in found) == len(found):
        return [*([None] if None in found else []), *sorted(numbers)]
    return found


def ranked(machine: MachinePlan) -> list[Candidate]:
    """Candidates that fit, the most work per second first, then the others as they were tried."""
    fitting = [one for one in machine.candidates if one.is_fitting]
    others = [one for one in machine.candidates if not one.is_fitting]
    return [*sorted(fitting, key=lambda one: -(one.work_per_s or 0.0)), *others]


def _point(one: ScalingPoint) -> dict[str, Any]:
    return {
        "machine": one.machine,
        "gpu": chip_name(one.machine),
        "devices": one.devices,
        "rate": _number(one.work_per_s),
        "efficiency": _number(one.efficiency),
        "exposed": _number(one.exposed_share),
    }


def _machine(machine: MachinePlan, names: Sequence[str], parts: Sequence[str]) -> dict[str, Any]:
    values = {
        name: ordered_values(c.choices[name] for c in machine.candidates if name in c.choices)
        for name in names
    }
    places = {
        name: {(type(value), value): at for at, value in enumerate(values[name])} for name in names
    }
    return {
        "name": machine.machine,
        "devices": machine.devices,
        "capacity": machine.memory_capacity_bytes,
        "limit": machine.memory_limit_bytes,
        "price": _number(machine.price_per_hour),
        "best": machine.best.number if machine.best is not None else None,
        "ties": list(machine.ties),
        "pareto": list(machine.pareto),
        "values": [[value_text(value) for value in values[name]] for name in names],
        "candidates": [_candidate(one, names, places, parts) for one in ranked(machine)],
    }


def _candidate(
    one: Candidate,
    names: Sequence[str],
    places: dict[str, dict[tuple[type, object], int]],
    parts: Sequence[str],
) -> dict[str, Any]:
    at = [
        places[name][type(one.choices[name]), one.choices[name]] if name in one.choices else -1
        for name in names
    ]
    found = {
        "number": one.number,
        "values": at,
        "status": one.status,
        "fits": one.is_fitting,
        "us": _number(one.step_us),
        "low": _number(one.low_us),
        "high": _number(one.high_us),
        "work": _number(one.work),
        "rate": _number(one.work_per_s),
        "memory": one.memory_bytes,
        "basis": one.basis,
        "predicted": _number(one.predicted_us),
        "accumulate": one.accumulate if one.accumulate != 1 else None,
        "limits": [[kind.kind, _number(kind.share), kind.text] for kind in one.limits],
        "parts": [_number(one.parts_us.get(name, 0.0)) for name in parts] if one.parts_us else None,
        "same": one.same_program_as,
        "flags": [f"--{name}={value}" for name, value in one.flags.items()],
        "why": one.why,
    }
    return {key: value for key, value in found.items() if value not in (None, "", [])}


def _number(value: float | None) -> float | None:
    """Six significant digits; None for what JSON does not have."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")

"""How the best candidates of several machines compare: throughput, efficiency, cost.

A step that does the same work on every machine shows strong scaling; one whose work grows with the
machine shows weak scaling.  In both cases the efficiency is each device's throughput, relative to
the smallest machine with the same chip.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from slipstream.machines.topology import chip_name
from slipstream.results.planning import Candidate, MachinePlan, ScalingPoint
from slipstream.results.tuning import OK

SECONDS_PER_HOUR = 3600
TAKES_OVER = 0.5
"""share of the step from which on communication decides it"""
EFFICIENT = 0.9
"""efficiency below which a machine is said to lose throughput"""


def scaling(machines: Sequence[MachinePlan]) -> tuple[ScalingPoint, ...]:
    """The best candidate of each machine, the smallest machine first; empty if only one has any."""
    return _points([(one, one.best) for one in machines if one.best is not None])


def strong_scaling(machines: Sequence[MachinePlan]) -> tuple[ScalingPoint, ...]:
    """The best candidates whose steps do the same work, where two machines or more have any.

    Of all amounts of work, it is one that the most machines have, and of those the largest.
    """
    best: dict[float, dict[str, tuple[MachinePlan, Candidate]]] = defaultdict(dict)
    for plan in machines:
        for one in plan.candidates:
            if one.status != OK or not one.work or not one.work_per_s:
                continue
            known = best[one.work].get(plan.machine)
            if known is None or one.work_per_s > (known[1].work_per_s or 0.0):
                best[one.work][plan.machine] = plan, one
    work = max(best, key=lambda work: (len(best[work]), work), default=None)
    return _points(list(best[work].values())) if work is not None else ()


def _points(found: Sequence[tuple[MachinePlan, Candidate]]) -> tuple[ScalingPoint, ...]:
    known = sorted((one for one in found if one[1].work_per_s), key=lambda one: one[0].devices)
    if len(known) < 2:
        return ()
    first: dict[str, tuple[MachinePlan, Candidate]] = {}
    for plan, best in known:
        first.setdefault(chip_name(plan.machine), (plan, best))
    return tuple(_point(plan, best, *first[chip_name(plan.machine)]) for plan, best in known)


def _point(
    plan: MachinePlan, best: Candidate, smallest: MachinePlan, reference: Candidate
) -> ScalingPoint:
    rate = best.work_per_s or 0.0
    price = plan.price_per_hour
    return ScalingPoint(
        machine=plan.machine,
        devices=plan.devices,
        choices=best.choices,
        step_us=best.step_us or 0.0,
        work_per_s=rate,
        work_per_s_per_device=rate / plan.devices,
        efficiency=rate / plan.devices / ((reference.work_per_s or 1.0) / smallest.devices),
        exposed_share=_share(best, best.exposed_us),
        cost_per_work=price / SECONDS_PER_HOUR / rate if price is not None else None,
        same_work=best.work is not None and best.work == reference.work,
    )


def _share(best: Candidate, us: float) -> float:
    whole = sum(best.parts_us.values())
    return us / whole if whole else 0.0


def scaling_reasons(machines: Sequence[MachinePlan], unit: str) -> tuple[str, ...]:
    """Sentences about several machines; empty if there are fewer than two points."""
    points, strong = scaling(machines), strong_scaling(machines)
    if not points:
        return ()
    if all(point.same_work for point in points):
        strong = ()
    return (
        *_efficiency(points, unit),
        *_takes_over(points),
        *(f"with the same work in a step, {text}" for text in _takes_over(strong)),
        *_layouts(points),
        *_cheapest(points, unit),
    )


def _efficiency(points: Sequence[ScalingPoint], unit: str) -> Iterator[str]:
    same_chip = _by_chip(points)[chip_name(points[-1].machine)]
    if len(same_chip) < 2:
        return
    first, last = same_chip[0], same_chip[-1]
    yield (
        f"from {first.devices} to {last.devices} devices, with {_work(first, last)} in a step: "
        f"{last.work_per_s / first.work_per_s:.1f} times the {unit}/s, "
        f"{last.efficiency:.0%} efficiency"
    )
    lost = next((one for one in same_chip if one.efficiency < EFFICIENT), None)
    if lost is not None and lost is not last:
        yield f"efficiency falls below {EFFICIENT:.0%} at {lost.machine}"


def _work(first: ScalingPoint, last: ScalingPoint) -> str:
    if last.same_work:
        return "the same work"
    is_more = last.work_per_s * last.step_us > first.work_per_s * first.step_us
    return "more work" if is_more else "less work"


def _by_chip(points: Iterable[ScalingPoint]) -> Mapping[str, list[ScalingPoint]]:
    found: dict[str, list[ScalingPoint]] = defaultdict(list)
    for point in points:
        found[chip_name(point.machine)].append(point)
    return found


def _takes_over(points: Sequence[ScalingPoint]) -> Iterator[str]:
    """The first machine whose step waits for communication for longer than for all the rest."""
    over = next((one for one in points if one.exposed_share > TAKES_OVER), None)
    if over is not None:
        yield (
            f"communication takes over at {over.machine}: {over.exposed_share:.0%} of the step is "
            "exposed communication"
        )
        return
    most = max(points, key=lambda one: one.exposed_share, default=None)
    if most is not None and most.exposed_share:
        yield (
            f"communication takes over nowhere: at most {most.exposed_share:.0%} of the step is "
            f"exposed communication, at {most.machine}"
        )


def _layouts(points: Sequence[ScalingPoint]) -> Iterator[str]:
    """`remat: full on 8xH100, dots from 64xH100 on`; each chip has its own sizes."""
    for same_chip in _by_chip(points).values():
        yield from _layouts_by_size(same_chip)


def _layouts_by_size(points: Sequence[ScalingPoint]) -> Iterator[str]:
    for name in points[0].choices:
        runs: list[tuple[object, str]] = []
        for point in points:
            value = point.choices.get(name)
            if not runs or runs[-1][0] != value:
                runs.append((value, point.machine))
        if 1 < len(runs) < len(points):
            listed = ", ".join(f"{other} from {machine} on" for other, machine in runs[1:])
            yield f"best {name}: {runs[0][0]} on {points[0].machine}, {listed}"


def _cheapest(points: Sequence[ScalingPoint], unit: str) -> Iterator[str]:
    priced = [one for one in points if one.cost_per_work is not None]
    if len(priced) < 2:
        return
    least = min(priced, key=lambda one: one.cost_per_work or 0.0)
    yield f"{unit} cost least on {least.machine}"

"""How the best candidates of several machines compare: throughput, efficiency, cost.

A step that does the same work on every machine shows strong scaling; one whose work grows with the
machine shows weak scaling.  In both cases the efficiency is each device's throughput, relative to
the smallest machine with the same GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from slipstream.results.planning import (
    ATTENTION,
    PRODUCTS,
    RECOMPUTATION,
    Candidate,
    MachinePlan,
    ScalingPoint,
)

SECONDS_PER_HOUR = 3600
EFFICIENT = 0.9
"""efficiency below which a machine is said to lose throughput"""


def scaling(machines: Sequence[MachinePlan]) -> tuple[ScalingPoint, ...]:
    """The best candidate of each machine, the smallest machine first; empty if only one has any."""
    known = sorted((one for one in machines if _rate(one)), key=lambda one: one.devices)
    if len(known) < 2:
        return ()
    first: dict[str, MachinePlan] = {}
    for one in known:
        first.setdefault(_gpu(one), one)
    return tuple(_point(one, first[_gpu(one)]) for one in known)


def _point(plan: MachinePlan, smallest: MachinePlan) -> ScalingPoint:
    best, rate = _best(plan), _rate(plan)
    per_device = rate / plan.devices
    price = plan.price_per_hour
    return ScalingPoint(
        machine=plan.machine,
        devices=plan.devices,
        choices=best.choices,
        step_us=best.step_us or 0.0,
        work_per_s=rate,
        work_per_s_per_device=per_device,
        efficiency=per_device / (_rate(smallest) / smallest.devices),
        exposed_share=_share(best, best.exposed_us),
        cost_per_work=price / SECONDS_PER_HOUR / rate if price is not None else None,
        same_work=best.work is not None and best.work == _best(smallest).work,
    )


def _gpu(plan: MachinePlan) -> str:
    """`H100` for `8x8xH100`."""
    return plan.machine.rpartition("x")[2]


def _best(plan: MachinePlan) -> Candidate:
    assert plan.best is not None  # asked only of machines that have a rate
    return plan.best


def _rate(plan: MachinePlan) -> float:
    """Work per second of the best candidate; 0 if there is none."""
    return plan.best.work_per_s or 0.0 if plan.best is not None else 0.0


def _share(best: Candidate, us: float) -> float:
    whole = sum(best.parts_us.values())
    return us / whole if whole else 0.0


def scaling_reasons(machines: Sequence[MachinePlan], unit: str) -> tuple[str, ...]:
    """Sentences about several machines; empty if there are fewer than two points."""
    points = scaling(machines)
    if not points:
        return ()
    return (
        *_efficiency(points, unit),
        *_takes_over(machines, points),
        *_layouts(points),
        *_cheapest(points, unit),
    )


def _efficiency(points: Sequence[ScalingPoint], unit: str) -> Iterator[str]:
    same_gpu = [one for one in points if one.machine.rpartition("x")[2] == _last_gpu(points)]
    if len(same_gpu) < 2:
        return
    first, last = same_gpu[0], same_gpu[-1]
    strength = "the same work in a step" if last.same_work else "more work in a step"
    yield (
        f"from {first.devices} to {last.devices} devices, with {strength}: "
        f"{last.work_per_s / first.work_per_s:.1f} times the {unit}/s, "
        f"{last.efficiency:.0%} efficiency"
    )
    lost = next((one for one in same_gpu if one.efficiency < EFFICIENT), None)
    if lost is not None and lost is not last:
        yield f"efficiency falls below {EFFICIENT:.0%} at {lost.machine}"


def _last_gpu(points: Sequence[ScalingPoint]) -> str:
    return points[-1].machine.rpartition("x")[2]


def _takes_over(machines: Sequence[MachinePlan], points: Sequence[ScalingPoint]) -> Iterator[str]:
    """The first machine whose step waits for communication longer than it computes products."""
    found = {one.machine: one.best for one in machines if one.best is not None}
    for point in points:
        best = found[point.machine]
        useful = sum(best.parts_us.get(part, 0.0) for part in (PRODUCTS, ATTENTION, RECOMPUTATION))
        if best.exposed_us > useful:
            yield (
                f"communication takes over at {point.machine}: {point.exposed_share:.0%} of the "
                f"step is exposed communication, {_share(best, useful):.0%} products and attention"
            )
            return
    most = max(points, key=lambda one: one.exposed_share)
    if most.exposed_share:
        yield (
            f"communication takes over nowhere: at most {most.exposed_share:.0%} of the step is "
            f"exposed communication, at {most.machine}"
        )


def _layouts(points: Sequence[ScalingPoint]) -> Iterator[str]:
    """`remat: full on 8xH100, dots from 64xH100 on`."""
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

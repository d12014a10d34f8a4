"""`slipstream plan` as text and JSON."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from slipstream.outputs.formatting import (
    amount_text,
    band_text,
    plural,
    share_text,
    time_text,
)
from slipstream.outputs.terminal.compiled.plan_agreement import agreement_lines
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    column_widths,
    heading,
    paragraph,
    styled_text,
    table_lines,
    wrap,
)
from slipstream.results.planning import (
    CANNOT_WIN,
    FAILED,
    FITTING,
    INVALID,
    MEASURED,
    PER_DEVICE,
    PER_DOLLAR,
    TIME,
    Candidate,
    Choices,
    MachinePlan,
    Plan,
    ScalingPoint,
)
from slipstream.results.tuning import CRASH, HANG, NO_FIT, OK, REFUSED
from slipstream.units import format_bytes

DEFAULT_TOP, TOP_OF_MANY = 10, 3
"""candidates shown of one machine, and of each of several"""
MOST_REASONS = 4
"""kinds of failures, and skipped combinations, that are listed"""
MOST_FRONT = 6
_SECONDS_PER_HOUR = 3600
_FAILURES = {REFUSED: "refused", CRASH: "crashed", HANG: "hung", INVALID: "invalid"}


# JSON.


def plan_json(plan: Plan) -> dict[str, Any]:
    """What `plan --json` prints: the plan of the first machine; of all, if there are several."""
    plans = [_machine_json(plan, one) for one in plan.machines]
    return {
        "target": plan.target,
        **(plans[0] if plans else {}),
        "global_batch": plan.global_batch,
        "scaling": [asdict(point) for point in plan.scaling],
        "strong_scaling": [asdict(point) for point in plan.strong],
        "scaling_reasons": list(plan.reasons),
        "jaxlib": plan.jaxlib,
        "seconds": plan.seconds,
        "study": plan.folder,
        "plans": plans if len(plans) > 1 else [],
    }


def _machine_json(plan: Plan, machine: MachinePlan) -> dict[str, Any]:
    return {
        "machine": machine.machine,
        "devices": machine.devices,
        "objective": plan.objective,
        "unit": plan.unit,
        "best": _candidate_json(machine.best) if machine.best is not None else None,
        "candidates": [_candidate_json(one) for one in machine.candidates],
        "ties": list(machine.ties),
        "pareto": list(machine.pareto),
        "reasons": list(machine.reasons),
        "counts": asdict(machine.counts),
        "skipped": list(machine.skipped),
        "memory_capacity_bytes": machine.memory_capacity_bytes,
        "memory_limit_bytes": machine.memory_limit_bytes,
        "price_per_hour": machine.price_per_hour,
        "stopped_because": machine.stopped_because,
        "agreement": asdict(machine.agreement) if machine.agreement is not None else None,
    }


def _candidate_json(candidate: Candidate) -> dict[str, Any]:
    return {
        **asdict(candidate),
        "choices": dict(candidate.choices),
        "parts_us": dict(candidate.parts_us),
        "flags": dict(candidate.flags),
    }


# Text.


def render_plan(plan: Plan, width: int = WIDTH, top: int | None = None) -> Text:
    """The best candidate of each machine and why, the runners-up, and how the machines compare."""
    where = [one.machine for one in plan.machines]
    if len(where) > 1:
        where = [plural(len(where), "machine")]
    jaxlib = [f"jaxlib {plan.jaxlib}"] if plan.jaxlib else []
    lines = heading([plan.target, *where, _aim(plan), *jaxlib], width)
    if len(plan.machines) == 1:
        lines += _machine(plan, plan.machines[0], width, top or DEFAULT_TOP)
        lines += _details(plan, plan.machines[0], width)
    else:
        lines += _scaling(plan, width)
        for machine in plan.machines:
            lines += [("", ""), *((line, "bold") for line in wrap([machine.machine], width))]
            lines += _machine(plan, machine, width, top or TOP_OF_MANY)
    return styled_text(lines)


def _aim(plan: Plan) -> str:
    """`most tokens/s`, `least time for 4.19M tokens`"""
    if plan.objective != TIME:
        return f"most {_unit(plan)}"
    return f"least time for {amount_text(plan.global_batch or 0.0)} {plan.unit}"


def candidate_line(candidate: Candidate, unit: str, width: int = WIDTH) -> str:
    """One candidate on one line, shown while a search runs."""
    figure = candidate.status
    if candidate.status in FITTING and candidate.work_per_s is not None:
        figure = f"{amount_text(candidate.work_per_s)} {unit}/s"
    line = f"{figure:>16}  {choices_text(candidate.choices)}"
    if candidate.status not in FITTING and candidate.why:
        line = f"{line}: {candidate.why}"
    return line if cell_len(line) <= width else line[: width - 1] + "…"


def choices_text(choices: Choices) -> str:
    """`fsdp=8 tensor=1 remat=full`"""
    return " ".join(f"{name}={value}" for name, value in choices.items())


def _machine(plan: Plan, machine: MachinePlan, width: int, top: int) -> list[Line]:
    lines = _best(plan, machine, width)
    lines += [
        (line, "dim") for reason in machine.reasons for line in paragraph(reason, width, "- ", "  ")
    ]
    ordered = _ordered(plan, machine)
    if len(ordered) > 1:
        lines += [("", ""), *_candidates(plan, machine, ordered, width, top)]
    lines += agreement_lines(machine, width, top)
    return [*lines, ("", ""), *_counts(machine, width)]


def _details(plan: Plan, machine: MachinePlan, width: int) -> list[Line]:
    return [*_failures(machine, width), *_front(plan, machine, width)]


def _best(plan: Plan, machine: MachinePlan, width: int) -> list[Line]:
    best = machine.best
    if best is None:
        tried = "no candidate can be run" if machine.candidates else "nothing was tried yet"
        return [(tried, "bold")]
    parts = [_amount(best, plan, machine), _step(best)]
    if best.memory_bytes is not None:
        parts.append(f"memory {_memory(machine, best)}")
    lines: list[Line] = [(line, "bold") for line in wrap(parts, width)]
    chosen = [f"{name}={value}" for name, value in best.choices.items()]
    lines += [(line, "") for line in wrap(chosen, width, separator=" ", indent="  ")]
    if best.accumulate > 1:
        said = f"gradients of {best.accumulate} steps are added up for one global batch"
        if best.accumulator_bytes:
            said += f", in {format_bytes(best.accumulator_bytes)} of that memory"
        lines += [(line, "") for line in paragraph(said, width, "  ", "  ")]
    if best.flags and best.flags_step_us is not None:
        said = f"with these flags, the step takes {time_text(best.flags_step_us)}:"
        lines += [(line, "") for line in paragraph(said, width, "  ", "  ")]
    for name, value in best.flags.items():
        lines += [(line, "") for line in paragraph(f"--{name}={value}", width, "  ", "    ")]
    return lines


def _step(best: Candidate) -> str:
    if best.step_us is None:
        return "step unknown"
    shown = time_text(best.step_us)
    if best.low_us is not None and best.high_us is not None:
        shown = band_text(best.step_us, best.low_us, best.high_us)
    said = f"step {shown}, {best.basis}"
    if best.basis == MEASURED and best.predicted_us is not None:
        said += f" (predicted {time_text(best.predicted_us)})"
    return said


def _memory(machine: MachinePlan, candidate: Candidate) -> str:
    used = format_bytes(candidate.memory_bytes or 0)
    most = machine.memory_limit_bytes or machine.memory_capacity_bytes
    return f"{used} of {format_bytes(most)}" if most else used


# What the objective makes of a candidate.


def _amount(candidate: Candidate, plan: Plan, machine: MachinePlan) -> str:
    """`1.04M tokens/s`"""
    figure = _figure(candidate, plan, machine)
    return figure if plan.objective == TIME else f"{figure} {_unit(plan)}"


def _unit(plan: Plan) -> str:
    if plan.objective == TIME:
        return "time"
    per = {PER_DEVICE: "s/device", PER_DOLLAR: "$"}.get(plan.objective, "s")
    return f"{plan.unit}/{per}"


def _figure(candidate: Candidate, plan: Plan, machine: MachinePlan) -> str:
    if plan.objective == TIME:
        us = candidate.step_us
        return time_text(us * candidate.accumulate) if us is not None else "–"
    rate = candidate.work_per_s
    if rate is None:
        return "–"
    if plan.objective == PER_DEVICE:
        return amount_text(rate / machine.devices)
    if plan.objective == PER_DOLLAR:
        price = machine.price_per_hour
        return amount_text(rate * _SECONDS_PER_HOUR / price) if price else "–"
    return amount_text(rate)


def _ordered(plan: Plan, machine: MachinePlan) -> list[Candidate]:
    """Candidates that can be run, each program once: the best, and the others in order."""

    def cost(one: Candidate) -> float:
        if plan.objective == TIME or not one.work_per_s:
            return (one.step_us or 0.0) * one.accumulate
        return 1e6 / one.work_per_s

    known = [one for one in machine.candidates if one.status == OK and one.step_us is not None]
    best = machine.best.number if machine.best is not None else None
    return sorted(known, key=lambda one: (one.number != best, cost(one), one.number))


def _candidates(
    plan: Plan, machine: MachinePlan, ordered: Sequence[Candidate], width: int, top: int
) -> list[Line]:
    columns = [
        TextColumn("#", right=True),
        TextColumn(""),
        TextColumn(_unit(plan), right=True),
        TextColumn("step", right=True),
        TextColumn("memory", right=True),
        TextColumn("exposed", right=True),
    ]
    has_measured = any(one.basis == MEASURED for one in ordered)
    columns += [TextColumn("basis")] if has_measured else []
    facts = [_facts(plan, machine, one, has_measured) for one in ordered]
    names = _varying([one.choices for one in ordered])
    values = [[str(one.choices.get(name, "–")) for name in names] for one in ordered]
    wide = [*columns, *(TextColumn(name) for name in names)]
    rows = [[*fact, *value] for fact, value in zip(facts, values, strict=True)]
    needed = sum(column_widths(wide, rows[:top], 10**6)) + 2 * (len(wide) - 1)
    if needed > width:
        wide = [*columns, TextColumn("differs in", min_width=16)]
        rows = [
            [*fact, _differing(one, ordered[0])] for fact, one in zip(facts, ordered, strict=True)
        ]
    lines = table_lines(wide, rows, width, top)
    if len(machine.ties) > 1:
        lines.append(("= can't be told apart from the best", "dim"))
    return lines


def _facts(plan: Plan, machine: MachinePlan, one: Candidate, has_measured: bool) -> list[str]:
    whole = sum(one.parts_us.values())
    return [
        str(one.number),
        "=" if one.number in machine.ties else "",
        _figure(one, plan, machine),
        time_text(one.step_us) if one.step_us is not None else "–",
        format_bytes(one.memory_bytes) if one.memory_bytes is not None else "–",
        share_text(one.exposed_us / whole, 0) if whole else "–",
        *([one.basis] if has_measured else []),
    ]


def _varying(chosen: Sequence[Choices]) -> list[str]:
    """The choices that have more than one value."""
    names = dict.fromkeys(name for choices in chosen for name in choices)
    return [name for name in names if len({choices.get(name) for choices in chosen}) > 1]


def _differing(one: Candidate, best: Candidate) -> str:
    if one.number == best.number:
        return "the best"
    chosen = best.choices
    return choices_text(
        {name: value for name, value in one.choices.items() if chosen.get(name) != value}
    )


# How much was tried, and what failed.


def _counts(machine: MachinePlan, width: int) -> list[Line]:
    counts = machine.counts
    said = [
        (counts.bounded, "bounded away"),
        (counts.compiled, "compiled"),
        (counts.same, "equal to another"),
        (counts.failed, "failed"),
        (counts.measured, "measured"),
        (counts.combinations - len(machine.candidates), "not tried"),
    ]
    listed = ", ".join(f"{count:,} {what}" for count, what in said if count > 0)
    noun = "combination" if counts.combinations == 1 else "combinations"
    text = f"{counts.combinations:,} {noun}" + (f": {listed}" if listed else "")
    text += f"; stopped: {machine.stopped_because}" if machine.stopped_because else ""
    return [(line, "dim") for line in paragraph(text, width)]


def _failures(machine: MachinePlan, width: int) -> list[Line]:
    texts = [*_settled(machine), *_failed(machine), *_skipped(machine)]
    return [(line, "dim") for text in texts for line in paragraph(text, width, "  ", "    ")]


def _settled(machine: MachinePlan) -> Iterator[str]:
    """Those that don't fit, and those that can't win."""
    large = [one.memory_bytes for one in machine.candidates if one.status == NO_FIT]
    known = [size for size in large if size is not None]
    if large:
        most = format_bytes(machine.memory_limit_bytes or machine.memory_capacity_bytes)
        least = f": the smallest needs {format_bytes(min(known))} of {most}" if known else ""
        yield f"{len(large)} {'does' if len(large) == 1 else 'do'} not fit{least}"
    slow = sum(one.status == CANNOT_WIN for one in machine.candidates)
    if slow:
        yield f"{slow} cannot win, even at {'its bound' if slow == 1 else 'their bounds'}"


def _failed(machine: MachinePlan) -> Iterator[str]:
    """Failures by reason, with one combination that has it."""
    groups: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for one in machine.candidates:
        if one.status in FAILED and one.status != NO_FIT:
            groups[one.status, one.why].append(one)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    for (status, why), own in ordered[:MOST_REASONS]:
        example = choices_text(own[0].choices)
        reason = f": {why}" if why else ""
        yield f"{len(own)} {_FAILURES.get(status, status)}{reason} ({example})"
    rest = sum(len(own) for _, own in ordered[MOST_REASONS:])
    if rest:
        yield f"{rest} more failed for other reasons: --json"


def _skipped(machine: MachinePlan) -> Iterator[str]:
    for text in machine.skipped[:MOST_REASONS]:
        yield f"skipped {text}"
    rest = len(machine.skipped) - MOST_REASONS
    if rest > 0:
        yield f"{rest} more kinds of combinations were skipped: --json"


def _front(plan: Plan, machine: MachinePlan, width: int) -> list[Line]:
    """What less memory costs: the front, the least memory first."""
    if len(machine.pareto) < 2:
        return []
    numbers = _spread(machine.pareto)
    parts = [
        f"#{number} {format_bytes(one.memory_bytes or 0)} {_figure(one, plan, machine)}"
        for number in numbers
        for one in [machine.candidate(number)]
    ]
    left = len(machine.pareto) - len(numbers)
    more = f", {left} more between them" if left else ""
    said = f"memory against {_unit(plan)}, the Pareto front{more}:"
    return [
        ("", ""),
        *((line, "") for line in paragraph(said, width)),
        *((line, "") for line in wrap(parts, width, indent="  ")),
    ]


def _spread(numbers: Sequence[int]) -> list[int]:
    """At most MOST_FRONT of them, with both ends."""
    if len(numbers) <= MOST_FRONT:
        return list(numbers)
    last = len(numbers) - 1
    return [numbers[round(at * last / (MOST_FRONT - 1))] for at in range(MOST_FRONT)]


# Several machines.


def _scaling(plan: Plan, width: int) -> list[Line]:
    if not plan.scaling:
        return []
    lines = [*_points(plan, plan.scaling, width), (_strength(plan.scaling), "dim")]
    if plan.strong and any(not point.same_work for point in plan.scaling):
        lines += [("", ""), ("with the same work in a step (strong scaling)", "")]
        lines += _points(plan, plan.strong, width)
    reasons = [line for text in plan.reasons for line in paragraph(text, width, "- ", "  ")]
    return [*lines, *((line, "dim") for line in reasons)]


def _points(plan: Plan, points: Sequence[ScalingPoint], width: int) -> list[Line]:
    """A table, with the choices that vary below each machine."""
    has_cost = any(one.cost_per_work is not None for one in points)
    columns = [
        TextColumn("machine", min_width=8),
        TextColumn(f"{plan.unit}/s", right=True),
        TextColumn("a device", right=True),
        TextColumn("efficiency", right=True),
        TextColumn("step", right=True),
        TextColumn("exposed", right=True),
        *([TextColumn(f"$/M {plan.unit}", right=True)] if has_cost else []),
    ]
    names = _varying([point.choices for point in points])
    head, *body = table_lines(columns, [_point(point, has_cost) for point in points], width)
    lines = [head]
    for line, point in zip(body, points, strict=True):
        chosen = [f"{name}={point.choices[name]}" for name in names if name in point.choices]
        lines += [line, *((one, "dim") for one in wrap(chosen, width, " ", indent="  "))]
    return lines


def _strength(points: Sequence[ScalingPoint]) -> str:
    if all(point.same_work for point in points):
        return "every step does the same work (strong scaling)"
    if any(point.same_work for point in points[1:]):
        return "some steps do the same work as on the smallest machine, others don't"
    return "steps do other work than on the smallest machine (weak scaling)"


def _point(point: ScalingPoint, has_cost: bool) -> list[str]:
    cost = point.cost_per_work
    return [
        point.machine,
        amount_text(point.work_per_s),
        amount_text(point.work_per_s_per_device),
        share_text(point.efficiency, 0),
        time_text(point.step_us),
        share_text(point.exposed_share, 0),
        *([f"{cost * 1e6:,.3g}" if cost is not None else "–"] if has_cost else []),
    ]

"""What to run on each machine: the choices, the figures, how sure they are, and how to use them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from slipstream.outputs.formatting import amount_text, band_text, plural, share_text, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.plan_data import first_shown, value_text
from slipstream.results.planning import (
    BOUND,
    MEASURED,
    PER_DEVICE,
    PER_DOLLAR,
    TIME,
    Candidate,
    Choices,
    MachinePlan,
    Plan,
)
from slipstream.results.tuning import NO_FIT
from slipstream.units import format_bytes

OBJECTIVES = {PER_DEVICE: "per device", PER_DOLLAR: "per dollar"}


def best_section(plan: Plan) -> Section:
    """One panel for each machine; the page shows one at a time."""
    panels = machine_panels(plan, [_panel(plan, one, at) for at, one in enumerate(plan.machines)])
    body = panels or tag("p", "No machine was planned for.", class_="empty")
    return Section("best", "Recommendation", body)


def machine_panels(plan: Plan, bodies: Sequence[Html]) -> Html:
    """What there is to say about each machine; the page shows one at a time."""
    shown = first_shown(plan)
    return join(
        tag("div", body, class_="machine", data_machine=at, hidden=at != shown)
        for at, body in enumerate(bodies)
    )


def _panel(plan: Plan, machine: MachinePlan, at: int) -> Html:
    if machine.best is None:
        return _nothing(machine)
    return join(
        (
            tag("p", _verdict(plan, machine, machine.best), class_="lede"),
            chips(machine.best.choices),
            tag("dl", list(_figures(plan, machine, machine.best)), class_="figures"),
            _memory(machine, machine.best),
            _reasons(machine),
            _sure(machine),
            _use(plan, machine.best, at),
        )
    )


def chips(choices: Choices) -> Html:
    """`fsdp 8` `remat full`: one chip for each choice."""
    made = [
        tag("li", tag("span", name), " ", tag("b", value_text(value)))
        for name, value in choices.items()
    ]
    return tag("ul", made, class_="chips", aria_label="Choices")


def _verdict(plan: Plan, machine: MachinePlan, best: Candidate) -> Html:
    fitting = sum(one.is_fitting for one in machine.candidates)
    number = tag("button", f"Candidate {best.number}", type="button", **_pick(best.number))
    what = f" is the best of {fitting:,} that fit" if fitting > 1 else " is the only one that fits"
    if len(machine.candidates) == 1:
        what = " is the only one"
    goal = {TIME: ", by the time for the global batch"} | {
        key: f", by work {text}" for key, text in OBJECTIVES.items()
    }
    basis = "measured" if best.basis == MEASURED else "simulated, nothing ran"
    return join(
        (
            tag("b", machine.machine),
            ": ",
            number,
            what,
            goal.get(plan.objective, ""),
            f" ({basis}).",
        )
    )


def _pick(number: int) -> dict[str, str | int]:
    return {"class_": "pick", "data_pick": number}


def _figures(plan: Plan, machine: MachinePlan, best: Candidate) -> Iterator[Html]:
    rate = best.work_per_s
    if rate:
        each = f"{amount_text(rate / machine.devices)} per device" if machine.devices > 1 else ""
        yield _figure("Throughput", _with_unit(rate, f"{plan.unit}/s"), each, "first")
    if best.step_us is not None:
        yield _figure("Step", *_step(best))
    if best.work:
        below = f"over {plural(machine.devices, 'device')}"
        yield _figure("Work in a step", _with_unit(best.work, plan.unit), below)
    if plan.global_batch is not None and best.step_us is not None:
        below = f"{amount_text(plan.global_batch)} {plan.unit}, {plural(best.accumulate, 'step')}"
        yield _figure("Global batch", time_text(best.step_us * best.accumulate), below)
    elif best.accumulate > 1:
        yield _figure("Accumulation", plural(best.accumulate, "step"), "for one global batch")
    if machine.price_per_hour and rate:
        cost, many = cost_text(machine.price_per_hour / 3600 / rate, plan.unit)
        yield _figure("Cost", cost, f"{many}, at ${_dollars(machine.price_per_hour)} an hour")
    if best.limits:
        first = best.limits[0]
        yield _figure("Mostly", share_text(first.share, 0), first.kind)


def _with_unit(value: float, unit: str) -> Html:
    return join((amount_text(value), " ", tag("span", unit, class_="unit")))


def _figure(name: str, value: Html | str, below: str, more: str = "") -> Html:
    return tag(
        "div",
        tag("dt", name),
        tag("dd", value, tag("small", below) if below else None),
        class_=f"figure {more}".strip(),
    )


def _step(best: Candidate) -> tuple[str, str]:
    step = best.step_us or 0.0
    if best.low_us is None or best.high_us is None:
        return time_text(step), best.basis
    shown, _, band = band_text(step, best.low_us, best.high_us).partition(" (")
    kind = "95% interval" if best.basis == MEASURED else "90% band"
    below = f"{band.removesuffix(')')}, {kind}"
    if best.predicted_us is not None:
        below += f"; predicted {time_text(best.predicted_us)}"
    return shown, below


def _dollars(price: float) -> str:
    return f"{price:,.2f}".removesuffix(".00")


def cost_text(dollars: float, unit: str) -> tuple[str, str]:
    """`$0.64` and `per million tokens`: the cost of an amount that costs cents or more."""
    scales = ((1, ""), (1e3, "1,000 "), (1e6, "million "), (1e9, "billion "))
    scale, name = next((one for one in scales if dollars * one[0] >= 0.01), scales[-1])
    one = unit.removesuffix("s") if not name else unit
    return f"${dollars * scale:,.2f}", f"per {name}{one}"


# Memory: what is used, what is free, and the margin.


def _memory(machine: MachinePlan, best: Candidate) -> Html | None:
    used, limit, capacity = (
        best.memory_bytes,
        machine.memory_limit_bytes,
        machine.memory_capacity_bytes,
    )
    if used is None:
        return tag("p", "The memory that it needs is not known.", class_="note")
    if not capacity:
        return tag("p", f"It needs {format_bytes(used)} of memory on each device.", class_="note")
    limit = limit or capacity
    free = f"{format_bytes(limit - used)} free" if used <= limit else "over the limit"
    margin = (capacity - limit) / capacity
    said = [tag("b", format_bytes(used)), f" of {format_bytes(limit)} ({free})"]
    if margin > 0:
        said.append(f" · margin {share_text(margin, 0)} of {format_bytes(capacity)}")
    label = f"Memory of a device: {format_bytes(used)} used, limit {format_bytes(limit)}"
    whole = max(capacity, used)
    shapes = [
        _part(0, used, whole, "fill-accent" if used <= limit else "fill-over"),
        _part(limit, capacity, whole, "fill-margin"),
        tag("rect", x=1000 * limit / whole - 1, y=0, width=2, height=10, class_="fill-bad"),
    ]
    bar = tag(
        "svg",
        shapes,
        class_="bar membar",
        role="img",
        aria_label=label,
        viewBox="0 0 1000 10",
        preserveAspectRatio="none",
    )
    caption = tag("figcaption", tag("b", "Memory of a device"), tag("span", said))
    return tag("figure", caption, bar, class_="memory")


def _part(start: float, end: float, whole: float, kind: str) -> Html:
    wide = max(end - start, 0.0)
    return tag(
        "rect", x=1000 * start / whole, y=0, width=1000 * wide / whole, height=10, class_=kind
    )


# Why, and how sure.


def _reasons(machine: MachinePlan) -> Html | None:
    if not machine.reasons:
        return None
    items = [tag("li", one) for one in machine.reasons]
    return join((tag("h3", "Why"), tag("ul", items, class_="reasons")))


def _sure(machine: MachinePlan) -> Html:
    best = machine.best.number if machine.best is not None else None
    others = [number for number in machine.ties if number != best]
    if sum(one.is_fitting and one.step_us is not None for one in machine.candidates) < 2:
        said: list[Html | str] = ["There is nothing to compare it with."]
    elif not others:
        said = ["No other candidate can be as good, given the errors of both."]
    else:
        shown = [
            join((tag("button", str(one), type="button", **_pick(one)), " ")) for one in others[:12]
        ]
        more = f"and {len(others) - 12} more " if len(others) > 12 else ""
        said = [
            f"A tie with {plural(len(others), 'other candidate')}: ",
            *shown,
            more,
            "can't be told from it within the error. ",
            tag("code", "--measure"),
            " on a device decides.",
        ]
    return join((tag("h3", "How sure"), tag("p", said, class_="sure")))


# How to use it.


def _use(plan: Plan, best: Candidate, at: int) -> Html:
    made = [tag("h3", "Use it"), _copied(f"use-{at}", usage_text(plan, best.choices))]
    if best.flags:
        flags = " ".join(f"--{name}={value}" for name, value in best.flags.items())
        made.append(_copied(f"flags-{at}", f'export XLA_FLAGS="{flags}"'))
    return join(made)


def usage_text(plan: Plan, choices: Choices) -> str:
    """The command with its places filled in, or the call of the build function."""
    target = plan.target
    places = re.findall(r"\{(\w+)\}", target)
    if any(name in choices for name in places):
        filled = target
        for name, value in choices.items():
            filled = filled.replace(f"{{{name}}}", value_text(value))
        return filled
    file, colon, function = target.rpartition(":")
    words = ", ".join(f"{name}={_argument(name, value, plan)}" for name, value in choices.items())
    return f"{function if file and colon else 'build'}(devices, {words})"


def _argument(name: str, value: object, plan: Plan) -> str:
    """A value as Python's source has it."""
    if name in plan.enums and isinstance(value, str):
        return f"{plan.enums[name]}.{value}"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)


def _copied(name: str, text: str) -> Html:
    button = tag("button", "Copy", type="button", class_="button", data_copy=name)
    return tag("div", tag("pre", text, id=name), button, class_="do")


# Nothing to recommend.


def _nothing(machine: MachinePlan) -> Html:
    if not machine.candidates:
        why = f" ({machine.stopped_because})" if machine.stopped_because else ""
        text = f"No combination was tried on {machine.machine}{why}."
        return join((tag("p", text, class_="empty"), _reasons(machine)))
    counts = Counter(one.status for one in machine.candidates)
    said = ", ".join(f"{count:,} × {status}" for status, count in counts.most_common())
    text = f"No combination can be recommended on {machine.machine}"
    parts = [tag("p", tag("b", f"{text}."), f" {said}." if said else "", class_="empty")]
    known = [one for one in machine.candidates if one.status == NO_FIT and one.memory_bytes]
    if known:
        least = min(known, key=lambda one: one.memory_bytes or 0)
        number = tag("button", f"candidate {least.number}", type="button", **_pick(least.number))
        bound = "at least " if least.basis == BOUND else ""
        need = f": {bound}{format_bytes(least.memory_bytes or 0)} of "
        limit = format_bytes(machine.memory_limit_bytes or machine.memory_capacity_bytes)
        parts.append(tag("p", "The smallest is ", number, need, limit, ".", class_="note"))
    return join((*parts, _reasons(machine)))

"""Bars and curves as SVG; shapes stretch with the page, text does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.outputs.formatting import share_text
from slipstream.outputs.html.markup import Html, join, tag

WIDE = 1000.0
"""width of a drawing in its own coordinates; the page stretches it"""
LEAST_SPAN = 2.0
"""shorter spans of a lane are drawn this wide, to be seen"""


@dataclass(frozen=True)
class BarPart:
    """One part of a bar; `kind` is its colour."""

    name: str
    value: float
    kind: str
    text: str


def bar(parts: Sequence[BarPart], label: str, total: float | None = None, size: str = "") -> Html:
    """The parts of a whole, side by side."""
    whole = total if total is not None else sum(part.value for part in parts)
    rects, at = [], 0.0
    for part in parts:
        wide = WIDE * part.value / whole if whole > 0 else 0.0
        if wide > 0:
            title = tag("title", f"{part.name} {part.text}")
            rects.append(_rect(at, 0.0, wide, 10.0, f"fill-{part.kind}", title))
        at += wide
    return _drawing(rects, 10, label, f"bar {size}".strip())


def legend(parts: Sequence[BarPart], whole: float | None = None) -> Html:
    """The names, amounts and shares of a bar's parts."""
    items = []
    for part in parts:
        share = share_text(part.value / whole, 0) if whole else ""
        swatch = _rect(0, 0, 10, 10, f"fill-{part.kind}")
        key = tag("svg", swatch, class_="key", viewBox="0 0 10 10", aria_hidden="true")
        items.append(
            tag("li", key, tag("span", part.name), tag("b", part.text), tag("span", share))
        )
    return tag("ul", items, class_="legend")


def meter(share: float, kind: str = "compute", size: str = "slim") -> Html:
    """A small bar of one share, without text."""
    rects = [
        _rect(0, 0, WIDE, 10, "fill-line"),
        _rect(0, 0, WIDE * min(max(share, 0.0), 1.0), 10, f"fill-{kind}"),
    ]
    return _drawing(rects, 10, None, f"bar {size}")


def share_bar(share: float, text: str, kind: str = "compute") -> Html:
    """A share as a small bar and a number."""
    return tag("span", meter(share, kind), text, class_="share")


@dataclass(frozen=True)
class ChartCurve:
    """Values over time, at equal intervals."""

    values: Sequence[float]
    kind: str = "accent"
    is_line: bool = False


def curves(
    drawn: Sequence[ChartCurve],
    label: str,
    most: float,
    most_text: str,
    ends: tuple[str, str],
    limit: float | None = None,
) -> Html:
    """Areas and lines over time, with a dashed line at the limit."""
    shapes = [_line(one, most) if one.is_line else _area(one, most) for one in drawn]
    if limit is not None and 0 < limit <= most * 1.0001:
        y = 100 * (1 - limit / most)
        shapes.append(tag("path", d=f"M0 {y:.2f}H{WIDE:.0f}", class_="limit"))
    plot = tag(
        "div",
        _drawing(shapes, 100, label, None),
        tag("span", most_text, class_="most"),
        class_="plot",
    )
    return join((plot, tag("div", tag("span", ends[0]), tag("span", ends[1]), class_="ends")))


def chart(title: str, facts: Sequence[str], plot: Html, tall: bool = False) -> Html:
    """A plot with its title and a few facts."""
    caption = tag("figcaption", tag("b", title), tag("span", " · ".join(f for f in facts if f)))
    return tag("figure", caption, plot, class_="chart tall" if tall else "chart")


def columns(stacks: Sequence[Sequence[BarPart]], label: str, most: float) -> Html:
    """One column for each stack of parts."""
    wide = WIDE / max(len(stacks), 1)
    gap = min(wide * 0.2, 4.0)
    rects = []
    for at, stack in enumerate(stacks):
        low = 100.0
        for part in stack:
            tall = 100 * part.value / most if most > 0 else 0.0
            low -= tall
            title = tag("title", f"{part.name} {part.text}")
            rects.append(_rect(at * wide, low, wide - gap, tall, f"fill-{part.kind}", title))
    return _drawing(rects, 100, label, None)


@dataclass(frozen=True)
class Lane:
    """Spans of time on one line: (start, end, kind, what it is)."""

    name: str
    spans: Sequence[tuple[float, float, str, str]]
    amount: str = ""
    """shown behind the name, whole however long the name is"""


def lanes(
    drawn: Sequence[Lane], label: str, most: float, ends: tuple[str, str] | None = None
) -> Html:
    """Lines of spans over one axis, as a timeline shows them; `ends` are the ends of the axis."""
    rows = []
    for lane in drawn:
        rects = [
            _rect(
                WIDE * start / most,
                0.0,
                max(WIDE * (end - start) / most, LEAST_SPAN),
                10.0,
                f"fill-{kind}",
                tag("title", what),
            )
            for start, end, kind, what in lane.spans
            if most > 0
        ]
        text = f"{lane.name} {lane.amount}".rstrip()
        row = _drawing(rects, 10, f"{label}: {text}", "bar lane")
        amount = tag("b", lane.amount) if lane.amount else None
        name = tag("span", tag("span", lane.name), amount, class_="lane-name", title=text)
        rows.append(tag("div", name, row, class_="lane-row"))
    if ends is not None and rows:
        rows.append(tag("div", tag("span", ends[0]), tag("span", ends[1]), class_="ends"))
    return tag("div", rows, class_="lanes")


@dataclass(frozen=True)
class Dot:
    """A point of a plot with two logarithmic axes."""

    x: float
    y: float
    size: float
    """of its radius, 0 to 1"""
    kind: str
    what: str


def roofs_plot(
    dots: Sequence[Dot], roofs: tuple[float, float], label: str, axes: tuple[str, str]
) -> Html:
    """Points under a slope and a ceiling: `y = slope * x`, and `y = ceiling`."""
    slope, ceiling = roofs
    xs = [*(dot.x for dot in dots), ceiling / slope]
    low_x, high_x = math.floor(math.log10(min(xs))), math.ceil(math.log10(max(xs)) + 0.2)
    high_y = math.ceil(math.log10(max(ceiling, *(dot.y for dot in dots))) + 0.05)
    low_y = max(math.floor(math.log10(min(dot.y for dot in dots))), high_y - 6)
    wide, tall, left, below = 910.0, 294.0, 60.0, 320.0

    def x(value: float) -> float:
        return left + wide * (math.log10(value) - low_x) / (high_x - low_x)

    def y(value: float) -> float:
        share = (math.log10(max(value, 10.0**low_y)) - low_y) / (high_y - low_y)
        return below - tall * share

    shapes: list[Html] = []
    for power in range(low_x, high_x + 1):
        at = x(10.0**power)
        shapes.append(tag("path", d=f"M{at:.1f} {below - tall:.1f}V{below:.1f}", class_="grid"))
        shapes.append(tag("text", f"{10.0**power:g}", x=at, y=below + 16, class_="tick middle"))
    for power in range(low_y, high_y + 1):
        at = y(10.0**power)
        shapes.append(tag("path", d=f"M{left:.1f} {at:.1f}H{left + wide:.1f}", class_="grid"))
        shapes.append(tag("text", f"{10.0**power:g}", x=left - 6, y=at + 4, class_="tick end"))
    first = max(10.0**low_x, 10.0**low_y / slope)
    roof = f"M{x(first):.1f} {y(slope * first):.1f}L{x(ceiling / slope):.1f} {y(ceiling):.1f}"
    shapes.append(tag("path", d=f"{roof}H{left + wide:.1f}", class_="roof"))
    for dot in sorted(dots, key=lambda one: -one.size):
        shapes.append(
            tag("circle", tag("title", dot.what), cx=x(dot.x), cy=y(dot.y), r=3 + 11 * dot.size,
                class_=f"dot fill-{dot.kind}")
        )  # fmt: skip
    shapes.append(tag("text", axes[0], x=left + wide, y=below + 32, class_="tick end"))
    shapes.append(tag("text", axes[1], x=left - 50, y=below - tall - 14, class_="tick"))
    svg = tag("svg", shapes, viewBox="0 0 1000 360", role="img", aria_label=label, class_="roofs")
    return tag("div", svg, class_="plot")


def thinned(values: Sequence[float], most: int) -> list[float]:
    """At most `most` values: the largest of each interval, so that no peak is lost."""
    if len(values) <= most:
        return list(values)
    size = math.ceil(len(values) / most)
    return [max(values[at : at + size]) for at in range(0, len(values), size)]


def _area(curve: ChartCurve, most: float) -> Html:
    path = _steps(curve.values, most)
    return tag("path", d=f"M0 100{path}V100Z", class_=f"fill-{curve.kind}")


def _line(curve: ChartCurve, most: float) -> Html:
    path = _steps(curve.values, most)
    return tag("path", d=f"M0 {path[1:].partition('H')[0]}{path}", class_="stroke")


def _steps(values: Sequence[float], most: float) -> str:
    """SVG path commands `V` and `H` for each value; equal neighbours share one."""
    wide = WIDE / max(len(values), 1)
    found: list[str] = []
    for at, value in enumerate(values):
        y = 100 * (1 - min(value / most, 1.0)) if most > 0 else 100.0
        step, x = f"V{y:.4g}", f"H{(at + 1) * wide:.5g}"
        if found and found[-2] == step:
            found[-1] = x
        else:
            found += [step, x]
    return "".join(found) or "V100H0"


def _rect(x: float, y: float, wide: float, tall: float, class_: str, *inside: Html) -> Html:
    return tag(
        "rect", *inside, x=x, y=y, width=max(wide, 0.0), height=max(tall, 0.0), class_=class_
    )


def _drawing(shapes: Sequence[Html], tall: int, label: str | None, class_: str | None) -> Html:
    named = {"role": "img", "aria_label": label} if label is not None else {"aria_hidden": "true"}
    return tag(
        "svg",
        shapes,
        viewBox=f"0 0 {WIDE:.0f} {tall}",
        preserveAspectRatio="none",
        class_=class_,
        **named,
    )

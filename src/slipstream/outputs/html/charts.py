"""Bars and curves as SVG; shapes stretch with the page, text does not."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.outputs.formatting import share_text
from slipstream.outputs.html.markup import Html, join, tag

WIDE = 1000.0
"""width of a drawing in its own coordinates; the page stretches it"""


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

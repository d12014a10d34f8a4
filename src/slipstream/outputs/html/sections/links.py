"""One kind of link in one direction, as a chart over time."""

from __future__ import annotations

from slipstream.analyses.network.links import Series
from slipstream.analyses.network.network import Network
from slipstream.outputs.formatting import share_text, time_text
from slipstream.outputs.html.charts import ChartCurve, chart, curves
from slipstream.outputs.html.markup import Html
from slipstream.outputs.terminal.network import LINKS
from slipstream.units import format_bytes

KINDS = {
    "link": "communication",
    "network": "communication",
    "dcn": "communication",
    "ici": "communication",
    "host": "copy",
}


def span_us(result: Network) -> float:
    """The time that charts show."""
    return result.bin_us * max((len(one.rates) for one in result.series), default=0)


def link_name(one: Series) -> str:
    """`Between slices, in`."""
    name = LINKS[one.link]
    return f"{name[:1].upper()}{name[1:]}, {one.direction}"


def series_chart(one: Series, result: Network) -> Html:
    """Bandwidth over time, with the link's capacity."""
    shown = max(one.rates, default=0.0)
    near = one.capacity is not None and one.capacity <= 3 * shown
    most = max(shown, one.capacity or 0.0) if near else shown
    text = f"{format_bytes(most)}/s" + (" (capacity)" if near and most > shown else "")
    text += f", means of {time_text(result.bin_us)}" if most == shown else ""
    facts = [
        f"{format_bytes(one.per_step_bytes)} {'per step' if result.steps else 'in all'}",
        f"{format_bytes(one.mean)}/s on average",
        f"{format_bytes(one.peak)}/s at the busiest moment",
        f"of {format_bytes(one.capacity)}/s, {one.capacity_of}" if one.capacity else "",
        f"{share_text(one.demand)} needed if spread evenly" if one.demand is not None else "",
    ]
    bins = f"means of {time_text(result.bin_us)}, at most {format_bytes(shown)}/s"
    label = f"{link_name(one)}: bandwidth over time, {bins}"
    drawn = [ChartCurve(one.rates, KINDS[one.link])]
    ends = ("0", time_text(span_us(result)))
    plot = curves(drawn, label, most, text, ends, one.capacity if near else None)
    return chart(link_name(one), facts, plot)

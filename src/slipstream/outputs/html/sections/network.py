"""The network over time: rates, capacities, and problems."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.analyses.network.latency import Latency
from slipstream.analyses.network.links import Region, Series
from slipstream.analyses.network.network import Network
from slipstream.analyses.network.problems import NetworkProblem
from slipstream.analyses.network.slack import SliceCollective
from slipstream.outputs.formatting import count_text, plural, share_text, time_text
from slipstream.outputs.html.charts import ChartCurve, chart, curves
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    number,
    rate_cell,
    share_cell,
    table,
    us_cell,
)
from slipstream.outputs.terminal.network import LINKS
from slipstream.units import format_bytes

KINDS = {
    "link": "communication",
    "network": "communication",
    "dcn": "communication",
    "ici": "communication",
    "host": "copy",
}


def network_section(result: Network) -> Section:
    """Bandwidth over time on every kind of link."""
    if not result.series and result.latency is None:
        text = "The steps move no bytes between devices or to host memory."
        return Section("network", "Network", tag("p", text, class_="empty"))
    span = result.bin_us * max((len(one.rates) for one in result.series), default=0)
    parts = [
        join(_series(one, result, span) for one in result.series),
        _regions(result),
        _slices(result.collectives),
        _latency(result.latency, span) if result.latency is not None else None,
        _troubles(result.troubles),
        notes_of(result.notes),
    ]
    badge = str(len(result.troubles)) if result.troubles else ""
    return Section("network", "Network", join(parts), _lede(result), badge)


def _lede(result: Network) -> str:
    full = [one for one in result.series if one.bound_share]
    steps = plural(result.steps, "step") if result.steps else "the whole recording"
    of = f" of {result.machine}" if result.machine else ""
    text = f"Traffic on the links{of} over {steps}."
    for one in full:
        share = share_text(one.bound_share or 0.0)
        text += f" {_name(one)}: saturated {share} of the time."
    return text


def _name(one: Series) -> str:
    name = LINKS[one.link]
    return f"{name[:1].upper()}{name[1:]}, {one.direction}"


def _series(one: Series, result: Network, span_us: float) -> Html:
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
    label = f"{_name(one)}: bandwidth over time, {bins}"
    plot = curves(
        [ChartCurve(one.rates, KINDS[one.link])], label, most, text, ("0", time_text(span_us)),
        one.capacity if near else None,
    )  # fmt: skip
    return chart(_name(one), facts, plot)


def _regions(result: Network) -> Html | None:
    if not result.regions:
        return None
    alike: dict[tuple[str, str, tuple[str, ...]], list[Region]] = {}
    for region in result.regions:
        alike.setdefault((region.link, region.direction, region.ops), []).append(region)
    steps = max(result.steps, 1)
    columns = [
        TableColumn("Saturated while exposed"),
        TableColumn("Link", is_wide=True),
        number("Times per step", wide=True),
        number("Exposed per step"),
        number("Rate", wide=True),
        number("Of capacity"),
    ]
    groups = sorted(alike.items(), key=lambda one: -sum(r.exposed_us for r in one[1]))
    rows: list[Row] = [
        [
            tag("span", ", ".join(ops), class_="c"),
            f"{LINKS[link]}, {direction}",
            Cell(count_text(len(found) / steps), len(found) / steps),
            us_cell(sum(region.exposed_us for region in found) / steps),
            rate_cell(sum(region.rate for region in found) / len(found)),
            share_cell(sum(region.share for region in found) / len(found), 0),
        ]
        for (link, direction, ops), found in groups
    ]
    made = table(columns, rows, "Bandwidth-bound regions", 8, "slipstream network --json")
    return join((tag("h3", "Saturated links"), made))


def _slices(found: Sequence[SliceCollective]) -> Html | None:
    if not found:
        return None
    columns = [
        TableColumn("Between slices"),
        TableColumn("Type", is_wide=True),
        number("Slack"),
        number("Duration", wide=True),
        number("recv-done", wide=True),
        number("Stall per step"),
        number("Bytes", wide=True),
        number("Needs, Gbit/s", wide=True),
    ]
    rows: list[Row] = [
        [
            tag("span", one.name, class_="c"),
            one.transfer_type.lower().replace("_", "-"),
            us_cell(one.slack_us),
            us_cell(one.observed_us),
            us_cell(one.recv_done_us),
            us_cell(one.per_step_us),
            bytes_cell(one.bytes),
            f"{one.required_gbps:.1f}" if one.required_gbps is not None else "–",
        ]
        for one in found
    ]
    made = table(columns, rows, "Collectives between slices", 10, "slipstream network --json")
    return join((tag("h3", "Collectives between slices"), made))


def _latency(found: Latency, span_us: float) -> Html:
    middle = [one.p50_us if one is not None else 0.0 for one in found.bins]
    high = [one.p99_us if one is not None else 0.0 for one in found.bins]
    most = max(high, default=0.0)
    drawn = [ChartCurve(high, "muted"), ChartCurve(middle, "communication")]
    label = f"Latency of transfers: median and 99th percentile over time, at most {time_text(most)}"
    plot = curves(drawn, label, most, time_text(most), ("0", time_text(span_us)))
    every = found.all
    facts = [
        plural(every.count, "transfer"),
        f"median {time_text(every.p50_us)}",
        f"90% {time_text(every.p90_us)}",
        f"99% {time_text(every.p99_us)}",
        f"max {time_text(every.most_us)}",
    ]
    shown = chart("Latency of transfers between slices", facts, plot)
    if not found.left_out:
        return shown
    left = ", ".join(f"{count} with {why}" for why, count in found.left_out.items())
    return join((shown, tag("p", f"Left out: {left}.", class_="note")))


def _sentence(text: str, end: str = ".") -> str:
    return text[:1].upper() + text[1:].rstrip(".") + end


def _troubles(found: Sequence[NetworkProblem]) -> Html | None:
    if not found:
        return None
    items = [
        tag(
            "li",
            tag("div", time_text(one.per_step_us), tag("small", "per step"), class_="gain"),
            tag(
                "div",
                tag("h3", _sentence(one.title, "")),
                tag("p", _sentence(one.evidence)),
                tag("p", _sentence(one.remedy)),
                tag("p", one.source, class_="note"),
            ),
            class_="finding",
            data_rule=one.code,
        )
        for one in found
    ]
    return join(
        (tag("h3", "Problems described in Megascale's guide"), tag("ol", items, class_="findings"))
    )

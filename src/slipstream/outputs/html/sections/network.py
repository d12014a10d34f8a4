"""The network over time: rates and capacities."""

from __future__ import annotations

from slipstream.analyses.network.flows import DCN
from slipstream.analyses.network.links import Region
from slipstream.analyses.network.network import Network
from slipstream.outputs.formatting import count_text, plural, share_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.sections.links import link_name, series_chart
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    number,
    rate_cell,
    share_cell,
    table,
    us_cell,
)
from slipstream.outputs.terminal.network import LINKS


def network_section(result: Network) -> Section:
    """Bandwidth over time on every kind of link."""
    if not result.series:
        text = "The steps move no bytes between devices or to host memory."
        return Section("network", "Network", tag("p", text, class_="empty"))
    shown = [one for one in result.series if one.link != DCN or not result.guide]
    elsewhere = None
    if len(shown) < len(result.series):
        link = tag("a", "Megascale", href="#megascale")
        elsewhere = tag("p", "Traffic between slices: ", link, class_="note")
    parts = [
        join(series_chart(one, result) for one in shown),
        elsewhere,
        _regions(result),
        notes_of(result.notes),
    ]
    return Section("network", "Network", join(parts), _lede(result))


def _lede(result: Network) -> str:
    full = [one for one in result.series if one.bound_share]
    steps = plural(result.steps, "step") if result.steps else "the whole recording"
    of = f" of {result.machine}" if result.machine else ""
    text = f"Traffic on the links{of} over {steps}."
    for one in full:
        share = share_text(one.bound_share or 0.0)
        text += f" {link_name(one)}: saturated {share} of the time."
    return text


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

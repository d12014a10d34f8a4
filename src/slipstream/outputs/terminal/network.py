"""`slipstream network` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.text import Text

from slipstream.analyses.network.guide import (
    FINE,
    PROBLEM,
    UNKNOWN,
    GuideAnswer,
)
from slipstream.analyses.network.latency import Latency, Percentiles
from slipstream.analyses.network.links import Region
from slipstream.analyses.network.network import Network
from slipstream.analyses.network.problems import GUIDE
from slipstream.analyses.network.slack import SliceCollective
from slipstream.outputs.formatting import count_text, plural, share_text, time_text
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    paragraph,
    styled_text,
    table,
    wrap,
)
from slipstream.units import format_bytes

MAX_REGIONS = 5
MAX_COLLECTIVES = 8
LINKS = {
    "link": "GPU link",
    "network": "network",
    "host": "host memory",
    "dcn": "between slices",
    "ici": "ICI",
}
_LEVELS = " ▁▂▃▄▅▆▇█"
MARKS = {PROBLEM: ("! ", "yellow"), FINE: ("✓ ", "green"), UNKNOWN: ("? ", "cyan")}


def network_json(found: Network) -> dict[str, Any]:
    """What `network --json` prints."""
    data = asdict(found)
    for row, collective in zip(data["collectives"], found.collectives, strict=True):
        row["stall_us"] = collective.stall_us
    return data


def render_network(found: Network, width: int = WIDTH) -> Text:
    """Rates over time, saturated links, transfer latencies, and problems with remedies."""
    lines: list[Line] = [(line, "bold") for line in wrap(_header(found), width)]
    if found.series:
        lines += [("", ""), *_series(found, width)]
    if found.regions:
        lines += [("", ""), *_regions(found, width)]
    if found.collectives:
        lines += [("", ""), *_collectives(found.collectives, found.hides_by_latency, width)]
    if found.latency is not None:
        lines += [("", ""), *_latency(found.latency, width)]
    lines += _guide(found.guide, width)
    if found.notes:
        lines.append(("", ""))
    for note in found.notes:
        lines += [(line, "dim") for line in paragraph(note, width, "· ", "  ")]
    return styled_text(lines)


def sparkline(values: Sequence[float], width: int, most: float) -> str:
    """Values over time as blocks, resampled to `width`; any value above 0 is visible."""
    if not values or most <= 0:
        return " " * width
    edges = np.linspace(0, len(values), width + 1)
    total = np.concatenate(([0.0], np.cumsum(values)))
    means = np.diff(np.interp(edges, np.arange(len(total)), total)) / np.diff(edges)
    levels = [min(8, max(round(8 * m / most), 1 if m > 1e-9 * most else 0)) for m in means]
    return "".join(_LEVELS[level] for level in levels)


def _header(found: Network) -> list[str]:
    steps = plural(found.steps, "step") if found.steps else "the whole recording"
    parts = ["links over time", steps, time_text(found.step_us) if found.steps else ""]
    return [part for part in (*parts, found.machine) if part]


def _series(found: Network, width: int) -> list[Line]:
    lines: list[Line] = []
    for one in found.series:
        most = max(one.rates, default=0.0)
        name = f"{LINKS[one.link]}, {one.direction}"
        bar = f"bars up to {_rate(most)}, each the mean of {time_text(found.bin_us)}"
        lines.append((f"{name} · {bar}", ""))
        lines.append((f"  ▕{sparkline(one.rates, width - 4, most)}▏", "cyan"))
        facts = [
            f"{format_bytes(one.per_step_bytes)} {'per step' if found.steps else 'in all'}",
            f"{_rate(one.mean)} on average",
            f"{_rate(one.peak)} at the busiest moment",
        ]
        if one.capacity is not None:
            facts.append(f"of {_rate(one.capacity)} ({one.capacity_of})")
        if one.demand is not None:
            facts.append(f"would need {share_text(one.demand)} of it if spread evenly")
        if one.bound_share:
            facts.append(f"saturated {share_text(one.bound_share)} of the time")
        lines += [(line, "") for line in wrap(facts, width, indent="  ")]
    return lines


def _regions(found: Network, width: int) -> list[Line]:
    """Regions with the same flows, in one row."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[Region]] = {}
    for region in found.regions:
        alike.setdefault((region.link, region.direction, region.ops), []).append(region)
    columns = [
        TextColumn("saturated while exposed", min_width=16),
        TextColumn("per step", right=True),
        TextColumn("exposed per step", right=True),
        TextColumn("rate", right=True),
        TextColumn("of link", right=True),
    ]
    steps = max(found.steps, 1)
    groups = sorted(alike.items(), key=lambda group: -sum(r.exposed_us for r in group[1]))
    rows = [
        (
            f"{', '.join(ops)} · {direction if link == 'host' else LINKS[link]}",
            count_text(len(regions) / steps),
            time_text(sum(one.exposed_us for one in regions) / steps),
            _rate(float(np.mean([one.rate for one in regions]))),
            share_text(float(np.mean([one.share for one in regions])), 0),
        )
        for (link, direction, ops), regions in groups[:MAX_REGIONS]
    ]
    heading, *body = table(columns, rows, width)
    lines: list[Line] = [(heading, "dim"), *((line, "") for line in body)]
    if left := len(groups) - len(rows):
        lines.append((f"… and {left} more: --json", "dim"))
    return lines


def _collectives(
    found: Sequence[SliceCollective], hides_by_latency: bool, width: int
) -> list[Line]:
    """In a predicted step the stall is the recv-done; the latency that would hide it is known."""
    columns = [
        TextColumn("collective", min_width=12),
        TextColumn("of", min_width=8),
        TextColumn("slack", right=True),
        TextColumn("recv-done", right=True),
        TextColumn("hidden to" if hides_by_latency else "stall/step", right=True),
        TextColumn("bytes", right=True),
        TextColumn("needs Gb/s", right=True),
    ]
    rows = [
        (
            one.name,
            one.moves or one.transfer_type.lower().replace("_", "-"),
            time_text(one.slack_us),
            _time(one.recv_done_us),
            _hidden_to(one) if hides_by_latency else _time(one.per_step_us),
            format_bytes(one.bytes) if one.bytes is not None else "–",
            f"{one.needs_gbps:,.1f}" if one.needs_gbps is not None else "–",
        )
        for one in found[:MAX_COLLECTIVES]
    ]
    heading, *body = table(columns, rows, width)
    lines: list[Line] = [(heading, "dim"), *((line, "") for line in body)]
    if left := len(found) - len(rows):
        lines.append((f"… and {left} more: --json", "dim"))
    if hides_by_latency:
        text = "hidden to: the latency up to which a transfer, alone on the network, is hidden"
        lines += [(line, "dim") for line in paragraph(text, width)]
    if any(one.bytes is not None and one.needs_gbps is None for one in found):
        text = "–: at no bandwidth, or at no latency: the slack is too short"
        lines += [(line, "dim") for line in paragraph(text, width)]
    return lines


def _hidden_to(one: SliceCollective) -> str:
    return time_text(one.hidden_to_latency_us) if one.hidden_to_latency_us is not None else "–"


def _time(us: float) -> str:
    return time_text(us) if us else "0"


def _latency(latency: Latency, width: int) -> list[Line]:
    medians = [one.p50_us if one is not None else 0.0 for one in latency.bins]
    highs = [one.p99_us if one is not None else 0.0 for one in latency.bins]
    most = max(highs)
    lines: list[Line] = [
        (f"transfers between slices: {_percentiles(latency.all)}", ""),
        (f"  median ▕{sparkline(medians, width - 12, most)}▏", "cyan"),
        (f"  99%    ▕{sparkline(highs, width - 12, most)}▏", "cyan"),
    ]
    for pair in latency.pairs[:3] if len(latency.pairs) > 1 else ():
        text = f"slice {pair.source_slice} → {pair.destination_slice}: {_percentiles(pair.latency)}"
        lines.append((f"  {text}", ""))
    if latency.left_out:
        left = ", ".join(f"{count} with {why}" for why, count in latency.left_out.items())
        lines.append((f"  left out: {left}", "dim"))
    return lines


def _percentiles(found: Percentiles) -> str:
    times = (found.p50_us, found.p90_us, found.p99_us, found.most_us)
    p50, p90, p99, most = (time_text(us) for us in times)
    return f"{found.count} · median {p50} · 90% {p90} · 99% {p99} · most {most}"


def _guide(answers: Sequence[GuideAnswer], width: int) -> list[Line]:
    """The questions of Megascale's guide, with their answers."""
    if not answers:
        return []
    head = "the questions of Megascale's guide, and what each answer rests on"
    lines: list[Line] = [("", ""), (head, "bold"), (GUIDE, "dim")]
    for one in answers:
        mark, style = MARKS[one.verdict]
        head = f"{one.question} {one.verdict} · {one.basis}"
        lines += [("", ""), *((line, style) for line in paragraph(head, width, mark, "  "))]
        lines += [(line, "") for line in paragraph(one.evidence, width, "  ", "  ")]
        if one.remedy:
            lines += [(line, "") for line in paragraph(one.remedy, width, "  → ", "    ")]
    return lines


def _rate(bytes_per_second: float) -> str:
    return f"{format_bytes(bytes_per_second)}/s"

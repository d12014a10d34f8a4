"""The step with other networks, as text and JSON: `predict --what-if network`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from slipstream.outputs.formatting import file_name, time_text
from slipstream.outputs.terminal.layout import Line, TextColumn, paragraph, table
from slipstream.results.what_if import NetworkCase, NetworkTransfer, NetworkWhatIf
from slipstream.units import format_bytes

MAX_TRANSFERS = 12


def what_if_json(found: NetworkWhatIf | None) -> dict[str, Any] | None:
    """`what_if` of `predict --json`."""
    return asdict(found) if found is not None else None


def render_what_if(found: NetworkWhatIf, machine: str, width: int) -> list[Line]:
    """What crosses the network, and the step on each network."""
    now = found.now
    head = f"between {found.between} of {machine}"
    if not found.transfers:
        text = f"{head}: nothing of this program crosses the network, so no network changes it"
        return [("", ""), *((line, "yellow") for line in paragraph(text, width, "! ", "  "))]
    network = f"{rate_text(now.gbps)} per host, {time_text(now.latency_us)} latency"
    lines: list[Line] = [("", ""), (f"{head} · {network}", "bold")]
    lines += _transfers(found.transfers, width)
    lines += [("", ""), *_cases(found, width), ("", "")]
    return lines + [(line, "") for line in paragraph(hidden_text(found), width)]


def rate_text(gbps: float) -> str:
    """`50 Gb/s`, `3,200 Gb/s`, `0.9 Gb/s`."""
    return f"{gbps:,.0f} Gb/s" if gbps >= 10 else f"{gbps:.2g} Gb/s"


def needs_text(one: NetworkTransfer) -> str:
    """The bandwidth that hides a transfer."""
    return rate_text(one.needs_gbps) if one.needs_gbps is not None else "–"


def change_text(case: NetworkCase, now: NetworkCase) -> str:
    """The change of the step against the machine's own network."""
    change = case.step_us / now.step_us - 1 if now.step_us else 0.0
    return f"{change:+.1%}" if abs(change) >= 0.0005 else "same"


def hidden_text(found: NetworkWhatIf) -> str:
    """From which network on the transfers are hidden."""
    now, rate, latency = found.now, found.hidden_from_gbps, found.hidden_to_latency_us
    by_rate = (
        f"from {rate_text(rate)} per host on (at {time_text(now.latency_us)} latency)"
        if rate is not None
        else f"at no bandwidth (at {time_text(now.latency_us)} latency)"
    )
    by_latency = (
        f"up to a latency of {time_text(latency)} at {rate_text(now.gbps)}"
        if latency is not None
        else f"at no latency at {rate_text(now.gbps)}"
    )
    return f"waits for other {found.between} are below 1% of the step {by_rate}, and {by_latency}"


def _transfers(found: Sequence[NetworkTransfer], width: int) -> list[Line]:
    kinds = {one.kind for one in found}
    same = kinds.pop() if len(kinds) == 1 else ""
    columns = [
        TextColumn(same or "transfer", min_width=14),
        TextColumn("source", min_width=6),
        TextColumn("sends", right=True),
        TextColumn("slack", right=True),
        TextColumn("takes", right=True),
        TextColumn("waits", right=True),
        TextColumn("needs", right=True),
    ]
    rows = [
        (
            one.description.removeprefix(f"{same} ") + (f" {one.times} ×" if one.times > 1 else ""),
            file_name(one.source),
            format_bytes(one.bytes),
            time_text(one.slack_us),
            time_text(one.us),
            time_text(one.wait_us) if one.wait_us else "–",
            needs_text(one),
        )
        for one in found[:MAX_TRANSFERS]
    ]
    heading, *body = table(columns, rows, width)
    lines: list[Line] = [(heading, "dim"), *((line, "") for line in body)]
    if left := len(found) - len(rows):
        lines.append((f"… and {left} more: --json", "dim"))
    if any(one.needs_gbps is None for one in found):
        text = "–: latency or another link takes longer than the slack, at any bandwidth"
        lines += [(line, "dim") for line in paragraph(text, width)]
    return lines


def grid(cases: Sequence[NetworkCase]) -> tuple[list[float], list[float]] | None:
    """(bandwidths, latencies) of cases that are all combinations of them; otherwise None."""
    rates = list(dict.fromkeys(case.gbps for case in cases))
    latencies = list(dict.fromkeys(case.latency_us for case in cases))
    distinct = {(case.gbps, case.latency_us) for case in cases}
    is_full = len(distinct) == len(rates) * len(latencies)
    return (rates, latencies) if is_full and min(len(rates), len(latencies)) > 1 else None


def _cases(found: NetworkWhatIf, width: int) -> list[Line]:
    made = grid(found.cases)
    if made is None:
        columns = [
            TextColumn("network, per host"),
            TextColumn("step", right=True),
            TextColumn("change", right=True),
            TextColumn("waits", right=True),
        ]
        rows = [
            (
                f"{rate_text(case.gbps)}, {time_text(case.latency_us)}"
                + (" (now)" if case is found.now else ""),
                time_text(case.step_us),
                change_text(case, found.now) if case is not found.now else "",
                time_text(case.wait_us),
            )
            for case in (found.now, *found.cases)
        ]
        return _lines(table(columns, rows, width))
    rates, latencies = made
    by_network = {(case.gbps, case.latency_us): case for case in found.cases}
    columns = [TextColumn("step at")]
    columns += [
        TextColumn(now_text(rate_text(gbps), gbps, found.now.gbps), right=True) for gbps in rates
    ]
    rows_of = []
    for latency in latencies:
        own = [by_network[gbps, latency] for gbps in rates]
        cells = [f"{time_text(one.step_us)} {change_text(one, found.now):>6}" for one in own]
        rows_of.append((now_text(time_text(latency), latency, found.now.latency_us), *cells))
    return _lines(table(columns, rows_of, width))


def now_text(text: str, value: float, now: float) -> str:
    """A bandwidth or latency, marked if it is the machine's own."""
    return f"{text} (now)" if value == now else text


def _lines(made: Sequence[str]) -> list[Line]:
    heading, *body = made
    return [(heading, "dim"), *((line, "") for line in body)]

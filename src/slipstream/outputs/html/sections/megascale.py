"""The questions of Megascale's guide, in its order, with the charts and tables that answer them."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.analyses.network.flows import DCN
from slipstream.analyses.network.guide import FINE, PROBLEM, UNKNOWN, GuideAnswer
from slipstream.analyses.network.latency import Latency
from slipstream.analyses.network.network import Network
from slipstream.analyses.network.problems import GUIDE
from slipstream.analyses.network.slack import SliceCollective
from slipstream.outputs.formatting import file_name, plural, time_text
from slipstream.outputs.html.charts import ChartCurve, chart, curves
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.sections.links import series_chart, span_us
from slipstream.outputs.html.tables import (
    Row,
    TableColumn,
    bytes_cell,
    named_cell,
    number,
    table,
    us_cell,
)
from slipstream.outputs.terminal.compiled.what_if import hidden_text
from slipstream.results.what_if import NetworkWhatIf

WORDS = {PROBLEM: ("problem", "up"), FINE: ("fine", "down"), UNKNOWN: ("unknown", None)}


def megascale_section(result: Network, what_if: NetworkWhatIf | None = None) -> Section:
    """One item for each question; `what_if` adds what other networks would change."""
    items = [_item(one, result, what_if) for one in result.guide]
    problems = sum(one.verdict == PROBLEM for one in result.guide)
    body = tag("ol", items, class_="findings")
    return Section("megascale", "Megascale", body, _lede(result), str(problems) if problems else "")


def _lede(result: Network) -> Html:
    counts = [
        (sum(one.verdict == verdict for one in result.guide), word)
        for verdict, word in ((PROBLEM, "found a problem"), (UNKNOWN, "could not be answered"))
    ]
    said = "; ".join(f"{plural(count, 'question')} {word}" for count, word in counts if count)
    guide = tag("a", "Megascale's guide", href=GUIDE)
    ending = f", in its order: {said}." if said else ", in its order: none found a problem."
    about = " Each answer says whether it rests on a recording or on a prediction."
    return join(("The questions of ", guide, ending, about))


def _item(one: GuideAnswer, result: Network, what_if: NetworkWhatIf | None) -> Html:
    word, colour = WORDS[one.verdict]
    verdict = tag("div", tag("span", word, class_=colour), tag("small", one.basis), class_="gain")
    text = [
        tag("h3", one.question),
        tag("p", _sentence(one.evidence)),
        tag("p", _sentence(one.remedy)) if one.remedy else None,
        *_shown(one.code, result, what_if),
        tag("p", tag("a", "in the guide", href=one.source), class_="note"),
    ]
    return tag("li", verdict, tag("div", text), class_="finding", data_rule=one.code)


def _shown(code: str, result: Network, what_if: NetworkWhatIf | None) -> list[Html]:
    """What belongs to the answer of a question."""
    if code == "small-slack" and result.collectives:
        return [_collectives(result.collectives, result.hides_by_latency)]
    if code == "bandwidth":
        return [series_chart(one, result) for one in result.series if one.link == DCN]
    if code == "latency":
        parts = [_latency(result.latency, span_us(result))] if result.latency is not None else []
        if what_if is not None and what_if.transfers:
            parts.append(tag("p", _sentence(hidden_text(what_if))))
        return parts
    return []


def _collectives(found: Sequence[SliceCollective], hides_by_latency: bool) -> Html:
    columns = [
        TableColumn("Between slices"),
        TableColumn("Source", is_wide=True),
        number("Slack"),
        number("Duration", wide=True),
        number("recv-done", wide=True),
        number("Stall per step"),
        number("Bytes", wide=True),
        number("Needs, Gbit/s per host", wide=True),
        *((number("Hidden to, latency", wide=True),) if hides_by_latency else ()),
    ]
    rows: list[Row] = [
        [
            named_cell(one.moves or one.name, one.name),
            tag("span", file_name(one.source), class_="c at"),
            us_cell(one.slack_us),
            us_cell(one.observed_us),
            us_cell(one.recv_done_us),
            us_cell(one.per_step_us),
            bytes_cell(one.bytes),
            f"{one.needs_gbps:,.1f}" if one.needs_gbps is not None else "–",
            *((us_cell(one.hidden_to_latency_us),) if hides_by_latency else ()),
        ]
        for one in found
    ]
    return table(columns, rows, "Collectives between slices", 10, "slipstream network --json")


def _latency(found: Latency, span: float) -> Html:
    middle = [one.p50_us if one is not None else 0.0 for one in found.bins]
    high = [one.p99_us if one is not None else 0.0 for one in found.bins]
    most = max(high, default=0.0)
    drawn = [ChartCurve(high, "muted"), ChartCurve(middle, "communication")]
    label = f"Latency of transfers: median and 99th percentile over time, at most {time_text(most)}"
    plot = curves(drawn, label, most, time_text(most), ("0", time_text(span)))
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


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."

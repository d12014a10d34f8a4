"""Predictions: machines side by side, the basis of the numbers, and waits."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.analyses.summary import StepTimes
from slipstream.machines.machine import BASIS_NAMES
from slipstream.outputs.formatting import (
    band_text,
    file_name,
    power_text,
    share_text,
    time_text,
)
from slipstream.outputs.html.charts import BarPart, bar, legend
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.sections.overview import step_parts
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    count_cell,
    named_cell,
    number,
    share_cell,
    table,
    us_cell,
)
from slipstream.outputs.terminal.compiled.what_if import (
    change_text,
    grid,
    hidden_text,
    needs_text,
    now_text,
    rate_text,
)
from slipstream.results.prediction import Prediction
from slipstream.results.what_if import NetworkCase, NetworkTransfer, NetworkWhatIf
from slipstream.units import format_bytes

BASES = {"measured": "p0", "calibrated": "p1", "compiler": "p3", "modelled": "p2", "default": "p4"}


def prediction_section(predictions: Sequence[Prediction]) -> Section:
    """All machines."""
    body = join(
        (
            _bars(predictions),
            _table(predictions),
            _basis(predictions),
            join(_unknown(one, len(predictions) > 1) for one in predictions),
            join(_waits(one, len(predictions) > 1) for one in predictions),
            join(_what_if(one.what_if, one.machine) for one in predictions if one.what_if),
            _messages(predictions),
        )
    )
    return Section("prediction", "Prediction", body, _lede(predictions))


def _lede(predictions: Sequence[Prediction]) -> Html:
    first = predictions[0]
    gain = first.bounds.gain(first.step_us)
    said = (
        f"perfect overlap would save at most {share_text(gain)}"
        if first.bounds.has_gain(first.step_us)
        else "even perfect overlap would save less than 2%"
    )
    step = tag("b", time_text(first.step_us))
    band = f" per step (90% band: {time_text(first.low_us)} … {time_text(first.high_us)}); {said}."
    return join((f"{first.program} on {first.machine} would take ", step, band))


def times_of(one: Prediction) -> StepTimes:
    """The step of a prediction, in a summary's form."""
    return StepTimes(
        wall_us=one.step_us,
        compute_us=one.compute_us,
        communication_us=one.communication_us,
        exposed_communication_us=one.exposed_communication_us,
        copy_us=one.copy_us,
        exposed_copy_us=one.exposed_copy_us,
        idle_us=one.idle_us,
        unattributed_us=0.0,
    )


def _bars(predictions: Sequence[Prediction]) -> Html:
    most = max(one.step_us for one in predictions)
    rows = []
    for one in predictions:
        parts = step_parts(times_of(one))
        said = ", ".join(f"{part.name} {part.text}" for part in parts)
        rows += [
            tag("span", one.machine, class_="name"),
            bar(parts, f"{one.machine}: {time_text(one.step_us)}, {said}", most),
            tag("span", time_text(one.step_us), class_="amount"),
        ]
    shown = {part.name: part for one in predictions for part in step_parts(times_of(one))}
    keys = tag("div", legend(list(shown.values())), class_="keysonly")
    return tag("div", tag("div", rows, class_="bars sides"), keys)


def _table(predictions: Sequence[Prediction]) -> Html:
    columns = [
        TableColumn("Machine"),
        number("Devices", wide=True),
        number("Step, 90% band"),
        number("Compute", wide=True),
        number("Communication"),
        number("Exposed copies", wide=True),
        number("Lower bound", wide=True),
        number("MFU", wide=True),
        number("Memory", wide=True),
    ]
    has_power = any(one.power for one in predictions)
    if has_power:
        columns.append(number("Clock", wide=True))
    rows: list[Row] = [
        [
            one.machine,
            count_cell(one.devices),
            _step(one),
            us_cell(one.compute_us),
            _time(one.communication_us, f"{time_text(one.exposed_communication_us)} exposed"),
            us_cell(one.exposed_copy_us),
            _time(one.bounds.least_us, _gain(one)),
            share_cell(one.mfu, 0),
            _memory(one),
            *([_power(one)] if has_power else []),
        ]
        for one in predictions
    ]
    return table(columns, rows, "Predictions")


def _step(one: Prediction) -> Cell:
    step, _, band = band_text(one.step_us, one.low_us, one.high_us).partition(" (")
    return Cell(join((step, tag("small", band.removesuffix(")")))), one.step_us)


def _time(us: float, below: str) -> Cell:
    return Cell(join((time_text(us), tag("small", below))), us)


def _gain(one: Prediction) -> str:
    if not one.bounds.has_gain(one.step_us):
        return "nothing to save"
    return f"{share_text(one.bounds.gain(one.step_us), 0)} to save"


def _memory(one: Prediction) -> Cell:
    if one.memory_bytes is None:
        return Cell("–", None)
    fits = one.memory_bytes <= one.memory_capacity_bytes
    shown = tag("span", format_bytes(one.memory_bytes), class_=None if fits else "up")
    below = f"of {format_bytes(one.memory_capacity_bytes)}{'' if fits else ', does not fit'}"
    return Cell(join((shown, tag("small", below))), one.memory_bytes)


def _power(one: Prediction) -> Cell:
    if one.power is None:
        return Cell("–", None)
    clock = f"{one.power.clock_hz / 1e6:,.0f} MHz"
    return Cell(join((clock, tag("small", power_text(one.power)))), one.power.clock_hz)


def _basis(predictions: Sequence[Prediction]) -> Html:
    made = [tag("h3", "Basis of the times")]
    for one in predictions:
        parts = [
            BarPart(BASIS_NAMES.get(name, name), share, BASES[name], share_text(share, 0))
            for name, share in one.basis.items()
            if share > 0
        ]
        said = ", ".join(f"{part.text} {part.name}" for part in parts)
        label = f"{one.machine}: {said}"
        made += [bar(parts, label, 1.0, "thin"), legend(parts)]
        if all(other.basis == one.basis for other in predictions):
            break
    return join(made)


def _unknown(one: Prediction, several: bool) -> Html | None:
    """Kernels without a model: each takes at least this long."""
    if not one.unknown:
        return None
    heading = f"Kernels without a model on {one.machine}" if several else "Kernels without a model"
    columns = [
        TableColumn("Kernel", is_code=True),
        number("Per step, at least"),
        number("Times"),
        number("Share of compute"),
    ]
    rows: list[Row] = [
        [kernel.name, us_cell(kernel.us), count_cell(kernel.times), share_cell(kernel.share)]
        for kernel in one.unknown
    ]
    return join((tag("h3", heading), table(columns, rows, heading, 10)))


def _waits(one: Prediction, several: bool) -> Html:
    heading = tag(
        "h3", f"Where it would wait on {one.machine}" if several else "Where it would wait"
    )
    if not one.waits:
        return join((heading, tag("p", "No waits: everything is hidden.", class_="empty")))
    columns = [
        TableColumn("Op"),
        TableColumn("Source", is_wide=True),
        TableColumn("Kind", is_wide=True),
        number("Bytes", wide=True),
        number("Per step"),
        number("Times", wide=True),
        TableColumn("Why"),
    ]
    rows: list[Row] = [
        [
            named_cell(wait.description or wait.instruction, wait.instruction),
            tag("span", file_name(wait.source), class_="c at"),
            wait.kind,
            bytes_cell(wait.bytes),
            us_cell(wait.us),
            count_cell(wait.times),
            wait.why,
        ]
        for wait in one.waits
    ]
    return join((heading, table(columns, rows, f"Waits on {one.machine}", 10)))


def _what_if(found: NetworkWhatIf, machine: str) -> Html:
    """What crosses the network, and the step on other networks."""
    now = found.now
    heading = tag("h3", f"Other networks between {found.between} of {machine}")
    if not found.transfers:
        text = "Nothing of this program crosses the network, so no network changes it."
        return join((heading, tag("p", text, class_="empty")))
    network = f"{rate_text(now.gbps)} per host with a latency of {time_text(now.latency_us)}"
    text = f"The machine has {network}. {_sentence(hidden_text(found))}"
    crossing = tag("h3", f"What crosses the network between {found.between}")
    return join((heading, tag("p", text), _networks(found), crossing, _transfers(found.transfers)))


def _networks(found: NetworkWhatIf) -> Html:
    """The step on each network: a row for each latency, if all combinations are there."""
    made = grid(found.cases)
    return _grid(found, *made) if made is not None else _listed(found)


def _grid(found: NetworkWhatIf, rates: Sequence[float], latencies: Sequence[float]) -> Html:
    by_network = {(case.gbps, case.latency_us): case for case in found.cases}
    columns = [TableColumn("Latency")]
    columns += [number(now_text(rate_text(one), one, found.now.gbps)) for one in rates]
    rows: list[Row] = []
    for latency in latencies:
        shown = now_text(time_text(latency), latency, found.now.latency_us)
        cases = [by_network[gbps, latency] for gbps in rates]
        steps = [_time(case.step_us, change_text(case, found.now)) for case in cases]
        rows.append([Cell(shown, latency), *steps])
    return table(columns, rows, f"Steps with other networks between {found.between}")


def _listed(found: NetworkWhatIf) -> Html:
    columns = [
        TableColumn("Network, per host"),
        number("Latency"),
        number("Step"),
        number("Change"),
        number("Waits per step"),
    ]
    cases = [found.now, *(case for case in found.cases if not _is_same(case, found.now))]
    rows: list[Row] = [
        [
            Cell(rate_text(case.gbps) + (" (now)" if case is found.now else ""), case.gbps),
            us_cell(case.latency_us),
            us_cell(case.step_us),
            Cell(change_text(case, found.now), case.step_us),
            us_cell(case.wait_us),
        ]
        for case in cases
    ]
    return table(columns, rows, f"Steps with other networks between {found.between}", len(rows))


def _is_same(one: NetworkCase, other: NetworkCase) -> bool:
    return (one.gbps, one.latency_us) == (other.gbps, other.latency_us)


def _transfers(transfers: Sequence[NetworkTransfer]) -> Html:
    """Each collective that crosses the network: its slack, and what would hide it."""
    columns = [
        TableColumn("Transfer"),
        TableColumn("Source", is_wide=True),
        number("Times", wide=True),
        number("Sends"),
        number("Slack"),
        number("Takes", wide=True),
        number("Waits per step"),
        number("Needs, Gb/s per host"),
    ]
    rows: list[Row] = [
        [
            named_cell(one.description, one.instruction),
            tag("span", file_name(one.source), class_="c at"),
            count_cell(one.times),
            bytes_cell(one.bytes),
            us_cell(one.slack_us),
            us_cell(one.us),
            us_cell(one.wait_us),
            Cell(needs_text(one).removesuffix(" Gb/s"), one.needs_gbps),
        ]
        for one in transfers
    ]
    made = table(columns, rows, "Transfers over the network", 10, "slipstream predict --json")
    note = "–: latency or another link takes longer than the slack, at any bandwidth."
    is_short = any(one.needs_gbps is None for one in transfers)
    return join((made, tag("p", note, class_="note") if is_short else None))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _messages(predictions: Sequence[Prediction]) -> Html | None:
    texts = [
        (f"{one.machine}: " if len(predictions) > 1 else "") + notice.text
        for one in predictions
        for notice in one.messages
        if notice.severity != "info"
    ]
    if not texts:
        return None
    items = [tag("li", text) for text in dict.fromkeys(texts)]
    return join(
        (tag("h3", "Messages from XLA and the simulation"), tag("ul", items, class_="warnings"))
    )

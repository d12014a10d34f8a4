"""Ops against the roof, the largest loss first."""

from __future__ import annotations

from slipstream.analyses.roofline import Roofline, RooflineGroup, RooflineRow
from slipstream.outputs.formatting import file_name, share_text, time_text
from slipstream.outputs.html.charts import Dot, chart, roofs_plot, share_bar
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    TimeColumn,
    named_cell,
    number,
    table,
    with_equals,
)

MOST_LOST = 40


def roofline_section(result: Roofline) -> Section:
    """Ops that lose most time against the roof."""
    rows = [row for row in result.rows if row.best_us is not None]
    if not rows:
        text = "No roof to compare with: " + (
            "; ".join(result.notes) or "the program was not recorded, so its work is unknown"
        )
        return Section("roofline", "Roofline", tag("p", f"{text}.", class_="empty"))
    groups = [row for row in result.groups if row.best_us is not None]
    times = TimeColumn([row.per_step_us for row in groups])
    columns = [
        TableColumn("Op"),
        TableColumn("Source", is_wide=True),
        TableColumn("Bound by", is_wide=True),
        number(f"{times.unit} per step"),
        number("At the roof", wide=True),
        number("Of the roof"),
        number("Achieved", wide=True),
        number("Lost"),
    ]
    shown = [_roof_row(row, times) for row in groups[:MOST_LOST]]
    made = table(columns, shown, "Ops against the roof", more="slipstream roofline --json")
    heading = tag("h3", "Largest losses")
    body = join((_plot(result, rows), heading, made))
    return Section("roofline", "Roofline", body, _roof_lede(result, rows))


def _plot(result: Roofline, rows: list[RooflineRow]) -> Html | None:
    """Ops by arithmetic intensity and achieved rate, under the roofs; areas are times."""
    known = [row for row in rows if row.flops and row.bytes and row.flops_rate > 0]
    if not known or not result.peak_flops or not result.memory_bandwidth:
        return None
    most = max(row.per_step_us for row in known)
    dots = [
        Dot(
            row.flops / row.bytes,
            row.flops_rate / 1e12,
            (row.per_step_us / most) ** 0.5,
            "accent" if row.bound == "compute" else "copy",
            f"{row.description or row.instruction}: {row.flops_rate / 1e12:,.1f} TFLOP/s, "
            f"{share_text(row.roof_share or 0.0, 0)} of the roof, {time_text(row.per_step_us)}",
        )
        for row in known
    ]
    roofs = (result.memory_bandwidth / 1e12, result.peak_flops / 1e12)
    label = f"{len(dots)} ops by FLOP per byte and TFLOP/s; the table has their numbers"
    drawn = roofs_plot(dots, roofs, label, ("FLOP per byte", "TFLOP/s"))
    facts = [
        f"{result.peak_flops / 1e12:,.0f} TFLOP/s ({result.dtype})",
        f"{result.memory_bandwidth / 1e12:.2g} TB/s",
        "areas are times; blue: bound by compute, violet: by memory",
    ]
    return chart("Ops under the roof", facts, drawn)


def _roof_lede(result: Roofline, rows: list[RooflineRow]) -> str:
    lost = sum(row.lost_us for row in rows)
    text = ""
    if result.mfu is not None and result.peak_flops:
        text = (
            f"MFU {share_text(result.mfu)} of {result.peak_flops / 1e12:,.0f} TFLOP/s "
            f"({result.model}, {result.dtype})"
        )
        text += f"; HFU, with recomputation, {share_text(result.hfu or 0.0)}. " if (
            result.remat_flops
        ) else ". "  # fmt: skip
    return text + (
        f"With every op at its roof, the step would be {time_text(lost)} shorter. Work is known "
        f"for {share_text(result.counted_share, 0)} of device time."
    )


def _roof_row(row: RooflineGroup, times: TimeColumn) -> Row:
    share = row.roof_share or 0.0
    is_compute = row.bound == "compute"
    rate = (
        f"{row.flops_rate / 1e12:,.1f} TFLOP/s"
        if is_compute
        else f"{row.bytes_rate / 1e9:,.0f} GB/s"
    )
    return [
        named_cell(
            row.description or row.instruction,
            with_equals(row.instruction, len(row.instructions)),
        ),
        tag("span", file_name(row.source), class_="c at"),
        f"{row.bound}, {row.dtype}" if is_compute else row.bound,
        times.cell(row.per_step_us),
        times.cell(row.best_us),
        Cell(share_bar(share, share_text(share, 0), "accent"), share),
        Cell(rate, row.flops_rate if is_compute else row.bytes_rate),
        times.cell(row.lost_us),
    ]

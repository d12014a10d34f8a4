"""Results as lines for a terminal: `render(result)` is styled text no wider than `width`.

Styles vanish where there is no terminal or NO_COLOR is set; nothing is said by colour alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from slipstream.analyses.ops import Op, Ops
from slipstream.analyses.summary import ProgramSummary, StepTimes, Summary
from slipstream.outputs.terminal.bars import bar
from slipstream.outputs.terminal.layout import TextColumn, pad, paragraph, table, wrap
from slipstream.outputs.terminal.words import (
    column_unit,
    file_name,
    number_text,
    plural,
    ratio,
    share_text,
    time_text,
    what_ran,
)
from slipstream.profile.profile import Warning

WIDTH = 80
LEAST_WIDTH = 72
BAR_LINE = 58
"""columns of label, bar, time and share; the rest of the line is for notes"""

BASES = {
    "annotations": "by annotation",
    "executions": "by execution",
    "recording": "the whole recording",
}
"""what steps were found by, in words"""

Line = tuple[str, str]
"""one line of text and its style"""


def render(
    result: Summary | Ops | Sequence[ProgramSummary], width: int = WIDTH, top: int | None = None
) -> Text:
    """The text of any result; of ops, all or the `top` longest."""
    width = max(width, LEAST_WIDTH)
    if isinstance(result, Summary):
        return _text(_summary(result, width))
    if isinstance(result, Ops):
        return _text(_ops(result, width, top))
    return _text(_programs(result, width))


def _text(lines: Iterable[Line | Text]) -> Text:
    return Text("\n").join(
        line if isinstance(line, Text) else Text(line[0].rstrip(), style=line[1]) for line in lines
    )


# The step on one screen.


def _summary(summary: Summary, width: int) -> list[Line | Text]:
    lines: list[Line | Text] = [(line, "bold") for line in wrap(_header(summary), width)]
    lines.append(("", ""))
    if summary.step_count:
        lines.append((f"step {time_text(summary.step_median_us)}", "bold"))
        lines += _split(summary.per_step, width)
        lines += _phases(summary.phases_us, width)
    else:
        lines += [(line, "") for line in paragraph(f"no steps: {summary.step_rule}", width)]
    if summary.top:
        lines += [("", ""), *_most_time(summary.top, width)]
    if summary.warnings:
        lines += [("", ""), *_warnings(summary.warnings, width)]
    return lines


def _header(summary: Summary) -> list[str]:
    models = list(dict.fromkeys(d.model or d.name for d in summary.devices))
    parts = models[:2] + [f"{len(models) - 2} other models"] * (len(models) > 2)
    hosts, devices = len(summary.hosts), len(summary.devices)
    parts.append(f"{plural(hosts, 'host')}, {plural(devices, 'device')}")
    for package in ("jax", "jaxlib"):
        if version := summary.versions.get(package, summary.versions.get(f"{package}_version")):
            parts.append(f"{package} {version}")
            break
    if summary.programs:
        hottest = max(summary.programs, key=lambda program: program.device_us)
        name = hottest.name.partition("(")[0]
        parts.append(f"{name} {(hottest.fingerprint or '')[:8]}".rstrip())
    if summary.step_count:
        basis = BASES.get(summary.step_basis, f"by {summary.step_basis}")
        parts.append(f"{plural(summary.step_count, 'step')}, {basis}")
    return parts


def _split(times: StepTimes, width: int) -> list[Line | Text]:
    """A bar for each part of the step; together they are the step."""
    shown = [("compute", times.compute_us, ""), ("idle", times.idle_us, "")]
    if times.communication_us > 0:
        note = _hidden(times.communication_us - times.exposed_communication_us, times.wall_us)
        shown.insert(1, ("exposed communication", times.exposed_communication_us, note))
    if times.copy_us > 0:
        note = _hidden(times.copy_us - times.exposed_copy_us, times.wall_us)
        shown.insert(-1, ("exposed copies", times.exposed_copy_us, note))
    lines = _bars(shown, times.wall_us, width)
    if times.unattributed_us > 0:
        share = share_text(ratio(times.unattributed_us, times.wall_us))
        lines.append(
            (f"  {time_text(times.unattributed_us)} of it ({share}) belongs to no instruction", "")
        )
    return lines


def _hidden(us: float, wall_us: float) -> str:
    """What runs beside compute and costs nothing; no note on what wouldn't be seen if it did."""
    return f"{time_text(us)} more hidden" if us > wall_us / 1000 else ""


def _bars(
    parts: Sequence[tuple[str, float, str]], whole_us: float, width: int
) -> list[Line | Text]:
    label_width = max(len(label) for label, _, _ in parts)
    bar_width = BAR_LINE - label_width - 20
    lines: list[Line | Text] = []
    for label, us, note in parts:
        share = ratio(us, whole_us)
        line = Text(f"  {pad(label, label_width)} ")
        line.append(bar(share, bar_width), style="cyan")
        line.append(f" {time_text(us):>9}  {share_text(share, 0):>4}")
        if note and len(note) + 3 <= width - BAR_LINE:
            line.append(f"   {note}", style="dim")
        lines.append(line)
    return lines


def _phases(phases_us: dict[str, float], width: int) -> list[Line | Text]:
    parts = [f"{name} {time_text(us)}" for name, us in phases_us.items() if us > 0]
    return [(line, "") for line in wrap(parts, width, indent="  ")]


def _most_time(ops: Sequence[Op], width: int) -> list[Line | Text]:
    unit, scale, digits = column_unit([op.per_step_us for op in ops])
    columns = (
        TextColumn("most time", least=24),
        TextColumn("", least=12, most=26),
        TextColumn(unit, right=True),
        TextColumn("share", right=True),
    )
    phase_width = max(len(op.phase) for op in ops if op.phase != "other") if ops else 0
    rows = [
        (
            what_ran(op, phase_width) or op.instruction,
            file_name(op.source),
            number_text(op.per_step_us / scale, digits),
            share_text(op.share),
        )
        for op in ops
    ]
    heading, *lines = table(columns, rows, width - 2, stretch=BAR_LINE - 3)
    return [(f"  {heading}", "dim"), *((f"  {line}", "") for line in lines)]


def _warnings(warnings: Sequence[Warning], width: int) -> list[Line | Text]:
    lines = [line for warning in warnings for line in paragraph(warning.message, width, "! ", "  ")]
    return [(line, "yellow") for line in lines]


# Ops and programs.


def _ops(ops: Ops, width: int, top: int | None) -> list[Line | Text]:
    shown = ops.ops[:top]
    times = [op.per_step_us if ops.steps else op.total_us for op in shown]
    unit, scale, digits = column_unit(times)
    columns, rows = _ops_cells(ops.by, shown)
    for row, op, us in zip(rows, shown, times, strict=True):
        row += [str(op.count), number_text(us / scale, digits), share_text(op.share)]
    columns += [TextColumn(h, right=True) for h in ("count", unit, "share")]
    lines: list[Line | Text] = [(line, "bold") for line in wrap(_ops_header(ops), width)]
    lines.append(("", ""))
    heading, *body = table(columns, rows, width)
    lines += [(heading, "dim"), *((line, "") for line in body)]
    if left := len(ops.ops) - len(shown):
        rest = sum(op.share for op in ops.ops[len(shown) :])
        lines.append(
            (f"… and {left} more, {share_text(rest)} together: --top {len(ops.ops)}", "dim")
        )
    return lines


def _ops_header(ops: Ops) -> list[str]:
    parts = [f"device time by {ops.by}"]
    if ops.steps:
        parts.append(f"{time_text(sum(op.per_step_us for op in ops.ops))} a step")
        parts.append(f"{plural(ops.steps, 'step')} counted")
    else:
        parts.append(f"{time_text(ops.total_us)} in the whole recording")
    parts.append(f"{share_text(ops.attributed_share)} attributed to instructions")
    return parts


def _ops_cells(by: str, ops: Sequence[Op]) -> tuple[list[TextColumn], list[list[str]]]:
    columns = [TextColumn(by, least=16)]
    rows = [[op.instruction or "(none)"] for op in ops]
    if by == "instruction":
        columns += [TextColumn("what", least=14), TextColumn("source", least=10, most=26)]
        for row, op in zip(rows, ops, strict=True):
            row += [what_ran(op), file_name(op.source)]
    if len({op.program for op in ops}) > 1:
        columns.append(TextColumn("program", least=8, most=24))
        for row, op in zip(rows, ops, strict=True):
            row.append(op.program)
    return columns, rows


def _programs(programs: Sequence[ProgramSummary], width: int) -> list[Line | Text]:
    columns = [
        TextColumn("program", least=12),
        TextColumn("fingerprint"),
        TextColumn("executions", right=True),
        TextColumn("instructions", right=True),
        TextColumn("device time", right=True),
        TextColumn("graphs"),
    ]
    rows = [
        (
            program.name,
            (program.fingerprint or "–")[:8],
            str(program.executions),
            "–" if program.instructions is None else str(program.instructions),
            time_text(program.device_us),
            "yes" if program.command_buffers else "no",
        )
        for program in programs
    ]
    heading, *lines = table(columns, rows, width)
    return [(heading, "dim"), *((line, "") for line in lines or ["none"])]

"""`slipstream summary` as text: the step on one screen."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from slipstream.analyses.ops import Op
from slipstream.analyses.summary import StepTimes, Summary
from slipstream.outputs.formatting import (
    column_unit,
    count_text,
    file_name,
    number_text,
    op_text,
    plural,
    ratio,
    share_text,
    time_text,
)
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    Line,
    TextColumn,
    bar,
    elide_op,
    elide_source,
    heading,
    note_lines,
    pad,
    paragraph,
    styled_text,
    table,
    wrap,
)

BAR_LINE = 58
"""columns of label, bar, time and share; the rest of the line is for notes"""
LARGE = 0.02
"""share of the step by which parts that don't add up to it are mentioned"""
STEP_BASES = {
    "annotations": "by annotation",
    "executions": "by execution",
    "recording": "the whole recording",
}
"""how steps were found"""


def render_summary(summary: Summary, width: int = WIDTH, flat: bool = False) -> Text:
    """The step, its parts and phases, the ops that take most time, and warnings.

    Equal ops of unrolled layers are one line, unless `flat`.
    """
    width = max(width, MIN_WIDTH)
    lines: list[Line | Text] = [*heading(_header(summary), width)]
    if summary.step_count:
        lines.append((f"step {time_text(summary.step_median_us)}", "bold"))
        lines += _step_bars(summary.per_step, width)
        lines += _phases(summary.phases_us, summary.per_step.wall_us, width)
    else:
        lines += [(line, "") for line in paragraph(f"no steps: {summary.step_rule}", width)]
    if top := summary.top if flat else summary.top_groups:
        lines += [("", ""), *_top_ops(top, width)]
    lines += note_lines((warning.message for warning in summary.warnings), width)
    return styled_text(lines)


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
        basis = STEP_BASES.get(summary.step_basis, f"by {summary.step_basis}")
        parts.append(f"{plural(summary.step_count, 'step')}, {basis}")
    return parts


def _step_bars(times: StepTimes, width: int) -> list[Line | Text]:
    """A bar for each part of the step; together they are the step."""
    shown = [("compute", times.compute_us, ""), ("idle", times.idle_us, "")]
    if times.communication_us > 0:
        note = _hidden(times.communication_us - times.exposed_communication_us, times.wall_us)
        shown.insert(1, ("exposed communication", times.exposed_communication_us, note))
    if times.copy_us > 0:
        note = _hidden(times.copy_us - times.exposed_copy_us, times.wall_us)
        shown.insert(-1, ("exposed copies", times.exposed_copy_us, note))
    lines = _bars(shown, times.wall_us, width)
    if abs(sum(us for _, us, _ in shown) - times.wall_us) > LARGE * times.wall_us:
        said = "each part is a median over the steps, so the parts don't add up to the step"
        lines += [(f"  {line}", "dim") for line in paragraph(said, width - 2)]
    if times.unattributed_us > 0:
        share = share_text(ratio(times.unattributed_us, times.wall_us))
        lines.append(
            (f"  {time_text(times.unattributed_us)} of it ({share}) belongs to no instruction", "")
        )
    return lines


def _hidden(us: float, wall_us: float) -> str:
    """A note on hidden time; empty if it is less than a thousandth of the step."""
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


def _phases(phases_us: dict[str, float], wall_us: float, width: int) -> list[Line]:
    """Phases, and their sum if it isn't the step: they leave out idle time, and work that overlaps
    counts twice."""
    parts = [f"{name} {time_text(us)}" for name, us in phases_us.items() if us > 0]
    total = sum(phases_us.values())
    if len(parts) > 1 and abs(total - wall_us) > LARGE * wall_us:
        parts.append(f"together {time_text(total)} of device time")
    return [(line, "") for line in wrap(parts, width, indent="  ")]


def _top_ops(ops: Sequence[Op], width: int) -> list[Line]:
    unit, scale, digits = column_unit([op.per_step_us for op in ops])
    columns = (
        TextColumn("", right=True, key="count"),
        TextColumn("most time", min_width=24, key="what", weight=2, shorten=elide_op),
        TextColumn("", min_width=12, max_width=26, key="source", shorten=elide_source),
        TextColumn(unit, right=True, key="time"),
        TextColumn("share", right=True),
    )
    phase_width = max((len(op.phase) for op in ops if op.phase != "other"), default=0)
    rows = [
        (
            f"{count_text(op.per_step_count)} ×",
            op_text(op.phase, op.scope, op.description, phase_width) or op.instruction,
            file_name(op.source),
            number_text(op.per_step_us / scale, digits),
            share_text(op.share),
        )
        for op in ops
    ]
    head, *lines = table(columns, rows, width - 2, stretch=BAR_LINE - 3)
    return [(f"  {head}", "dim"), *((f"  {line}", "") for line in lines)]

"""A prediction next to its baseline, as text, JSON, and the comment of a pull request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.outputs.formatting import change_text, time_cells
from slipstream.outputs.markdown.comment import comment, escaped, sentence
from slipstream.outputs.markdown.comment import table as markdown_table
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    paragraph,
    styled_text,
    table,
)
from slipstream.results.regression import SAME_PROGRAM, Regression
from slipstream.units import format_bytes

COMMAND = "predict"
HEADINGS = ("before", "after", "change")


def regression_json(regression: Regression) -> dict[str, Any]:
    """What `predict --baseline --json` adds: without what the prediction itself says."""
    data = asdict(regression)
    del data["after"]
    return data


def render_regressions(regressions: Sequence[Regression], width: int = WIDTH) -> Text:
    """Before and after, machine by machine, and the verdict."""
    lines: list[Line] = []
    for one in regressions:
        columns = [TextColumn(f"{one.after.machine} against the baseline")]
        columns += [TextColumn(name, right=True) for name in HEADINGS]
        rows = [[("  " if is_part else "") + name, *cells] for name, is_part, cells in _rows(one)]
        lines += [("", ""), *((line, "") for line in table(columns, rows, width, gap=3))]
        if one.passed is not False:  # a failure is the command's last word, on stderr
            style = "bold green" if one.passed else "bold"
            lines += [(line, style) for line in paragraph(verdict_text(one), width)]
        lines += [(line, "dim") for note in one.notes for line in paragraph(note, width)]
    return styled_text(lines)


def markdown(regressions: Sequence[Regression], target: str = "") -> str:
    """The tables as GitHub and GitLab show them in a comment: one of each target and machines."""
    lines: list[str] = []
    for one in regressions:
        rows = [[name, *cells] for name, _, cells in _rows(one)]
        lines += markdown_table([one.after.machine, *HEADINGS], rows)
        lines += [sentence(verdict_text(one)), ""]
        lines += [f"- {escaped(note)}" for note in one.notes]
        lines += [""] if one.notes else []
    machines = ",".join(one.after.machine for one in regressions)
    subject = f"{target} on {machines}" if target else ""
    return comment(COMMAND, _title(regressions), lines, _made_with(regressions[0]), subject)


def verdict_text(regression: Regression) -> str:
    """`gate 2.0%: failed: …`, or without a gate the verdict alone."""
    step = _step_text(regression)
    if regression.passed is None:
        return step
    step_limit, memory_limit = regression.limit, regression.memory_limit
    shown = [] if step_limit is None else [f"{step_limit:.1%}"]
    if memory_limit is not None and memory_limit != step_limit:
        shown.append(f"memory {memory_limit:.1%}")
    head = f"gate {', '.join(shown)}"
    if regression.passed:
        return f"{head}: passed: {step}"
    return f"{head}: failed: {'; '.join(regression.failures)}"


def _step_text(regression: Regression) -> str:
    if regression.verdict == SAME_PROGRAM:
        return "the same program"
    if regression.verdict in ("slower", "faster"):
        return f"the step is {regression.verdict} by {abs(regression.step_change):.1%}"
    return "no difference of the step that predictions can tell"


def _rows(regression: Regression) -> list[tuple[str, bool, list[str]]]:
    """(name, whether it is a part of the row above, cells)."""
    before, after = regression.before, regression.after
    rows = [("step", False, time_cells(before.step_us, after.step_us))]
    parts = (
        ("compute", "compute_us"),
        ("exposed communication", "exposed_communication_us"),
        ("exposed copies", "exposed_copy_us"),
    )
    for name, key in parts:
        old, new = getattr(before, key), getattr(after, key)
        if old or new:
            rows.append((name, True, time_cells(old, new)))
    cells = [_memory(before.memory_bytes), _memory(after.memory_bytes)]
    change = "–" if regression.memory_change is None else change_text(regression.memory_change)
    rows.append(("memory of a device", False, [*cells, change]))
    return rows


def _memory(size: int | None) -> str:
    return format_bytes(size) if size is not None else "–"


def _title(regressions: Sequence[Regression]) -> str:
    what = f"Predicted step of {escaped(regressions[0].after.program)}"
    if all(one.passed is None for one in regressions):
        return what
    return f"{what}: {'passed' if all(one.passed for one in regressions) else 'failed'}"


def _made_with(regression: Regression) -> str:
    versions = regression.after.versions
    named = [f"{name} {versions[name]}" for name in ("slipstream", "jaxlib") if name in versions]
    return f"Compiled by XLA and simulated, with no GPU{': ' if named else ''}{', '.join(named)}"

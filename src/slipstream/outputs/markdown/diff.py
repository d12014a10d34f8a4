"""`slipstream diff` as the comment of a pull request."""

from __future__ import annotations

from slipstream.analyses.diff.diff import DIFFERENT_PROGRAMS, Change, Diff, is_slower_than
from slipstream.outputs.formatting import (
    column_unit,
    file_name,
    number_text,
    plural,
    share_text,
    time_cells,
)
from slipstream.outputs.markdown.comment import comment, escaped, sentence, table
from slipstream.outputs.terminal.diff import (
    TOP,
    changed_ops,
    gate_line,
    op_name,
    part_name,
    signed,
    verdict_text,
)

COMMAND = "diff"
_OUTCOMES = {True: "failed", False: "passed", None: "undecided"}


def diff_markdown(
    found: Diff,
    names: tuple[str, str],
    gate: float | None = None,
    top: int | None = TOP,
    flat: bool = False,
) -> str:
    """The verdict, the parts of the step and what changed most, between profiles of these names."""
    program = (found.after.program or found.before.program).partition("(")[0]
    title = f"Step of {escaped(program)}" if program else "Step"
    lines: list[str] = []
    if found.verdict.verdict != DIFFERENT_PROGRAMS:
        lines += _parts(found)
    said = verdict_text(found.verdict)
    if gate is None:
        title = f"{title}: {found.verdict.verdict}"
        lines += [sentence(said), ""]
    else:
        slower = is_slower_than(found.verdict, gate)
        title = f"{title}: {_OUTCOMES[slower]}"
        passed = None if slower is None else not slower
        lines += [sentence(gate_line(passed, gate, found.verdict)), ""]
        lines += [f"- {escaped(said)}", ""] if slower is not None else []
    if found.verdict.verdict != DIFFERENT_PROGRAMS:
        lines += _ops(found, top, flat)
    return comment(COMMAND, title, lines, _recorded(found, names))


def _parts(found: Diff) -> list[str]:
    rows = [
        [part_name(one.name), *time_cells(one.before_us, one.after_us)]
        for one in found.parts
        if one.before_us or one.after_us
    ]
    return table(["median step", "before", "after", "change"], rows)


def _ops(found: Diff, top: int | None, flat: bool) -> list[str]:
    changed = changed_ops(found, flat)[:top]
    if not changed:
        return ["No op changed enough to matter.", ""]
    unit, scale, digits = column_unit([t for c in changed for t in (c.before_us, c.after_us)])
    rows = [
        [
            *(escaped(text) for text in (op_name(one), one.kind, file_name(one.source))),
            *(number_text(us / scale, digits) for us in (one.before_us, one.after_us)),
            signed(one.excess_us / scale, digits) + _noise(one),
        ]
        for one in changed
    ]
    return table(["most changed", "how", "source", "before", "after", f"net, {unit}"], rows, 3)


def _noise(change: Change) -> str:
    return {True: "", False: " (noise)", None: " (too few steps)"}[change.is_beyond_noise]


def _recorded(found: Diff, names: tuple[str, str]) -> str:
    """`base: 20 steps; new: 20 steps; matched ops cover 98% and 97% of device time`."""
    sides = found.before, found.after
    parts = [
        f"{name}: {'simulated' if side.is_simulated else plural(side.steps, 'step')}"
        for name, side in zip(names, sides, strict=True)
    ]
    shares = " and ".join(share_text(side.matched_share) for side in sides)
    return "; ".join([*parts, f"matched ops cover {shares} of device time"])

"""`slipstream ops` as text: device time by instruction, or by another grouping."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from slipstream.analyses.op_groups import ScopeTotal
from slipstream.analyses.ops import Op, OpGroup, Ops
from slipstream.outputs.formatting import (
    column_unit,
    count_text,
    file_name,
    number_text,
    op_text,
    plural,
    share_text,
    time_text,
)
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    TextColumn,
    elide_op,
    elide_scope,
    elide_source,
    heading,
    styled_text,
    table_lines,
)
from slipstream.outputs.terminal.table_options import is_filtered, is_match, no_match


def render_ops(
    ops: Ops, width: int = WIDTH, top: int | None = None, flat: bool = False, why: str = ""
) -> Text:
    """All ops, or the `top` longest; equal ops of unrolled layers are one line, unless `flat`.

    `why` says why they are grouped like this, where that was not asked for.
    """
    width = max(width, MIN_WIDTH)
    shown: Sequence[Op] = ops.ops if flat else ops.groups
    several = len({op.program for op in shown[:top]}) > 1
    program = TextColumn("program", min_width=8, max_width=24, is_hidden=not several)
    columns = [*_name_columns(ops.by, flat), program, TextColumn("count", right=True)]
    unit, scale, digits = column_unit([op.per_step_us for op in shown])
    columns += [TextColumn(unit, right=True, key="time"), TextColumn("share", right=True)]
    columns += [TextColumn(name, min_width=8, is_hidden=True) for name in _HIDDEN]
    rows = [
        [
            *_name_cells(op, ops.by, flat),
            op.program,
            count_text(op.per_step_count),
            number_text(op.per_step_us / scale, digits),
            share_text(op.share),
            *(getattr(op, name) for name in _HIDDEN),
        ]
        for op in shown
    ]
    lines = table_lines(columns, rows, width, top, [op.share for op in shown])
    return styled_text([*heading(_header(ops, why), width), *lines])


_HIDDEN = ("phase", "scope", "category", "shapes")
"""columns to ask for, after the others"""


def render_scope_tree(
    ops: Ops,
    tree: Sequence[ScopeTotal],
    width: int = WIDTH,
    top: int | None = None,
    why: str = "",
) -> Text:
    """Scopes as a tree, each with the total of what is inside it.

    With a filter: the scopes that match, at any depth of the tree, and those that they are in.
    """
    width = max(width, MIN_WIDTH)
    tree = _matching(tree)
    unit, scale, digits = column_unit([one.per_step_us for one in tree])
    columns = [
        TextColumn(ops.by, min_width=20),
        TextColumn("ops", right=True),
        TextColumn(f"own, {unit}", right=True, key="own"),
        TextColumn(unit, right=True, key="time"),
        TextColumn("share", right=True),
    ]
    rows = [
        [
            "  " * max(0, one.depth - 1) + (one.scope.rpartition("/")[2] or "(none)"),
            f"{one.ops:,}",
            number_text(one.own_us / scale, digits) if one.own_us else "",
            number_text(one.per_step_us / scale, digits),
            share_text(one.share),
        ]
        for one in tree
    ]
    lines = heading(_header(ops, why), width)
    if not rows and is_filtered():
        return styled_text([*lines, (no_match(), "")])
    return styled_text([*lines, *table_lines(columns, rows, width, top, are_filtered=False)])


def _matching(tree: Sequence[ScopeTotal]) -> list[ScopeTotal]:
    """The outermost scopes that match and all around them; the whole tree, without a filter."""
    if not is_filtered():
        return list(tree)
    matching = [one.scope for one in tree if _is_outermost(one.scope)]
    return [
        one
        for one in tree
        if any(scope == one.scope or scope.startswith(f"{one.scope}/") for scope in matching)
    ]


def _is_outermost(scope: str) -> bool:
    """Whether a scope matches, and no scope around it does."""
    return is_match([scope]) and not is_match([scope.rpartition("/")[0]])


def _header(ops: Ops, why: str = "") -> list[str]:
    by = "loop and source line" if ops.by == "loop" else ops.by
    parts = [f"device time by {by}{why and f': {why}'}"]
    if ops.steps:
        parts.append(f"{time_text(sum(op.per_step_us for op in ops.ops))} per step")
        parts.append(f"{plural(ops.steps, 'step')} counted")
    else:
        total = sum(op.per_step_us for op in ops.ops)
        parts.append(f"{time_text(total)} per device in the whole recording")
    parts.append(f"{share_text(ops.attributed_share)} attributed to instructions")
    return parts


def _name_columns(by: str, flat: bool) -> list[TextColumn]:
    if by != "instruction":
        return [TextColumn(by, min_width=16, shorten=elide_scope)]
    what = TextColumn("what", min_width=14, weight=2, shorten=elide_op)
    source = TextColumn("source", min_width=10, max_width=26, shorten=elide_source)
    if flat:
        return [TextColumn(by, min_width=18), what, source]
    return [what, TextColumn(by, min_width=16, max_width=40, is_optional=True), source]


def _name_cells(op: Op, by: str, flat: bool) -> list[str]:
    name = op.instruction or "(none)"
    if by != "instruction":
        return [name]
    what = op_text(op.phase, op.scope, op.description)
    if flat:
        return [name, what, file_name(op.source)]
    others = len(op.instructions) - 1 if isinstance(op, OpGroup) else 0
    return [what or name, f"{name}, +{others}" if others else name, file_name(op.source)]

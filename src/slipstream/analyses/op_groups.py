"""Ops, and equal ops of unrolled layers as one: `12 × exp`.

Ops are equal if they do the same (description and shapes) in the same phase, from the same source
line and in the same scope, where the number of a layer doesn't count. Of collectives, which say how
many bytes they move, shapes don't count either.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Protocol, TypeVar

from slipstream.profile.semantics.layers import rolled_description, rolled_scope

T = TypeVar("T")
_COLLECTIVES = frozenset(
    (
        *("all-gather", "all-reduce", "all-to-all", "ragged-all-to-all", "reduce-scatter"),
        *("collective-broadcast", "collective-permute"),
    )
)


class Described(Protocol):
    """What rows of all analyses say of an instruction."""

    @property
    def program(self) -> str: ...
    @property
    def phase(self) -> str: ...
    @property
    def scope(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def description(self) -> str: ...


@dataclass(frozen=True)
class Op:
    """One instruction, or one group of them, seen in a profile."""

    program: str
    instruction: str
    """name of the instruction, or of the group: category, phase, scope, source line or kernel"""
    count: int
    """executions of the instruction, over all steps and devices; events, if grouped by kernel"""
    total_us: float
    """device time, summed over all steps and devices"""
    per_step_us: float
    """device time, mean over steps and devices; of the whole recording, mean over devices"""
    share: float
    """of all device time in the steps, 0 to 1"""
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""
    per_step_count: float = 0.0
    """`count`, mean over steps and devices"""
    shapes: str = ""
    """operands and result: `bf16[8,512], bf16[512,64] → bf16[8,64]`; empty if unknown, or of
    several instructions"""


@dataclass(frozen=True)
class OpGroup(Op):
    """Equal ops: `instruction` is the longest of them, numbers are sums."""

    instructions: tuple[str, ...] = ()
    """all of them, the longest first"""


def op_groups(ops: Iterable[Op], by: str = "instruction") -> tuple[OpGroup, ...]:
    """Ops with equal ones merged, the longest first.

    `by` is what the ops are: scopes are merged if they differ only in the number of a layer, and
    what is neither an instruction nor a scope stays as it is.
    """
    members = grouped(ops, _scope_key if by == "scope" else _key if by == "instruction" else _alone)
    merged = [_merged(same, by) for same in members]
    merged.sort(key=lambda group: -group.total_us)
    return tuple(merged)


def grouped(rows: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Rows with equal keys, in the order of the first of each."""
    found: dict[Hashable, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def layer_key(row: Described) -> tuple[str, ...]:
    """What equal ops have in common, apart from their shapes."""
    scope, description = rolled_scope(row.scope), rolled_description(row.description)
    return (row.program, row.phase, scope, row.source, description)


def equal_key(op: Op) -> Hashable | None:
    """What equal ops have in common; None if nothing tells whether another one does the same."""
    if not op.description:
        return None
    shapes = "" if op.category in _COLLECTIVES else op.shapes
    return (*layer_key(op), op.category, shapes)


def _key(op: Op) -> Hashable:
    return equal_key(op) or (op.program, op.instruction)


def _scope_key(op: Op) -> Hashable:
    return (op.program, rolled_scope(op.instruction))


def _alone(op: Op) -> Hashable:
    return (op.program, op.instruction)


def _merged(members: Sequence[Op], by: str) -> OpGroup:
    by_time = sorted(members, key=lambda op: (-op.total_us, op.instruction))
    values = {one.name: getattr(by_time[0], one.name) for one in fields(Op)}
    if len(members) > 1:
        for name in ("count", "total_us", "per_step_us", "share", "per_step_count"):
            values[name] = sum(getattr(op, name) for op in members)
        if any(op.shapes != values["shapes"] for op in members):
            values["shapes"] = ""
        values["scope"] = rolled_scope(values["scope"])
        values["description"] = rolled_description(values["description"])
        if by == "scope":
            values |= _of_scopes(by_time)
    return OpGroup(**values, instructions=tuple(op.instruction for op in by_time))


def _of_scopes(members: Sequence[Op]) -> dict[str, str]:
    """What scopes that differ in the number of a layer have in common."""
    first = members[0]
    names = ("phase", "category", "source")
    same = {name: getattr(first, name) for name in names}
    kept = {
        name: value if all(getattr(op, name) == value for op in members) else ""
        for name, value in same.items()
    }
    text = f"{len(members)} scopes"
    return {**kept, "instruction": rolled_scope(first.instruction), "description": text}


@dataclass(frozen=True)
class ScopeTotal:
    """A scope, with all scopes inside it."""

    scope: str
    """its whole path, layers without their numbers unless they were asked for; empty for ops
    without a scope"""
    depth: int
    """elements of its path; 0 for ops without a scope"""
    ops: int
    """instructions"""
    total_us: float
    per_step_us: float
    own_us: float
    """of `per_step_us`, what ops directly in this scope take"""
    share: float


def scope_tree(
    ops: Iterable[Op], depth: int | None = None, flat: bool = False
) -> tuple[ScopeTotal, ...]:
    """Scopes to a depth, each followed by the scopes inside it, the longest first.

    A scope that is the only one inside another does not count: `xformer_lm/lm` is as deep as the
    scopes beside it. `flat` keeps the numbers of layers.
    """
    paths = [(_path(op.scope, flat), op) for op in ops]
    return tuple(_totals((), paths, depth))


def _path(scope: str, flat: bool) -> tuple[str, ...]:
    shown = scope if flat else rolled_scope(scope)
    return tuple(part for part in shown.split("/") if part)


Path = tuple[str, ...]


def _totals(parent: Path, paths: Sequence[tuple[Path, Op]], depth: int | None) -> list[ScopeTotal]:
    """The scopes right below one, with theirs down to a depth, the longest first."""
    level = len(parent) + 1
    inner = grouped([one for one in paths if len(one[0]) >= level], lambda one: one[0][:level])
    if depth is not None:
        if not depth:
            return []
        depth -= len(inner) > 1
    if not parent and (none := [one for one in paths if not one[0]]):
        inner.append(none)
    inner.sort(key=lambda members: -sum(op.total_us for _, op in members))
    found: list[ScopeTotal] = []
    for members in inner:
        path = members[0][0][:level]
        found.append(_total(path, members))
        if path:
            found += _totals(path, members, depth)
    return found


def _total(path: Path, members: Sequence[tuple[Path, Op]]) -> ScopeTotal:
    ops = [op for _, op in members]
    return ScopeTotal(
        scope="/".join(path),
        depth=len(path),
        ops=len(ops),
        total_us=sum(op.total_us for op in ops),
        per_step_us=sum(op.per_step_us for op in ops),
        own_us=sum(op.per_step_us for own, op in members if own == path),
        share=sum(op.share for op in ops),
    )

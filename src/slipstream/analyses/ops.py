"""Device time by instruction, or by category, phase, scope, loop, source line or kernel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from slipstream.analyses.labels import found_instruction
from slipstream.analyses.op_groups import Op, OpGroup, ScopeTotal, op_groups, scope_tree
from slipstream.errors import BadInput
from slipstream.inline import Inline
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.categories import category, kernel_category
from slipstream.profile.semantics.names import describe, phase_of, scope, source
from slipstream.profile.semantics.signatures import shapes_of
from slipstream.profile.timeline.nesting import self_durations
from slipstream.profile.timeline.steps import averaged_over

__all__ = ["GROUPINGS", "UNATTRIBUTED", "Op", "OpGroup", "Ops", "has_scopes", "in_loops", "ops"]

GROUPINGS = ("instruction", "category", "phase", "scope", "loop", "source", "kernel")
UNATTRIBUTED = "unattributed"
NO_SCOPE = "(none)"
"""the group of ops that have nothing of what they are grouped by"""
LEAST_SCOPED = 0.01
"""share of the time above which a model has scopes: libraries name theirs in any model"""


@dataclass(frozen=True)
class Ops(Inline):
    """Ops by device time, longest first."""

    by: str
    steps: int
    """number of steps the totals cover; 0 if the whole recording was counted"""
    attributed_share: float
    """share of device time that was attributed to an instruction"""
    ops: tuple[Op, ...]
    total_us: float

    @cached_property
    def groups(self) -> tuple[OpGroup, ...]:
        """The same with equal ops of unrolled layers merged: `op_groups`."""
        return op_groups(self.ops, self.by)

    def tree(self, depth: int | None = None, flat: bool = False) -> tuple[ScopeTotal, ...]:
        """Scopes with totals, each followed by those inside it: `scope_tree`."""
        if self.by != "instruction":
            raise BadInput(f"ops by {self.by} have no scopes; expected ops by instruction")
        return scope_tree(self.ops, depth, flat)


def has_scopes(found: Ops) -> bool:
    """Whether the model names scopes: whether more than a trace of ops by scope has one."""
    return sum(op.share for op in found.ops if op.instruction != NO_SCOPE) > LEAST_SCOPED


def in_loops(profile: Profile, found: Ops) -> Ops:
    """Ops by instruction, with the loops and the source line they are in as their scopes.

    For models without name scopes: `loop at model.py:32, 4 turns/model.py:25`. Ops of which neither
    is known have the name of their program, and so do all if there are several programs.
    """
    several = len({op.program for op in found.ops if op.program}) > 1
    return replace(found, ops=tuple(_in_loops(profile, op, several) for op in found.ops))


def _in_loops(profile: Profile, op: Op, with_program: bool) -> Op:
    path = [op.source] if op.source else []
    known = found_instruction(profile, op.program, op.instruction)
    if known is not None:
        program, instruction = known
        loop = program.loop_of(instruction.name)
        while loop is not None:
            turns = f", {loop.trip_count} turns" if loop.trip_count else ""
            path.insert(0, f"loop at {source(program, loop) or loop.name}{turns}")
            loop = program.loop_of(loop.name)
    if op.program and (with_program or not path):
        path.insert(0, op.program.partition("(")[0])
    return replace(op, scope="/".join(path))


def _label(column: Callable[[str], Array]) -> Array:
    """The instruction, or the negated kernel where there is none."""
    instruction = column("instruction")
    return instruction if instruction.all() else np.where(instruction, instruction, -column("name"))


def ops(profile: Profile, by: str = "instruction", whole: bool = False) -> Ops:
    """Device time of the steps (or of the whole recording) by instruction, phase, source line, …

    Loops are those around an instruction, and its source line: `in_loops`.

    Times are self times: on lanes where operations nest (TPU, XLA:CPU), an operation's time
    excludes that of the operations inside it.
    """
    if by not in GROUPINGS:
        raise BadInput(f"can't group ops by {by!r}; choose one of: {', '.join(GROUPINGS)}")
    rows = _Rows(profile, whole)
    return rows.ops() if by == "instruction" else rows.grouped(by)


class _Rows:
    """The counted events, grouped by program and instruction."""

    def __init__(self, profile: Profile, whole: bool) -> None:
        self.profile = profile
        self.events = profile.events
        self.times = self_durations(profile)
        whole = whole or profile.steps.basis == "recording"
        self.steps = 0 if whole else profile.steps.count
        self.averaged_over = averaged_over(profile, whole)
        if not whole and not profile.steps.cover_all_events(profile):
            counted = profile.steps.of_events(profile) < len(profile.steps)
            self.events = self.events.take(counted)
            self.times = self.times[counted]
        self.total = float(self.times.sum())
        self.firsts, self.sizes, self.sums = self._grouped()

    def _grouped(self) -> tuple[Array, Array, Array]:
        """(first row, number of events, time) of each instruction of each program.

        Events without an instruction are grouped by their kernel.
        """
        from slipstream.profile.grouping import group_pairs

        events = self.events
        if events.tags is None or not events.is_tagged("program", "instruction", "name"):
            groups, firsts = group_pairs(events["program"], _label(events.__getitem__))
            return self._summed(groups, firsts)
        # Rows of one tag belong together: sum them first, then the few tags.
        first, size, time = self._summed(events.tags.of, events.tags.firsts)
        used = np.flatnonzero(size)
        used = used[np.argsort(first[used], kind="stable")]
        pair = (events.tagged("program")[used], _label(events.tagged)[used])
        groups, heads = group_pairs(*pair)
        sizes, times = np.zeros((2, len(heads)), np.int64)
        np.add.at(sizes, groups, size[used])
        np.add.at(times, groups, time[used])
        return first[used[heads]], sizes, times

    def _summed(self, groups: Array, firsts: Array) -> tuple[Array, Array, Array]:
        from slipstream.profile.grouping import group_counts, group_sums

        sums = group_sums(groups, self.times, len(firsts))
        return firsts, group_counts(groups, len(firsts)), sums

    def ops(self) -> Ops:
        counts = self._counts()
        found = [self._op(group, int(counts[group])) for group in range(len(self.firsts))]
        return self._result("instruction", found)

    def grouped(self, by: str) -> Ops:
        """The times of instructions, summed by what they have in common."""
        if by == "kernel":
            return self._by_kernel()
        key: Callable[[Op], str] = lambda op: getattr(op, "scope" if by == "loop" else by)  # noqa: E731
        merged: dict[tuple[str, str], list[Op]] = {}
        rows = in_loops(self.profile, self.ops()) if by == "loop" else self.ops()
        for op in rows.ops:
            merged.setdefault((op.program, key(op) or NO_SCOPE), []).append(op)
        found = []
        for (program, name), members in merged.items():
            total = sum(op.total_us for op in members)
            count = sum(op.count for op in members)
            first = members[0]
            same = {
                field: getattr(first, field)
                for field in ("phase", "category", "scope", "source")
                if len({getattr(op, field) for op in members}) == 1
            }
            text = f"{len(members)} instructions" if len(members) > 1 else first.description
            found.append(self._row(program, name, count, total, description=text, **same))
        return self._result(by, found)

    def _by_kernel(self) -> Ops:
        from slipstream.profile.grouping import group_columns, group_sums

        groups, firsts = group_columns(self.events, "program", "name")
        sums = group_sums(groups, self.times, len(firsts))
        counts = np.bincount(groups, minlength=len(firsts))
        found = []
        for group, row in enumerate(firsts.tolist()):
            name = self.events.text("name", row)
            program = self.events.text("program", row)
            kind = kernel_category(name)
            total = float(sums[group]) / 1e6
            found.append(self._row(program, name, int(counts[group]), total, category=kind))
        return self._result("kernel", found)

    def _counts(self) -> Array:
        """How often each instruction ran.

        An instruction that launches several kernels ran as often as the least frequent of them;
        if it launches one kernel several times per run, the program's trip counts tell.
        """
        counts = self.sizes.copy()
        runs = self._program_runs()
        unclear = np.zeros(len(counts), bool)
        for group, row in enumerate(self.firsts.tolist()):
            program, label = (self.events.text(c, row) for c in ("program", "instruction"))
            expected = self._executions(program, label) * runs.get(program, 0)
            if expected and counts[group] % expected == 0:
                counts[group] = expected
            else:
                unclear[group] = True
        for group in np.flatnonzero(unclear).tolist():
            counts[group] = self._rarest_kernel(group)
        return counts

    def _rarest_kernel(self, group: int) -> int:
        """How often the least frequent kernel of a group ran."""
        kernels = self._kernels
        row = int(self.firsts[group])
        return min(kernels[self._key(row)].values())

    @cached_property
    def _kernels(self) -> dict[tuple[int, int], dict[int, int]]:
        """How often each kernel of each instruction ran."""
        from slipstream.profile.grouping import group_pairs

        events = self.events
        groups, firsts = group_pairs(events["program"], _label(events.__getitem__))
        pairs, heads = group_pairs(groups, events["name"])
        found: dict[tuple[int, int], dict[int, int]] = {}
        for row, size in zip(heads.tolist(), np.bincount(pairs).tolist(), strict=True):
            found.setdefault(self._key(row), {})[int(events["name"][row])] = size
        return found

    def _key(self, row: int) -> tuple[int, int]:
        """Program and instruction of a row; the negated kernel where it has no instruction."""
        cells = (int(self.events[c][row]) for c in ("program", "instruction", "name"))
        program, instruction, name = cells
        return program, instruction or -name

    def _program_runs(self) -> dict[str, int]:
        """How often each program ran in the counted events, over all devices."""
        runs, steps = self.profile.runs, self.profile.steps
        counted = np.ones(len(runs), bool)
        if self.steps:
            counted[:] = False
            for device in distinct(steps.device).tolist():
                own, at = steps.device == device, runs.device == device
                place = np.searchsorted(np.sort(steps.start_ps[own]), runs.start_ps[at], "right")
                ends = np.sort(steps.end_ps[own])
                counted[at] = (place > 0) & (runs.start_ps[at] < ends[np.maximum(place - 1, 0)])
        numbers = np.bincount(runs.program[counted], minlength=1)
        texts = self.profile.events.texts
        return {texts[i]: int(numbers[i]) for i in np.flatnonzero(numbers).tolist()}

    def _executions(self, program: str, label: str) -> int:
        if program not in self.profile.programs or label not in self.profile.programs[program]:
            return 0
        found = self.profile.programs[program]
        start = found.starter(label)
        return found.executions(start.name if start else label) or 0

    def _op(self, group: int, count: int) -> Op:
        row = int(self.firsts[group])
        total = float(self.sums[group]) / 1e6
        name = self.events.text("program", row)
        label = self.events.text("instruction", row)
        kernel = self.events.text("name", row)
        if not label:
            text = f"kernel {kernel}"
            return self._row(
                name, UNATTRIBUTED, count, total, category=UNATTRIBUTED, description=text
            )
        if name not in self.profile.programs or label not in self.profile.programs[name]:
            return self._row(name, label, count, total, category=kernel_category(kernel))
        program = self.profile.programs[name]
        instruction = program.instruction(label)
        return self._row(
            name,
            label,
            count,
            total,
            phase=phase_of(program, instruction),
            category=category(program, instruction),
            scope=scope(instruction.op_name),
            source=source(program, instruction),
            description=describe(program, instruction),
            shapes=shapes_of(program, instruction),
        )

    def _row(self, program: str, name: str, count: int, total_us: float, **texts: str) -> Op:
        per_step = total_us / self.averaged_over
        share = total_us / (self.total / 1e6) if self.total else 0.0
        often = count / self.averaged_over
        return Op(program, name, count, total_us, per_step, share, per_step_count=often, **texts)

    def _result(self, by: str, found: list[Op]) -> Ops:
        found.sort(key=lambda op: (-op.total_us, op.program, op.instruction))
        known = [self.events.text("instruction", row) != "" for row in self.firsts.tolist()]
        attributed = float(self.sums[np.array(known, bool)].sum())
        share = attributed / self.total if self.total else 0.0
        return Ops(by, self.steps, share, tuple(found), self.total / 1e6)

"""Attribution: find the instruction and the execution that each kernel and copy belongs to.

Outside CUDA graphs the profiler labels every event with its instruction, and that label is used.
Inside graphs it labels all of them `command_buffer_N`; there, the events of one execution are
aligned with the program's launch sequence. Events that fit nowhere stay unattributed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from slipstream.profile.attribution import kernels
from slipstream.profile.attribution.executions import (
    execution_starts,
    graph_number,
    launch_keys,
    recorded_executions,
    used_texts,
)
from slipstream.profile.events import Array, Rows, Table, Texts, distinct
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.profile.program import Program

if TYPE_CHECKING:
    from slipstream.profile.attribution.alignment import EventSequence


def attribute(profile: Profile) -> Profile:
    """Fill in the `instruction` and `execution` of the events."""
    events = profile.events
    if not len(events):
        return profile
    texts = Texts(events.texts)
    events = _labelled(profile, texts)
    execution = np.zeros(0, np.int32)
    instruction: Array | None = None
    warnings: list[ProfileWarning] = []
    for name, rows in _parts(profile):
        alone = isinstance(rows, slice)
        own = events if alone else events.take(rows)
        program = profile.programs.get(name)
        recorded = recorded_executions(profile, rows)
        number = _executions(program, own) if recorded is None else recorded
        if alone:
            execution = number
        else:
            execution = execution if len(execution) else np.zeros(len(events), np.int32)
            execution[rows] = number
        if recorded is not None:
            continue
        if program is not None and _has_unlabelled(own):
            instruction = events["instruction"].copy() if instruction is None else instruction
            instruction[rows] = _align(program, own, number, texts)
        elif program is None and _has_graphs(own):
            warnings.append(_no_program(name))
    execution = execution if len(execution) else np.zeros(len(events), np.int32)
    filled = events.replace(texts.values, execution=execution)
    if instruction is not None:
        filled = filled.replace(instruction=instruction)
    return profile.with_events(filled).with_warnings(*dict.fromkeys(warnings))


def _parts(profile: Profile) -> Iterator[tuple[str, Rows]]:
    """(program, rows) for each program on each device; a slice if it has all rows."""
    from slipstream.profile.grouping import group_columns, group_pairs

    events = profile.events
    if len(profile.devices) == 1 and events.is_tagged("program"):
        used = distinct(events.tagged("program"))
        if len(used) == 1:
            yield from [(events.texts[used[0]], slice(None))] if used[0] else []
            return
    if len(profile.devices) == 1:
        groups, firsts = group_columns(events, "program", "program")
    else:
        groups, firsts = group_pairs(profile.event_devices, events["program"])
    for group, first in enumerate(firsts.tolist()):
        if name := events.text("program", first):
            yield name, slice(None) if len(firsts) == 1 else np.flatnonzero(groups == group)


def _executions(program: Program | None, events: Table) -> Array:
    from slipstream.profile.grouping import places

    return places(launch_keys(events), execution_starts(program, events.texts, events))


def _labelled(profile: Profile, texts: Texts) -> Table:
    """The events with the labels that are instructions; no label inside a graph is one.

    If the program is unknown, every label but a graph's counts as an instruction.
    """
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    tagged = events.is_tagged("program", "op")
    read = events.tagged if tagged else events.__getitem__
    programs, ops = read("program"), read("op")
    groups, firsts = group_pairs(programs, ops)
    found = []
    for row in firsts.tolist():
        label, name = events.texts[ops[row]], events.texts[programs[row]]
        known = name in profile.programs
        is_instruction = label in profile.programs[name] if known else graph_number(label) is None
        found.append(label if is_instruction else "")
    instruction = np.take(texts.map(found), groups)
    fill = events.retag if tagged else events.replace
    return fill(texts.values, instruction=instruction)


def _has_unlabelled(events: Table) -> bool:
    """Whether there are kernels inside graphs, which the profiler does not label."""
    if events.is_tagged("instruction") and events.tagged("instruction").all():
        return False
    return not events["instruction"].all() and _has_graphs(events)


def _no_program(name: str) -> ProfileWarning:
    return ProfileWarning(
        "no-program",
        f"{name} ran inside CUDA graphs, but the profile does not contain the program, so its "
        "kernels can't be attributed to instructions; record with host_tracer_level of at least 1, "
        "or without command buffers (xla_gpu_enable_command_buffer='')",
    )


def _has_graphs(events: Table) -> bool:
    return any(graph_number(events.texts[i]) is not None for i in used_texts(events, "op"))


def _align(program: Program, events: Table, execution: Array, texts: Texts) -> Array:
    """Labels of all events, those of unlabelled ones filled in by aligning each execution."""
    labels = events["instruction"]
    order = np.lexsort((events["start_ps"], launch_keys(events)))
    numbers = execution[order]
    names, found = events["name"][order], labels[order]
    aligner = _Aligner(program, texts)
    answers: dict[bytes, Array] = {}
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        # Executions of one program look alike: the same kernels and labels get the same answer.
        key = names[start:end].tobytes() + found[start:end].tobytes()
        if key not in answers:
            answers[key] = aligner.instructions(events, order[start:end], found[start:end])
        found[start:end] = np.where(found[start:end] == 0, answers[key], found[start:end])
    filled = np.empty_like(labels)
    filled[order] = found
    return filled


class _Aligner:
    """A program's aligner, and the numbers that its names are mapped to."""

    def __init__(self, program: Program, texts: Texts) -> None:
        from slipstream.profile.attribution.alignment import Aligner
        from slipstream.profile.attribution.launch_sequence import unroll

        self.sequence = unroll(program)
        names = {launch.instruction for launch in self.sequence.launches}
        self.labels = {name: texts.index(name) for name in sorted(names)}
        self.groups = {g: i for i, g in enumerate(sorted(set(self.sequence.groups.values())))}
        self.aligner = Aligner(self.sequence, self.labels, self.groups)
        self.answer = np.array(
            [self.labels[launch.instruction] for launch in self.sequence.launches], np.int32
        )

    def instructions(self, events: Table, rows: Array, labels: Array) -> Array:
        """Text index of the instruction of each event; 0 if it fits nowhere."""
        if not len(self.answer):
            return np.zeros(len(rows), np.int32)
        path, fits = self.aligner.align(self._sequence(events, rows, labels))
        return np.where(fits, self.answer[path], 0).astype(np.int32)

    def _sequence(self, events: Table, rows: Array, labels: Array) -> EventSequence:
        from slipstream.profile.attribution.alignment import ANCHOR, EventSequence

        used, inverse = np.unique(events["name"][rows], return_inverse=True)
        columns: list[tuple[int, ...]] = []
        for index in used.tolist():
            name = events.texts[index]
            kernel = kernels.classify(name)
            group = self._group(name)
            if group is not None:
                columns.append((kernels.NAMED, group, kernels.ANY, 0, 0))
            else:
                row = (kernel.kind, -2, kernel.part, kernel.family, kernel.direction)
                columns.append(row)
        kind, group_, part, family, direction = np.array(columns, np.int64)[inverse].T.copy()
        anchored = labels != 0
        kind[anchored] = ANCHOR
        group_[anchored] = labels[anchored]
        return EventSequence(kind, group_, part, family, direction, self._bytes(events, rows))

    def _group(self, kernel: str) -> int | None:
        """The group of fusions that share a kernel name; ROCm appends `.kd` to names."""
        group = self.sequence.groups.get(kernel.removesuffix(".kd"))
        return self.groups[group] if group is not None else None

    @staticmethod
    def _bytes(events: Table, rows: Array) -> Array:
        used, inverse = np.unique(events["details"][rows], return_inverse=True)
        sizes = [kernels.copy_bytes(events.texts[i]) or 0 for i in used.tolist()]
        return np.array(sizes, np.int64)[inverse]

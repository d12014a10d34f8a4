"""Instructions of the kernels inside CUDA graphs.

The events of one execution are put in schedule order, then aligned with the program's launches. A
graph mostly runs its kernels in schedule order, so they are aligned as they ran. Where it did not,
the numbers of the graph's nodes restore that order.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter

import numpy as np

from slipstream.profile.attribution import kernels
from slipstream.profile.attribution.alignment import ANCHOR, MISFIT, Aligner, EventSequence
from slipstream.profile.attribution.executions import has_launches, launch_keys
from slipstream.profile.attribution.graph_nodes import (
    MOST_UNNAMED,
    NodeOrder,
    is_in_order,
    node_order,
)
from slipstream.profile.attribution.launch_sequence import unroll
from slipstream.profile.events import Array, Table, Texts
from slipstream.profile.program import Program


def instructions_in_graphs(
    program: Program, events: Table, execution: Array, texts: Texts
) -> Array:
    """Labels of all events, those of unlabelled ones filled in by aligning each execution."""
    labels = events["instruction"]
    order = np.lexsort((events["start_ps"], launch_keys(events)))
    numbers = execution[order]
    names, found = events["name"][order], labels[order]
    nodes = events["graph_node"][order].astype(np.int32)
    finder = _Finder(program, events, texts)
    answers: dict[bytes, Array] = {}
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        # Executions of one program look alike: the same kernels and labels get the same answer.
        part = slice(start, end)
        key = b"".join(column[part].tobytes() for column in (names, found, nodes))
        if key not in answers:
            answers[key] = finder.instructions(order[part], found[part])
        found[part] = np.where(found[part] == 0, answers[key], found[part])
    filled = np.empty_like(labels)
    filled[order] = found
    return filled


@dataclass(frozen=True)
class _Execution:
    """The events of one execution, in launch order."""

    sequence: EventSequence
    node: Array
    launches: list[tuple[int, int]]

    @property
    def ran_in_order(self) -> bool:
        """Whether all graphs ran their nodes in the order in which they were added."""
        return all(is_in_order(self.node[start:end]) for start, end in self.launches)

    def by_node(self, unnamed: int) -> list[NodeOrder] | None:
        """Events of each launch, by node (see `node_order`); None if the numbers don't tell."""
        order = []
        for start, end in self.launches:
            found: NodeOrder | None = NodeOrder(np.arange(end - start), np.empty(0, np.int64))
            if self.node[start]:
                is_named = self.sequence.kind[start:end] == kernels.NAMED
                found = node_order(self.node[start:end], is_named, unnamed)
            if found is None:
                return None
            own = np.where(found.own < 0, -1, found.own + start)
            order.append(NodeOrder(own, found.children + start))
        return order


class _Finder:
    """Finds the instructions of one execution's events; texts are numbers."""

    def __init__(self, program: Program, events: Table, texts: Texts) -> None:
        self.events = events
        self.sequence = unroll(program)
        names = {launch.instruction for launch in self.sequence.launches}
        self.labels = {name: texts.index(name) for name in sorted(names)}
        self.groups = {g: i for i, g in enumerate(sorted(set(self.sequence.groups.values())))}
        self.aligner = Aligner.of(self.sequence, self.labels, self.groups)
        self.answer = np.array(
            [self.labels[launch.instruction] for launch in self.sequence.launches], np.int32
        )
        self.has_launches = has_launches(events)
        self.inside: dict[bytes, tuple[Array, Array]] = {}

    def instructions(self, rows: Array, labels: Array) -> Array:
        """Text index of the instruction of each event, in launch order; 0 if it fits nowhere."""
        if not len(self.answer):
            return np.zeros(len(rows), np.int32)
        execution = _Execution(
            self._sequence(rows, labels), self.events["graph_node"][rows], self._launches(rows)
        )
        as_it_ran = self._as_it_ran(execution)
        if execution.ran_in_order and as_it_ran.all():
            return as_it_ran
        by_node = self._by_node(execution)
        duration = self.events["duration_ps"][rows]
        if by_node is None or duration[by_node == 0].sum() > duration[as_it_ran == 0].sum():
            return as_it_ran
        return by_node

    def _as_it_ran(self, execution: _Execution) -> Array:
        path, fit = self.aligner.align(execution.sequence)
        return self._answers(path, fit)

    def _by_node(self, execution: _Execution) -> Array | None:
        """Instructions by the order of nodes in their graphs; None if it can't be told."""
        best: list[tuple[float, Array]] = []
        for unnamed in range(MOST_UNNAMED + 1):
            order = execution.by_node(unnamed)
            if order is None:
                continue
            found = self._aligned(execution, order)
            best = [max(pair, key=itemgetter(0)) for pair in zip(best or found, found, strict=True)]
            if all(score > 0 for score, _ in best):
                break
        answer = np.zeros(len(execution.sequence), np.int32)
        for (start, end), (_, part) in zip(execution.launches, best, strict=bool(best)):
            answer[start:end] = part
        return answer if best else None

    def _aligned(self, execution: _Execution, order: list[NodeOrder]) -> list[tuple[float, Array]]:
        """(worst fit of an event, instructions of all) of each launch, its nodes in this order."""
        rows = np.concatenate([part.own for part in order])
        path, fit = self.aligner.align(execution.sequence.take(rows))
        ends = np.cumsum([len(part.own) for part in order])
        found = []
        for part, end, (first, last) in zip(order, ends, execution.launches, strict=True):
            at = slice(end - len(part.own), end)
            own, is_child = part.own[part.own >= 0], part.own < 0
            answer, fits = np.zeros(last - first, np.int32), np.full(last - first, MISFIT)
            answer[own - first] = self._answers(path[at], fit[at])[~is_child]
            fits[own - first] = fit[at][~is_child]
            places = path[at][is_child & (fit[at] > MISFIT)]
            inside = self._in_children(execution.sequence.take(part.children), places)
            answer[part.children - first], fits[part.children - first] = inside
            found.append((float(fits.min()), answer))
        return found

    def _in_children(self, sequence: EventSequence, places: Array) -> tuple[Array, Array]:
        """(instructions, fits) of events inside child graphs, which stand for launches `places`."""
        if not len(sequence) or not len(places):
            return np.zeros(len(sequence), np.int32), np.full(len(sequence), MISFIT)
        key = sequence.table().tobytes() + self.answer[places].tobytes()
        if key not in self.inside:
            path, fit = self.aligner.among(places).align(sequence)
            if len(np.unique(path)) < len(places):
                fit = np.minimum(fit, 0.0)  # every child graph has run
            self.inside[key] = self._answers(places[path], fit), fit
        return self.inside[key]

    def _answers(self, path: Array, fit: Array) -> Array:
        return np.where(fit > MISFIT, self.answer[path], 0).astype(np.int32)

    def _launches(self, rows: Array) -> list[tuple[int, int]]:
        """(start, end) of each launch's events; the kernels of a graph are one launch."""
        if not self.has_launches:
            return [(0, len(rows))]
        starts = np.flatnonzero(np.diff(self.events["correlation"][rows], prepend=-1)).tolist()
        return list(zip(starts, [*starts[1:], len(rows)], strict=True))

    def _sequence(self, rows: Array, labels: Array) -> EventSequence:
        events = self.events
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
        return EventSequence(kind, group_, part, family, direction, self._bytes(rows))

    def _group(self, kernel: str) -> int | None:
        """The group of fusions that share a kernel name; ROCm appends `.kd` to names."""
        group = self.sequence.groups.get(kernel.removesuffix(".kd"))
        return self.groups[group] if group is not None else None

    def _bytes(self, rows: Array) -> Array:
        used, inverse = np.unique(self.events["details"][rows], return_inverse=True)
        sizes = [kernels.copy_bytes(self.events.texts[i]) or 0 for i in used.tolist()]
        return np.array(sizes, np.int64)[inverse]

"""Instructions of the kernels inside CUDA graphs.

The events of one execution are put in schedule order, then aligned with the program's launches. A
graph mostly runs its kernels in schedule order, so they are aligned as they ran. Where it did not,
the numbers of the graph's nodes restore that order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING

import numpy as np

from slipstream.profile.attribution import kernels
from slipstream.profile.attribution.alignment import ANCHOR, MISFIT, Aligner, EventSequence
from slipstream.profile.attribution.doubts import Doubts
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

if TYPE_CHECKING:
    from slipstream.profile.attribution.graph_dependencies import GraphEvent
    from slipstream.profile.attribution.graph_schedule import Schedules

_LATEST = np.iinfo(np.int64).max
_LABEL = 0xFFFFFFFF
_MOST_SEARCHES = 500
"""graph launches that are matched by dependencies; each takes up to a second"""


def instructions_in_graphs(
    program: Program, events: Table, execution: Array, texts: Texts
) -> tuple[Array, Doubts]:
    """Labels of all events, those of unlabelled ones filled in by aligning each execution."""
    labels = events["instruction"]
    order = np.lexsort((events["start_ps"], launch_keys(events)))
    numbers, found = execution[order], labels[order]
    looks = _looks(events, order)
    finder = _Finder(program, events, texts)
    answers: dict[bytes, Array] = {}
    starts = np.flatnonzero(np.diff(numbers, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(order)), strict=True):
        # Executions of one program look alike: the same kernels and labels get the same answer.
        part = slice(start, end)
        key = b"".join(column[part].tobytes() for column in looks)
        if key not in answers or not finder.still_holds(order[part], answers[key]):
            answers[key] = finder.instructions(order[part], found[part])
        found[part] = np.where(found[part] == 0, answers[key], found[part])
    filled = np.empty_like(labels)
    filled[order] = found
    return filled, finder.doubts


def _looks(events: Table, order: Array) -> list[Array]:
    """Columns that are equal for executions that look alike."""
    columns = ("name", "instruction", "graph_node")
    if events.tags is not None and events.is_tagged(*columns):
        return [events.tags.of[order]]
    return [events[column][order] for column in columns]


@dataclass(frozen=True)
class _Execution:
    """The events of one execution, in launch order."""

    sequence: EventSequence
    graph: Array
    node: Array
    launches: list[tuple[int, int]]

    @property
    def is_numbered(self) -> bool:
        """Whether the nodes of all graphs have numbers."""
        return bool(self.node.any() and self.node[self.graph != 0].all())

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
        self.program = program
        self.events = events
        self.sequence = unroll(program)
        names = {launch.instruction for launch in self.sequence.launches}
        self.labels = {name: texts.index(name) for name in sorted(names)}
        self.names = {label: name for name, label in self.labels.items()}
        self.groups = {g: i for i, g in enumerate(sorted(set(self.sequence.groups.values())))}
        self.aligner = Aligner.of(self.sequence, self.labels, self.groups)
        self.answer = np.array(
            [self.labels[launch.instruction] for launch in self.sequence.launches], np.int32
        )
        needed = {x.instruction for x in self.sequence.launches if not x.may_be_elided}
        self.needed = np.array([self.labels[name] for name in needed], np.int64)
        self.has_launches = has_launches(events)
        tagged = events.is_tagged("graph_node")
        numbers = events.tagged("graph_node") if tagged else events["graph_node"]
        self.has_numbers = bool(numbers.any())
        self.doubts = Doubts()
        self.searches = 0
        self.inside: dict[bytes, tuple[Array, Array]] = {}

    def instructions(self, rows: Array, labels: Array) -> Array:
        """Text index of the instruction of each event, in launch order; 0 if it fits nowhere."""
        if not len(self.answer):
            return np.zeros(len(rows), np.int32)
        execution = _Execution(
            self._sequence(rows, labels),
            self.events.cells("graph", rows),
            self.events.cells("graph_node", rows),
            self._launches(rows),
        )
        as_it_ran = self._as_it_ran(execution)
        if as_it_ran.all() and (
            execution.ran_in_order
            if execution.is_numbered
            else self._is_whole(as_it_ran) and self.agrees(rows, as_it_ran)
        ):
            return as_it_ran
        found = [(as_it_ran, Doubts())]
        if execution.is_numbered and (by_node := self._by_node(execution)) is not None:
            if by_node.all() and self.agrees(rows, by_node):
                return by_node
            found.append((by_node, Doubts()))
        if self.searches < _MOST_SEARCHES:
            found.append(self._by_dependencies(execution, rows, labels, as_it_ran))
        best, doubts = max(found, key=lambda one: self._trust(rows, one[0]))
        self.doubts |= doubts | self._contradicted(rows, best)
        return best

    def _trust(self, rows: Array, answer: Array) -> tuple[bool, int, bool, int]:
        """What to prefer: a whole answer without contradictions; then one for most of the time,
        for all instructions, and with fewer contradictions."""
        attributed = int(self.events["duration_ps"][rows][answer != 0].sum())
        is_whole = self._is_whole(answer)
        conflicts = len(self._conflicts(rows, answer))
        is_sound = bool(answer.all()) and is_whole and not conflicts
        return is_sound, attributed, is_whole, -conflicts

    def _contradicted(self, rows: Array, answer: Array) -> Doubts:
        names = {self.names[i] for i in np.unique(self._conflicts(rows, answer)).tolist()}
        return Doubts(frozenset(frozenset((name,)) for name in names))

    def still_holds(self, rows: Array, answer: Array) -> bool:
        """Whether an answer for the same kernels is true of these as well, which ran later."""
        return self.has_numbers or self.agrees(rows, answer)

    def _by_dependencies(
        self, execution: _Execution, rows: Array, labels: Array, otherwise: Array
    ) -> tuple[Array, Doubts]:
        """Instructions by dependencies, for each graph; where they don't fit, `otherwise`."""
        from slipstream.profile.attribution.graph_dependencies import match

        answer, doubts = otherwise.copy(), Doubts()
        elsewhere = self._elsewhere(rows, labels)
        duration = self.events["duration_ps"][rows]
        for start, end in execution.launches:
            if labels[start] or not execution.graph[start]:
                continue
            part = rows[start:end]
            other = elsewhere.get(int(self.events["op"][part[0]]), frozenset())
            found = match(self.schedules, list(self._graph_events(execution, start, part)), other)
            self.searches += 1
            if found is None:
                continue
            names = np.array([self.labels.get(name, 0) for name in found.instructions], np.int32)
            took = duration[start:end]
            if took[names != 0].sum() >= took[answer[start:end] != 0].sum():
                answer[start:end] = names
                doubts |= found.doubts
        return answer, doubts

    def _graph_events(self, execution: _Execution, first: int, rows: Array) -> Iterator[GraphEvent]:
        from slipstream.profile.attribution.graph_dependencies import GraphEvent

        sequence, events = execution.sequence, self.events
        groups = list(self.groups)
        for index, row in enumerate(rows.tolist(), first):
            begin = int(events["start_ps"][row])
            group = int(sequence.group[index])
            yield GraphEvent(
                int(sequence.kind[index]),
                groups[group] if group >= 0 else "",
                int(sequence.part[index]),
                int(sequence.family[index]),
                int(sequence.direction[index]),
                int(sequence.bytes[index]),
                begin,
                begin + int(events["duration_ps"][row]),
                int(events["lane"][row]),
                (int(events["name"][row]), int(events["details"][row])),
            )

    def _elsewhere(self, rows: Array, labels: Array) -> dict[int, frozenset[str]]:
        """By graph label: the instructions that ran outside such graphs, as far as is known."""
        events = self.events
        outside = {events.texts[label] for label in np.unique(labels[labels != 0]).tolist()}
        kernels_of: dict[int, set[str]] = {}
        pairs = np.unique(np.stack((events["op"][rows], events["name"][rows])), axis=1)
        for op, name in pairs.T.tolist():
            only = self.only_instruction.get(self._kernel_group(events.texts[name]) or "")
            if only is not None:
                kernels_of.setdefault(op, set()).add(only)
        return {
            op: frozenset(outside.union(*kernels_of.values()) - own)
            for op, own in kernels_of.items()
        }

    @cached_property
    def schedules(self) -> Schedules:
        from slipstream.profile.attribution.graph_schedule import Schedules

        return Schedules(self.program)

    @cached_property
    def only_instruction(self) -> dict[str, str]:
        """The instruction of each group that has one."""
        found: dict[str, set[str]] = {}
        for launch in self.sequence.launches:
            found.setdefault(launch.group, set()).add(launch.instruction)
        return {group: next(iter(names)) for group, names in found.items() if len(names) == 1}

    def agrees(self, rows: Array, answer: Array) -> bool:
        """Whether no kernel of a graph began before those whose results it uses."""
        return not len(self._conflicts(rows, answer))

    def _conflicts(self, rows: Array, answer: Array) -> Array:
        """Pairs of labels (used, user) where that is not so."""
        from slipstream.profile.attribution.graph_dependencies import EARLY_PS

        events, (used, user) = self.events, self.uses
        inside = (answer != 0) & (events["graph"][rows] != 0)
        rows, label = rows[inside], answer[inside].astype(np.int64)
        key, run = np.unique(events["correlation"][rows] << 32 | label, return_inverse=True)
        start = events["start_ps"][rows]
        # A graph may contain a loop, so that an instruction of its body runs several times.
        again = np.bincount(run[np.diff(run, prepend=-1) != 0], minlength=len(key)) > 1
        is_repeated = again & self.in_loops[key & _LABEL]
        begin, settled = np.full(len(key), _LATEST), np.full(len(key), -_LATEST)
        np.minimum.at(begin, run, start)
        half = np.maximum(events["duration_ps"][rows] // 2 - EARLY_PS, 0)
        np.maximum.at(settled, run, start + half)
        first, last = (np.searchsorted(user, key & _LABEL, side) for side in ("left", "right"))
        count = last - first
        at = np.repeat(np.arange(len(key)), count)
        nth = np.arange(len(at)) - np.repeat(np.cumsum(count) - count, count)
        needed = (key[at] & ~_LABEL) | used[np.repeat(first, count) + nth]
        place = np.minimum(np.searchsorted(key, needed), len(key) - 1)
        is_wrong = (key[place] == needed) & (begin[at] < settled[place])
        is_wrong &= ~is_repeated[at] & ~is_repeated[place]
        return np.stack((key[place[is_wrong]], key[at[is_wrong]]), axis=1) & _LABEL

    @cached_property
    def in_loops(self) -> Array:
        """Whether an execution launches an instruction more than once, by label."""
        return np.bincount(self.answer, minlength=max(self.labels.values()) + 1) > 1

    @cached_property
    def uses(self) -> tuple[Array, Array]:
        """Pairs of labels, the second uses the result of the first; by the second."""
        pairs = sorted(
            (self.labels[user], self.labels[used])
            for schedule in self.schedules.all
            for used, user in schedule.uses
            if used != user
        )
        user, used = np.array(pairs, np.int64).reshape(-1, 2).T
        return used, user

    def _as_it_ran(self, execution: _Execution) -> Array:
        path, fit = self.aligner.align(execution.sequence)
        return self._answers(path, fit)

    def _is_whole(self, answer: Array) -> bool:
        """Whether everything has run that the program launches: a kernel too many for one
        instruction may be another's."""
        return bool(np.isin(self.needed, answer).all())

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
        group = self._kernel_group(kernel)
        return self.groups[group] if group is not None else None

    def _kernel_group(self, kernel: str) -> str | None:
        """The group of fusions that share a kernel name; ROCm appends `.kd` to names."""
        return self.sequence.groups.get(kernel.removesuffix(".kd"))

    def _bytes(self, rows: Array) -> Array:
        used, inverse = np.unique(self.events["details"][rows], return_inverse=True)
        sizes = [kernels.copy_bytes(self.events.texts[i]) or 0 for i in used.tolist()]
        return np.array(sizes, np.int64)[inverse]

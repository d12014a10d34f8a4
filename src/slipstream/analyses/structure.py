"""Structure: the module, phase, loop turn, scope and source line that device time belongs to.

    phase    ├──────── forward ────────┤├─ backward ─┤
    turn     ├─ turn 0 ─┤├── turn 1 ──┤├─ turn 1 ──┤        the backward pass runs in reverse
    scope    ├── mlp ──┤  ├── mlp ──┤  ├── mlp ──┤
    stream   █████ ████ ▏ █████ ████ ▏ █████ █████           ▏ belongs to no scope

The path is what the step waits for at each moment: compute where some runs, otherwise an exposed
collective, otherwise an exposed copy. What it leaves out, the device is idle.

    compute         ████████      ████             communication       ██████████
    path            ████████▒▒▒▒▒▒████             ▒ exposed

Kernels of a device that follow each other and have the same value form a span. A kernel without a
value, such as a copy that XLA added, does not end one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.labels import LABEL_COLUMNS, Label, found_instruction, label
from slipstream.profile.events import Array
from slipstream.profile.grouping import group_pairs
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.names import PHASES, phase
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY, kinds

LEVELS = ("module", "phase", "turn", "scope", "source", "path")
MODULE, PHASE, TURN, SCOPE, SOURCE, PATH = LEVELS
OTHER = PHASES.index("other")
DEEPEST = 5
"""most levels of scopes, and of loops"""
MAIN_SHARE = 0.6
"""a stream with this share of a device's compute shows its structure by itself"""
HANDOVER_PS = 5_000_000
"""compute that goes on after less than this is one span of the path"""
BLIP = 0.02
"""a phase this much shorter than the same phase on both sides of it is not a phase of its own"""
SHARED = 0.95
"""names that this share of the scoped time has in common, such as the model's, are left out"""
_SILENT, _ENDS = -1, -2
"""values of kernels: one that belongs to the span around it, and one that ends it"""
_CONTAINERS = frozenset(("while", "conditional", "call"))


@dataclass(frozen=True)
class Level:
    """Spans of one kind in order; they don't overlap."""

    name: str
    """one of `LEVELS`"""
    depth: int
    """of nested loops and scopes, from 0"""
    start_ps: Array
    duration_ps: Array
    text: Array
    """index into `Structure.texts`"""
    phase: Array
    """index into `PHASES`"""
    kind: Array | None = None
    """of the path: COMPUTE, COMMUNICATION or COPY"""

    def __len__(self) -> int:
        return len(self.start_ps)


@dataclass(frozen=True)
class Structure:
    """The levels of one device, from modules down to source lines; empty ones are left out."""

    device: int
    levels: tuple[Level, ...]
    texts: tuple[str, ...]
    descriptions: tuple[str, ...]
    """what each text stands for, in full: `backward of block/mlp`"""


def structure(profile: Profile, device: int, rows: Array | None = None) -> Structure:
    """The structure of a device's time: of all its events, or of some rows."""
    kernels = _Kernels(profile, _main_rows(profile, device, rows))
    texts = _Texts()
    levels = [level for level in kernels.levels(texts) if len(level)]
    path = _path(profile, device, rows, texts)
    if len(path):
        levels.append(path)
    return Structure(device, tuple(levels), tuple(texts.texts), tuple(texts.descriptions))


def _path(profile: Profile, device: int, rows: Array | None, texts: _Texts) -> Level:
    """What the step waits for at each moment."""
    own = profile.segments.of(device)
    kept = np.ones(len(own.row), bool) if rows is None else np.isin(own.row, rows)
    start, kind, row = (column[kept] for column in (own.start_ps, own.kind, own.row))
    end = start + own.duration_ps[kept]
    times = np.sort(np.concatenate((start, end)))  # np.unique hashes first, which takes longer
    times = times[np.flatnonzero(np.diff(times, prepend=times[:1] - 1))]
    # Of each stretch between two of these times: the kind that runs, and its event.
    runs, of = np.full(len(times), -1, np.int64), np.full(len(times), -1, np.int64)
    for one in (COPY, COMMUNICATION, COMPUTE):
        some = np.flatnonzero(kind == one)
        some = some[np.argsort(start[some], kind="stable")]
        begun = np.searchsorted(start[some], times, "right")
        busy = begun > np.searchsorted(np.sort(end[some]), times, "right")
        runs[busy] = one
        of[busy] = -1 if one == COMPUTE else row[some[begun[busy] - 1]]
    short = np.diff(times, append=times[-1:]) < HANDOVER_PS
    runs[1:-1][(runs[1:-1] < 0) & short[1:-1] & (runs[:-2] == COMPUTE) & (runs[2:] == COMPUTE)] = (
        COMPUTE
    )
    first = np.flatnonzero(np.diff(runs, prepend=-2) | np.diff(of, prepend=-2))
    until = np.append(times[first[1:]], times[-1:])
    first, until = first[runs[first] >= 0], until[runs[first] >= 0]

    events, known = profile.events, dict[tuple[str, ...], int]()

    def number(at: int) -> int:
        if of[at] < 0:
            return texts.number("compute", "the step waits for compute")
        # Events of one instruction have one label, and a recording has millions of them.
        key = tuple(events.text(column, int(of[at])) for column in LABEL_COLUMNS)
        if key not in known:
            said = label(profile, int(of[at]))
            name = said.description or said.instruction
            known[key] = texts.number(name, f"the step waits for {name} ({said.instruction})")
        return known[key]

    text = _each(of, first, number)
    phases = np.full(len(first), OTHER)
    return Level(PATH, 0, times[first], until - times[first], text, phases, runs[first])


def turns_of(profile: Profile, rows: Array) -> list[tuple[Label, int | None]]:
    """The label and the outermost turn of events of one device; None outside of loops."""
    order = np.argsort(profile.events.cells("start_ps", rows), kind="stable")
    kernels = _Kernels(profile, rows[order], leaves=False)
    turn: list[int | None] = [None] * len(rows)
    for turns in _Turns(kernels).by_depth():
        for at in np.flatnonzero(turns.loop >= 0).tolist():
            turn[at] = turns.loops[int(turns.loop[at])].number(int(turns.turn[at]))
        break
    found = [(kernels.labels[op], turn[at]) for at, op in enumerate(kernels.op.tolist())]
    back = np.argsort(order, kind="stable").tolist()
    return [found[at] for at in back]


def _main_rows(profile: Profile, device: int, rows: Array | None) -> Array:
    """The kernels that compute, in order; of the main stream, if there is one."""
    if rows is None:
        rows = np.flatnonzero(profile.event_devices == device)
    else:
        rows = rows[profile.event_devices[rows] == device]
    computes = rows[kinds(profile)[rows] == COMPUTE]
    rows = computes if len(computes) else rows
    events = profile.events
    lanes = events.cells("lane", rows)
    if len(rows):
        busy = np.bincount(lanes, events.cells("duration_ps", rows).astype(float))
        if busy.max() >= MAIN_SHARE * busy.sum():
            rows = rows[lanes == busy.argmax()]
    return rows[np.argsort(events.cells("start_ps", rows), kind="stable")]


class _Texts:
    """The texts of all spans, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.descriptions: list[str] = []
        self._known: dict[tuple[str, str], int] = {}

    def number(self, text: str, description: str) -> int:
        key = (text, description)
        if key not in self._known:
            self._known[key] = len(self.texts)
            self.texts.append(text)
            self.descriptions.append(description)
        return self._known[key]


class _Kernels:
    """Kernels in order of start, and what is known of each."""

    def __init__(self, profile: Profile, rows: Array, leaves: bool = True) -> None:
        """`leaves` leaves out events that contain others."""
        self.profile = profile
        events = profile.events
        self.program, self.execution = (
            events.cells(c, rows).astype(np.int64) for c in ("program", "execution")
        )
        self.op, firsts = group_pairs(self.program, events.cells("instruction", rows))
        self.labels = [label(profile, int(rows[first])) for first in firsts.tolist()]
        self.found = [
            found_instruction(profile, one.program, one.instruction) for one in self.labels
        ]
        leaf = np.array([not leaves or not _is_container(one) for one in self.found], bool)
        kept = leaf[self.op] if len(rows) else np.empty(0, bool)
        self.op, self.program, self.execution = (
            column[kept] for column in (self.op, self.program, self.execution)
        )
        self.start = events.cells("start_ps", rows[kept])
        self.end = self.start + events.cells("duration_ps", rows[kept])
        self.run, _ = group_pairs(self.program, self.execution)
        phases = [PHASES.index(one.phase) if one.phase else OTHER for one in self.labels]
        self.phase = self._without_blips(self._per_op(phases))

    def levels(self, texts: _Texts) -> Iterator[Level]:
        yield self._modules(texts)
        yield self._phases(texts)
        depths: Array = self.phase
        for depth, turns in enumerate(_Turns(self).by_depth()):
            level, turn = self._turn_level(depth, turns, texts)
            depths = _joined(depths, turn)
            yield level
        yield from self._scopes(depths, texts)
        yield self._sources(depths, texts)

    def _without_blips(self, phases: Array) -> Array:
        """Phases, where a small op that XLA moved into another phase does not cut it in two."""
        found = phases.copy()
        for _ in range(3):
            first, start, end = self._spans(np.where(found == OTHER, _SILENT, found))
            if len(first) < 3:
                break
            own, long = found[first], (end - start).astype(float)
            around = np.minimum(long[:-2], long[2:])
            blip = (own[:-2] == own[2:]) & (own[1:-1] != own[:-2]) & (long[1:-1] < BLIP * around)
            if not blip.any():
                break
            for at in (np.flatnonzero(blip) + 1).tolist():
                inside = slice(int(first[at]), int(first[at + 1]))
                found[inside] = np.where(found[inside] == OTHER, OTHER, own[at - 1])
        return found

    def _per_op(self, values: list[int]) -> Array:
        return np.array(values, np.int64)[self.op] if len(self.op) else np.empty(0, np.int64)

    def _spans(self, keys: Array) -> tuple[Array, Array, Array]:
        """(first kernel, start, end) of each span of kernels with one key."""
        speaks = np.flatnonzero(keys != _SILENT)
        if not len(speaks):
            return (np.empty(0, np.int64),) * 3
        own, runs = keys[speaks], self.run[speaks]
        begins = np.flatnonzero(
            np.concatenate(([True], (own[1:] != own[:-1]) | (runs[1:] != runs[:-1])))
        )
        first, start = speaks[begins], self.start[speaks[begins]]
        end = np.maximum.reduceat(self.end[speaks], begins)
        end[:-1] = np.minimum(end[:-1], start[1:])
        kept = own[begins] != _ENDS
        return first[kept], start[kept], np.maximum(end, start)[kept]

    def _level(
        self, name: str, depth: int, spans: tuple[Array, Array, Array], text: Array
    ) -> Level:
        first, start, end = spans
        return Level(name, depth, start, end - start, text, self.phase[first])

    def _modules(self, texts: _Texts) -> Level:
        spans = self._spans(np.where(self.program > 0, self.program, _SILENT))

        def number(at: int) -> int:
            name = self.profile.events.texts[int(self.program[at])]
            return texts.number(name.partition("(")[0], name)

        text = _each(self.program, spans[0], number)
        return self._level(MODULE, 0, spans, text)

    def _phases(self, texts: _Texts) -> Level:
        spans = self._spans(np.where(self.phase == OTHER, _SILENT, self.phase))
        text = _each(self.phase, spans[0], lambda at: texts.number(PHASES[int(self.phase[at])], ""))
        return self._level(PHASE, 0, spans, text)

    def _turn_level(self, depth: int, turns: _LoopTurns, texts: _Texts) -> tuple[Level, Array]:
        """The turns of loops at a depth, and a key of each kernel's turn."""
        key = np.where(turns.loop < 0, _SILENT, turns.loop << 32 | turns.turn)
        spans = self._spans(key)
        text = _each(
            key,
            spans[0],
            lambda at: texts.number(*turns.loops[int(turns.loop[at])].text(int(turns.turn[at]))),
        )
        return self._level(TURN, depth, spans, text), np.maximum(key, _SILENT)

    def _scopes(self, around: Array, texts: _Texts) -> Iterator[Level]:
        paths = self._paths()
        for depth in range(min(max(map(len, paths), default=0), DEEPEST)):
            numbers: dict[str, int] = {}
            values = [
                numbers.setdefault("/".join(path[: depth + 1]), len(numbers))
                if len(path) > depth
                else _ENDS if path else _SILENT
                for path in paths
            ]  # fmt: skip
            named = list(numbers)
            yield self._named(SCOPE, depth, values, named, around, texts)

    def _paths(self) -> list[list[str]]:
        """The scope of each op, without the names that nearly all have in common."""
        paths = [one.scope.split("/") if one.scope else [] for one in self.labels]
        times = np.bincount(self.op, (self.end - self.start).astype(float), len(paths))
        scoped = sum(time for path, time in zip(paths, times, strict=True) if path)
        while True:
            heads: dict[str, float] = {}
            for path, time in zip(paths, times.tolist(), strict=True):
                if len(path) > 1:
                    heads[path[0]] = heads.get(path[0], 0.0) + time
            best = max(heads, key=lambda head: heads[head], default="")
            if not best or heads[best] < SHARED * scoped:
                return paths
            paths = [path[1:] if len(path) > 1 and path[0] == best else path for path in paths]

    def _sources(self, around: Array, texts: _Texts) -> Level:
        numbers: dict[str, int] = {}
        values = [
            numbers.setdefault(one.source, len(numbers)) if one.source else _SILENT
            for one in self.labels
        ]
        return self._named(SOURCE, 0, values, list(numbers), around, texts)

    def _named(
        self, name: str, depth: int, values: list[int], names: list[str], around: Array,
        texts: _Texts,
    ) -> Level:  # fmt: skip
        """Spans of one name within one phase and one turn."""
        value = self._per_op(values)
        spans = self._spans(np.where(value < 0, value, _joined(around, value)))

        def number(at: int) -> int:
            whole = names[int(value[at])]
            phase_name = PHASES[int(self.phase[at])]
            said = whole if phase_name == "other" else f"{phase_name} of {whole}"
            return texts.number(whole.rpartition("/")[2] if name == SCOPE else whole, said)

        text = _each(value * len(PHASES) + self.phase, spans[0], number)
        return self._level(name, depth, spans, text)


def _each(keys: Array, places: Array, number: Callable[[int], int]) -> Array:
    """The number of each place; places of one key have the same, which is asked for once."""
    _, first, which = np.unique(keys[places], return_index=True, return_inverse=True)
    numbers = [number(int(places[at])) for at in first.tolist()]
    return np.array(numbers, np.int64)[which.ravel()]


def _joined(one: Array, other: Array) -> Array:
    """A number for each pair of values."""
    return group_pairs(one, other)[0].astype(np.int64)


def _is_container(found: tuple[Program, Instruction] | None) -> bool:
    """Whether other events of the device lie inside it, as in a loop that a TPU shows."""
    return found is not None and found[1].opcode in _CONTAINERS


@dataclass(frozen=True)
class _Loop:
    """A loop of a program."""

    turns: int
    is_reversed: bool
    """whether it is the backward pass of another loop: the last turn comes first"""

    def number(self, turn: int) -> int:
        """Of a turn, the forward loop's turn that it belongs to."""
        return self.turns - 1 - turn if self.is_reversed else turn

    def text(self, turn: int) -> tuple[str, str]:
        if self.is_reversed:
            number = self.number(turn)
            return f"turn {number}", f"backward of turn {number} of {self.turns}"
        return f"turn {turn}", f"turn {turn} of {self.turns}, counted from 0"


@dataclass(frozen=True)
class _LoopTurns:
    """Loop and turn of each kernel at one depth; -1 outside loops."""

    loops: list[_Loop]
    loop: Array
    turn: Array


class _Turns:
    """In which turn of its loops each kernel ran, from how often its op ran before."""

    def __init__(self, kernels: _Kernels) -> None:
        self.kernels = kernels
        self.nests = [_nest(*found) if found else [] for found in kernels.found]
        size = max(len(kernels.labels), 1)
        key = kernels.run.astype(np.int64) * size + kernels.op
        order = np.argsort(key, kind="stable")
        first = np.flatnonzero(np.diff(key[order], prepend=-1))
        count = np.diff(first, append=len(key))
        self.count, self.occurrence = np.empty(len(key), np.int64), np.empty(len(key), np.int64)
        self.count[order] = np.repeat(count, count)
        self.occurrence[order] = np.arange(len(key)) - np.repeat(first, count)

    def by_depth(self) -> Iterator[_LoopTurns]:
        for depth in range(min(max(map(len, self.nests), default=0), DEEPEST)):
            yield self._at(depth)

    def _at(self, depth: int) -> _LoopTurns:
        kernels = self.kernels
        loops: list[_Loop] = []
        numbers: dict[tuple[str, str], int] = {}
        loop_of: list[int] = []
        total: list[int] = []
        inside: list[int] = []
        for one, nest in zip(kernels.labels, self.nests, strict=True):
            trips = [loop.trip_count for loop in nest]
            if len(nest) <= depth or not all(trips):
                loop_of, total, inside = [*loop_of, -1], [*total, 1], [*inside, 1]
                continue
            key = (one.program, nest[depth].name)
            if key not in numbers:
                numbers[key] = len(loops)
                loops.append(self._loop(one, nest[depth]))
            loop_of.append(numbers[key])
            total.append(int(np.prod([trip or 1 for trip in trips])))
            inside.append(int(np.prod([trip or 1 for trip in trips[depth + 1 :]])))
        loop, times, below = (kernels._per_op(values) for values in (loop_of, total, inside))
        # An op of the loop's condition, or one that was not recorded each time, has no turn.
        loop = np.where((self.count % times == 0) & (loop >= 0), loop, -1)
        place = self.occurrence // np.maximum(self.count // times, 1)
        own = np.array([one.turns for one in loops] or [1], np.int64)
        return _LoopTurns(loops, loop, place // below % own[np.maximum(loop, 0)])

    def _loop(self, one: Label, loop: Instruction) -> _Loop:
        turns = loop.trip_count or 1
        program = self.kernels.profile.programs[one.program]
        is_backward = phase(loop.op_name) == "backward"
        forward = any(
            other.opcode == "while" and other.trip_count == turns
            and phase(other.op_name) not in ("backward", "remat")
            for other in program.runnable
        )  # fmt: skip
        return _Loop(turns, is_backward and forward)


def _nest(program: Program, instruction: Instruction) -> list[Instruction]:
    """The loops around an instruction, the outermost first."""
    found: list[Instruction] = []
    loop = program.loop_of(instruction.name)
    while loop is not None and len(found) < DEEPEST:
        found.insert(0, loop)
        loop = program.loop_of(loop.name)
    return found

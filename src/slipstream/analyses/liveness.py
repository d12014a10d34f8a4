"""Liveness of a program's buffers: which values share a buffer, and when each is alive.

The schedule is one timeline, with calls inlined and loops as one iteration.  A value consists of
the buffers of its leaves; views (tuples, their elements, bitcasts) have none of their own.  These
share one buffer, as in XLA:

    a loop's operand, its parameter, what its body returns, and its result
    an update in place and what it updates          the results of an async start and its done
    a fusion's result and an operand of the same size that is not used afterwards
"""

from __future__ import annotations

from dataclasses import dataclass, field

from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.shapes import HOST_MEMORY, Shape

ARGUMENT, RESULT, TEMPORARY, CONSTANT = "argument", "result", "temporary", "constant"
_VIEWS = ("bitcast", "opt-barrier", "optimization-barrier", "domain", "add-dependency")
_PASSED = ("bitcast", "copy", "convert")
_WRITE_OVER = ("kloop", "kinput", "kcustom")
"""kinds of fusion that may write over an operand"""


@dataclass(eq=False)
class Buffer:
    """One buffer, which several values may share."""

    bytes: int
    instruction: str
    """the instruction that made it"""
    shape: str
    is_host: bool
    born: int
    last: int
    """times of its first and its last use"""
    kind: str = TEMPORARY
    same: Buffer | None = None
    """the buffer that it was merged into"""
    touched: set[str] = field(default_factory=set)
    """the instructions that write or read it, in any computation"""

    def merged(self) -> Buffer:
        """The buffer that stands for all that were merged."""
        one = self
        while one.same is not None:
            one = one.same
        return one


Value = list[Buffer]
"""the buffers of a value's leaves, in order"""


@dataclass(frozen=True, eq=False)
class Access:
    """An instruction that reads and writes buffers; the accesses inside it, if it runs others."""

    instruction: Instruction
    reads: tuple[Buffer, ...]
    writes: tuple[Buffer, ...]
    inside: tuple[Access, ...] = ()


_ORDER = (TEMPORARY, RESULT, CONSTANT, ARGUMENT)


@dataclass
class Liveness:
    """All buffers of a program, and which are alive at the peak of the temporaries."""

    program: Program
    times: list[str] = field(default_factory=list)
    """name of the instruction at each time"""
    made: list[Buffer] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)
    """of all computations, each as often as it is called"""
    shared: dict[int, int] = field(default_factory=dict)
    """by the id of each buffer, which one it is in whatever order instructions run"""
    _pending: dict[str, list[Value]] = field(default_factory=dict)
    """what asynchronous operations read, which stays alive until they are done"""
    _sharers: list[tuple[int, Value, list[Value]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        entry = self.program.entry
        inputs = [self._new(one, ARGUMENT) for one in entry.parameters]
        results = self._walk(entry, inputs)
        self._settle(inputs, results)
        self.shared = {id(one): id(one.merged()) for one in self.made}
        self._share()
        self.buffers = list({id(b.merged()): b.merged() for b in self.made}.values())
        self._find_peak()

    # Values.

    def _walk(self, computation: Computation, inputs: list[Value]) -> Value:
        """Append a computation to the timeline; returns its result."""
        values: dict[str, Value] = {}
        for parameter, value in zip(computation.parameters, inputs, strict=False):
            values[parameter.name] = value
        for one in computation.instructions:
            operands = [values[name] for name in one.operands if name in values]
            first = len(self.accesses)
            if one.name not in values:
                values[one.name] = self._value(one, operands, computation, values)
            if one.is_done:
                start = self.program.partner(one.name)
                operands = [*operands, *self._pending.get(start.name if start else "", [])]
            self._record(one, operands, values[one.name], tuple(self.accesses[first:]))
            if one.opcode not in ("tuple", "get-tuple-element", "parameter"):
                self.times.append(one.name)
                self._touch([*operands, values[one.name]], one.name)
            self._use(operands)
        self._use([values[computation.root.name]])
        return values[computation.root.name]

    def _record(
        self, one: Instruction, operands: list[Value], value: Value, inside: tuple[Access, ...]
    ) -> None:
        if one.opcode in (*_VIEWS, "tuple", "get-tuple-element", "parameter", "constant"):
            return
        reads = () if inside else tuple(buffer for each in operands for buffer in each)
        self.accesses.append(Access(one, reads, () if inside else tuple(value), inside))

    def _use(self, used: list[Value]) -> None:
        for value in used:
            for buffer in value:
                one = buffer.merged()
                one.last = max(one.last, len(self.times))

    def _touch(self, used: list[Value], name: str) -> None:
        for value in used:
            for buffer in value:
                buffer.merged().touched.add(name)

    def _value(
        self,
        one: Instruction,
        operands: list[Value],
        computation: Computation,
        values: dict[str, Value],
    ) -> Value:
        if one.opcode == "tuple":
            return [buffer for value in operands for buffer in value]
        if one.opcode == "get-tuple-element" and operands:
            return _element(one, computation.by_name[one.operands[0]].shape, operands[0])
        if one.opcode in _VIEWS and operands and len(operands[0]) == len(list(one.shape.leaves())):
            return operands[0]
        if one.opcode in ("while", "call", "conditional") and one.called:
            return self._called(one, operands)
        if one.is_done or one.opcode.endswith("-update"):
            start = self.program.partner(one.name)
            if start is not None and start.name in values:
                return values[start.name]
            return self._new(one)
        if one.is_start:
            return self._start(one, operands)
        value = self._new(one, CONSTANT if one.opcode == "constant" else TEMPORARY)
        self._in_place(one, value, operands)
        if one.opcode == "fusion" and one.fusion_kind.lower() in _WRITE_OVER:
            self._sharers.append((len(self.times), value, operands))
        return value

    def _new(self, one: Instruction, kind: str = TEMPORARY, shape: Shape | None = None) -> Value:
        now = len(self.times)
        found = []
        for leaf in (shape or one.shape).leaves():
            on_host = leaf.memory_space == HOST_MEMORY
            found.append(Buffer(leaf.bytes, one.name, str(leaf), on_host, now, now, kind))
        self.made += found
        return found

    def _called(self, one: Instruction, operands: list[Value]) -> Value:
        if one.opcode == "while":
            carried = operands[0] if operands else self._new(one)
            returned = self._walk(self.program.computations[one.called[0]], [carried])
            for old, new in zip(carried, returned, strict=False):
                self._join(old, new)
            return carried
        if one.opcode == "call":
            return self._walk(self.program.computations[one.called[0]], operands)
        result = self._new(one)
        for place, name in enumerate(one.called):
            inputs = operands[place + 1 : place + 2]
            returned = self._walk(self.program.computations[name], inputs)
            for old, new in zip(result, returned, strict=False):
                self._join(old, new)
        return result

    def _start(self, one: Instruction, operands: list[Value]) -> Value:
        done = self.program.partner(one.name)
        if done is None or done.computation != one.computation:
            return self._new(one)
        self._pending[one.name] = operands
        value = self._new(one, shape=done.shape)
        self._in_place(self.program.wrapped(one.name) or one, value, operands)
        return value

    def _in_place(self, one: Instruction, value: Value, operands: list[Value]) -> None:
        place = self._updated(one)
        if place is None or place >= len(operands) or len(value) != 1:
            return
        target = operands[place]
        if len(target) == 1 and target[0].bytes == value[0].bytes:
            self._join(target[0], value[0])

    def _updated(self, one: Instruction) -> int | None:
        """The position of the operand that an instruction updates in place."""
        if one.opcode in ("dynamic-update-slice", "scatter"):
            return 0
        if one.opcode not in ("fusion", "fusion-start") or not one.called:
            return None
        inside = self.program.computations[one.called[0]]
        value = _behind(inside, inside.root)
        if value.opcode not in ("dynamic-update-slice", "scatter") or not value.operands:
            return None
        return _behind(inside, inside.by_name[value.operands[0]]).parameter_number

    def _join(self, old: Buffer, new: Buffer) -> None:
        """Merge two buffers into one."""
        old, new = old.merged(), new.merged()
        if old is new or old.is_host != new.is_host:
            return
        new.same = old
        old.bytes = max(old.bytes, new.bytes)
        old.born, old.last = min(old.born, new.born), max(old.last, new.last)
        old.touched |= new.touched
        old.kind = max(old.kind, new.kind, key=_ORDER.index)

    # Lifetimes.

    def _settle(self, inputs: list[Value], results: Value) -> None:
        """Mark results, and merge them with donated arguments."""
        for place, parameter in self.program.aliases.items():
            if place < len(results) and parameter < len(inputs) and len(inputs[parameter]) == 1:
                self._join(inputs[parameter][0], results[place])
        self.aliased_bytes = 0
        seen: set[int] = set()
        self.results_bytes = 0
        for buffer in results:
            one = buffer.merged()
            if one.kind == TEMPORARY:
                one.kind = RESULT
            if not one.is_host:
                self.results_bytes += buffer.bytes
                if one.kind == ARGUMENT or id(one) in seen:
                    self.aliased_bytes += buffer.bytes
            seen.add(id(one))

    def _share(self) -> None:
        """Let fusions write over an operand that is not used afterwards."""
        for time, value, operands in self._sharers:
            dying = {id(b.merged()): b.merged() for one in operands for b in one}
            free = [b for b in dying.values() if b.last == time + 1 and b.kind == TEMPORARY]
            for buffer in (b.merged() for b in value):
                if buffer.kind != TEMPORARY or buffer.born != time or buffer.is_host:
                    continue
                same = next((b for b in free if b.bytes == buffer.bytes and not b.is_host), None)
                if same is not None:
                    free.remove(same)
                    self._join(same, buffer)

    def _find_peak(self) -> None:
        changes = [0] * (len(self.times) + 2)
        host = [0] * (len(self.times) + 2)
        for buffer in self.buffers:
            if buffer.kind == TEMPORARY:
                line = host if buffer.is_host else changes
                line[buffer.born] += buffer.bytes
                line[max(buffer.last, buffer.born + 1)] -= buffer.bytes
        live = _running(changes)[: len(self.times)]
        self.timeline = list(zip(self.times, live, strict=True))
        self.peak_bytes = max(live, default=0)
        at = live.index(self.peak_bytes) if live else 0
        self.peak_at = self.times[at] if live else ""
        self.alive = [
            b
            for b in self.buffers
            if b.kind == TEMPORARY and not b.is_host and b.born <= at < max(b.last, b.born + 1)
        ]
        lasting = sum(b.bytes for b in self.buffers if b.is_host and b.kind in (ARGUMENT, RESULT))
        self.host_bytes = lasting + max(_running(host))

    def total(self, kind: str) -> int:
        """Bytes of all buffers of a kind in device memory."""
        return sum(b.bytes for b in self.buffers if b.kind == kind and not b.is_host)

    def last_use(self, buffer: Buffer) -> str:
        """The instruction that uses a temporary last; empty for other buffers."""
        if buffer.kind != TEMPORARY or not self.times:
            return ""
        return self.times[min(max(buffer.last - 1, 0), len(self.times) - 1)]


def _element(one: Instruction, whole: Shape, value: Value) -> Value:
    sizes = [len(list(element.leaves())) for element in whole.elements]
    index = one.tuple_index or 0
    if index >= len(sizes):
        return value
    first = sum(sizes[:index])
    return value[first : first + sizes[index]]


def _behind(inside: Computation, value: Instruction) -> Instruction:
    while value.opcode in _PASSED and value.operands:
        value = inside.by_name[value.operands[0]]
    return value


def _running(changes: list[int]) -> list[int]:
    total, found = 0, []
    for change in changes:
        total += change
        found.append(total)
    return found

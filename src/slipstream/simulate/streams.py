"""The stream and the engine of each asynchronous operation.

XLA assigns asynchronous fusions and copies to four streams round-robin, walking computations from
the entry outwards, copies of a computation first. Within a computation it visits instructions in
post order (control predecessors, the last first, then operands), not in schedule order, so
unrelated copies may queue behind each other:

    stream 4    H2D ████████████  D2D ██      the D2D copy waits for a stream, not for an engine
    stream 3    D2D ██

Source: execution_stream_assignment.cc of github.com/openxla/xla, and recordings on an H200, where
every copy of two programs ran on the predicted stream. Collectives have one stream, or as many as
`xla_gpu_experimental_parallel_collective_overlap_limit` allows; sends and receives have two.
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.profile.attribution.launch_sequence import launch_of
from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.signatures import result_shape

ASYNC_STREAMS = 4
COMPUTE = 0
"""the stream of all synchronous work"""
OVERLAP_LIMIT = "xla_gpu_experimental_parallel_collective_overlap_limit"

# Engines do one thing at a time. Copies in the same direction share one.
NO_ENGINE, CORES, TO_DEVICE, TO_HOST, SAME_SIDE = range(5)
ENGINES = 5

_COLLECTIVE, _SEND, _RECEIVE = "communication", "send", "receive"


def post_order(computation: Computation) -> Iterator[Instruction]:
    """Instructions in XLA's post order: operands come before their users."""
    by_name = computation.by_name
    seen: set[str] = set()
    stack = [(computation.root, False)]
    while stack:
        instruction, is_ready = stack.pop()
        if is_ready:
            yield instruction
        elif instruction.name not in seen:
            seen.add(instruction.name)
            stack.append((instruction, True))
            needed = (*reversed(instruction.control_predecessors), *instruction.operands)
            before = [by_name[name] for name in needed if name in by_name]
            stack.extend((one, False) for one in reversed(before) if one.name not in seen)


class Streams:
    """The stream of every asynchronous start, by name; `names` are the streams in use."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names = ["compute"]
        self.of: dict[str, int] = {}
        self._next = 0
        self._collectives = 0
        self._limit = overlap_limit(program)
        for computation in _outwards(program):
            self._assign(computation)

    def _assign(self, computation: Computation) -> None:
        starts = [i for i in post_order(computation) if i.is_start]
        # Starts that the root doesn't depend on (sends, for example) come last, as scheduled.
        listed = {i.name for i in starts}
        starts += [i for i in computation.instructions if i.is_start and i.name not in listed]
        starts.sort(key=lambda start: start.opcode != "copy-start")
        for start in starts:
            self.of[start.name] = self._stream(self._name(start))

    def _name(self, start: Instruction) -> str:
        if communicates(self.program, start):
            if start.opcode in ("send", "recv"):
                return _SEND if start.opcode == "send" else _RECEIVE
            self._collectives += 1
            turn = (self._collectives - 1) % self._limit
            return f"{_COLLECTIVE} {turn + 1}" if self._limit > 1 else _COLLECTIVE
        self._next = self._next % ASYNC_STREAMS + 1
        return f"async {self._next}"

    def _stream(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


def overlap_limit(program: Program) -> int:
    """How many collectives may run at once, by the program's flags."""
    return max(1, _whole_number(program.flags.get(OVERLAP_LIMIT, "1")))


def communicates(program: Program, instruction: Instruction) -> bool:
    """Whether an instruction, or the operation that its start wraps, is a collective."""
    return program.collective_of(instruction) is not None


def engine(program: Program, instruction: Instruction) -> int:
    """The engine that an asynchronous operation occupies."""
    if communicates(program, instruction):
        return NO_ENGINE
    return direction(program, instruction) if is_copy(program, instruction) else CORES


def is_copy(program: Program, instruction: Instruction) -> bool:
    """Whether a copy engine runs it: plain copies, and asynchronous fusions that only slice."""
    if instruction.is_start or instruction.opcode == "copy":
        return launch_of(program, instruction).is_copy
    return False


def direction(program: Program, instruction: Instruction) -> int:
    """The engine of a copy, by the memories it copies from and to."""
    if result_shape(instruction).on_host:
        return TO_HOST
    sources = [operand.shape for operand in program.operands(instruction)]
    return TO_DEVICE if any(shape.on_host for shape in sources) else SAME_SIDE


def _outwards(program: Program) -> Iterator[Computation]:
    """The entry and the computations it calls, breadth first, each once."""
    found = {program.entry.name: None}
    queue = [program.entry]
    while queue:
        computation = queue.pop(0)
        yield computation
        # The root doesn't depend on a loop whose results are only sent: such loops come last.
        for instruction in (*post_order(computation), *computation.instructions):
            if instruction.opcode in ("while", "conditional", "call"):
                for name in instruction.called:
                    if name in program.computations and name not in found:
                        found[name] = None
                        queue.append(program.computations[name])


def _whole_number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 1

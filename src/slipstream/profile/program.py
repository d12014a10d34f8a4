"""The program that XLA compiled: its computations and instructions, and how they are connected.

An asynchronous operation has a start and a done.  XLA writes them in several ways, depending on its
version and on whether the file is text or a proto; here they are always `<op>-start`,
`<op>-update` and `<op>-done`:

    %s = all-gather-start(%x)        in text of every version, and in protos of some
    %s = async-start(%x) ──calls──► { ROOT %all-gather.20 = all-gather(%param_0) }
    …                                               ▲ `wrapped(s)`, the name profiles use
    %d = all-gather-done(%s)         `partner(s)`

Text leaves out the computation in the middle, so only programs read from protos know wrapped
names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

from slipstream.profile.shapes import Shape

Attribute = str | int | tuple[int, ...]
Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Collective:
    """What a communication instruction moves, and between which devices.

    `bytes` is the payload of one participant: the result of an all-gather, the operands of
    everything else.  An empty `replica_groups` means one group of all devices; `group_size` is None
    if the program doesn't say how many those are.
    """

    kind: str
    bytes: int
    group_size: int | None = None
    replica_groups: tuple[tuple[int, ...], ...] = ()
    channel_id: int | None = None
    source_target_pairs: tuple[tuple[int, int], ...] = ()
    is_sync: bool = False


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `position` is its position in the schedule of its computation.

    `scheduling_name` is the name by which the scheduler looks up costs.  Equal fusions share one
    kernel, named after `deduplicated_name`.  `called` holds the computations that it runs; for a
    while, (body, condition).
    """

    name: str
    opcode: str
    shape: Shape
    operands: tuple[str, ...]
    computation: str
    position: int
    op_name: str = ""
    source_file: str = ""
    source_line: int | None = None
    scheduling_name: str = ""
    deduplicated_name: str = ""
    called: tuple[str, ...] = ()
    fusion_kind: str = ""
    custom_call_target: str = ""
    backend_config: str = ""
    trip_count: int | None = None
    collective: Collective | None = None
    unique_id: int | None = None
    is_root: bool = False
    parameter_number: int | None = None
    tuple_index: int | None = None
    control_predecessors: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict, hash=False)

    @property
    def is_start(self) -> bool:
        """Whether this starts an asynchronous operation."""
        return self.opcode.endswith("-start") or self.opcode in ("send", "recv")

    @property
    def is_done(self) -> bool:
        """Whether this waits for the end of an asynchronous operation."""
        return self.opcode.endswith("-done")


@dataclass(frozen=True)
class Computation:
    """A list of instructions, in the order in which they run."""

    name: str
    instructions: tuple[Instruction, ...]
    root: Instruction

    @cached_property
    def by_name(self) -> Mapping[str, Instruction]:
        return {instruction.name: instruction for instruction in self.instructions}

    @cached_property
    def parameters(self) -> tuple[Instruction, ...]:
        found = (i for i in self.instructions if i.parameter_number is not None)
        return tuple(sorted(found, key=lambda i: i.parameter_number or 0))

    @cached_property
    def users(self) -> Mapping[str, tuple[Instruction, ...]]:
        """The users of each instruction: those that have it as an operand."""
        users: dict[str, list[Instruction]] = {}
        for instruction in self.instructions:
            for operand in dict.fromkeys(instruction.operands):
                users.setdefault(operand, []).append(instruction)
        return {name: tuple(found) for name, found in users.items()}

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        return tuple(self.by_name[n] for n in instruction.operands if n in self.by_name)


@dataclass(frozen=True, eq=False)
class Program:
    """A compiled program.  Indexes are built on first use; nothing here reads a file."""

    name: str
    entry: Computation
    computations: Mapping[str, Computation]
    program_id: int | None = None
    fingerprint: str | None = None
    jaxlib_version: str | None = None
    flags: Mapping[str, str] = field(default_factory=dict)
    is_scheduled: bool = True
    aliases: Mapping[int, int] = field(default_factory=dict)
    """donated buffers: from the position of a result to that of the parameter it replaces"""
    device_ids: tuple[int, ...] = ()
    """the device that runs each partition, as the platform numbers devices: on a TPU by their place
    in the slice; empty if the file doesn't say"""
    unmodelled: str = ""
    """a digest of what the file says of its instructions beyond what is kept here"""

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    @property
    def instructions(self) -> Iterator[Instruction]:
        """Every instruction of every computation, including those inside fusions."""
        for computation in self.computations.values():
            yield from computation.instructions

    def instruction(self, name: str) -> Instruction:
        """The instruction called `name`; KeyError if there is none."""
        return self._by_name[name]

    @property
    def runnable(self) -> Iterator[Instruction]:
        """The instructions that can launch device work: all but those inside fusions and reducers.

        An asynchronous operation appears twice, as its start and as the operation inside (which
        is the one that profiles name); only the latter has a `starter`.
        """
        for name in self._runnable_computations:
            yield from self.computations[name].instructions

    @property
    def scheduled(self) -> Iterator[Instruction]:
        """The `runnable` instructions, with each asynchronous operation once, as its start."""
        return (i for i in self.runnable if i.name not in self._starters)

    def operands(self, instruction: Instruction) -> tuple[Instruction, ...]:
        return self.computations[instruction.computation].operands(instruction)

    def partner(self, name: str) -> Instruction | None:
        """The other end of an asynchronous operation: a start's done, a done's (update's) start."""
        partner = self._partners.get(name)
        return self._by_name[partner] if partner else None

    def wrapped(self, start_name: str) -> Instruction | None:
        """The operation that an asynchronous start runs, if the file had it."""
        start = self._by_name.get(start_name)
        return self._wrapped(start) if start is not None else None

    def collective_of(self, instruction: Instruction) -> Collective | None:
        """The collective that an instruction is, or starts."""
        if instruction.collective is not None:
            return instruction.collective
        inner = self.wrapped(instruction.name) if instruction.is_start else None
        return inner.collective if inner is not None else None

    def starter(self, wrapped_name: str) -> Instruction | None:
        """The start that runs this operation asynchronously."""
        start = self._starters.get(wrapped_name)
        return self._by_name[start] if start else None

    def caller(self, computation_name: str) -> Instruction | None:
        """The instruction that runs this computation; the first one if several do."""
        return self._callers.get(computation_name)

    def loop_of(self, name: str) -> Instruction | None:
        """The innermost while loop around an instruction."""
        for caller, _ in self._climb(name):
            if caller.opcode == "while":
                return caller
        return None

    def executions(self, name: str) -> int | None:
        """How often an instruction runs in one run of the program; None if unknown.

        This is the product of the trip counts of the loops around it.  A loop's condition is
        evaluated once more than its body.  Inside a conditional it may not run at all: None.
        """
        count = 1
        computation = self._by_name[name].computation
        for caller, called in self._climb(name):
            if caller.opcode == "while":
                if caller.trip_count is None:
                    return None
                is_condition = called == caller.called[-1] and len(caller.called) > 1
                count *= caller.trip_count + is_condition
            elif caller.opcode == "conditional":
                return None
            computation = caller.computation
        return count if computation == self.entry.name else None

    def canonical(self, computation_name: str) -> str:
        """A hash of what a computation does, independent of the names of its instructions.

        XLA compiles one kernel for fusions that are equal in this sense.
        """
        return self._canonical(computation_name, ())

    @cached_property
    def content_hash(self) -> str:
        """Identifies what the program computes and how: all it says but where it comes from.

        Programs with the same hash run the same. Ids, source positions and the names that
        profiles and cost files use are left out. A program read from text has another hash than
        the same program read from a proto, which says more.
        """
        digest = hashlib.sha256(f"{self.name} {self.entry.name} {self.is_scheduled}\n".encode())
        digest.update(f"{sorted(self.aliases.items())} {self.unmodelled}\n".encode())
        for name in sorted(self.computations):
            digest.update(f"{name}\n".encode())
            for instruction in self.computations[name].instructions:
                digest.update(_content(instruction).encode())
        return digest.hexdigest()[:32]

    # Indexes, built on first use.

    @cached_property
    def _by_name(self) -> dict[str, Instruction]:
        # XLA writes unique names.  In hand-written text they may repeat inside fusions; then the
        # instruction that can launch work wins.
        found = {instruction.name: instruction for instruction in self.instructions}
        for computation in reversed(self._runnable_computations):
            found.update(self.computations[computation].by_name)
        return found

    @cached_property
    def _callers(self) -> dict[str, Instruction]:
        callers: dict[str, Instruction] = {}
        for instruction in self.instructions:
            if not instruction.is_done and not instruction.opcode.endswith("-update"):
                for computation in instruction.called:
                    callers.setdefault(computation, instruction)
        return callers

    @cached_property
    def _runnable_computations(self) -> list[str]:
        found = {self.entry.name: None}
        queue = [self.entry.name]
        while queue:
            for instruction in self.computations[queue.pop()].instructions:
                for called in self._runs(instruction):
                    if called not in found and called in self.computations:
                        found[called] = None
                        queue.append(called)
        return list(found)

    @cached_property
    def _starters(self) -> dict[str, str]:
        starters: dict[str, str] = {}
        for computation in self._runnable_computations:
            for start in self.computations[computation].instructions:
                wrapped = self._wrapped(start)
                if wrapped is not None:
                    starters.setdefault(wrapped.name, start.name)
        return starters

    @cached_property
    def _partners(self) -> dict[str, str]:
        partners: dict[str, str] = {}
        for computation in self._runnable_computations:
            by_name = self.computations[computation].by_name
            chains: dict[object, Instruction] = {}
            for end in by_name.values():
                if end.is_start and "chain_id" in end.attributes:
                    chains[end.attributes["chain_id"]] = end
                if not end.operands or not (end.is_done or end.opcode.endswith("-update")):
                    continue
                # Operands come earlier in the schedule, so an update already has its partner.
                first = by_name.get(end.operands[0])
                if first is not None and first.opcode.endswith("-update"):
                    first = by_name.get(partners.get(first.name, ""))
                if "chain_id" in end.attributes:
                    # Other fusions pass on the state of a TPU's asynchronous collective.
                    first = chains.get(end.attributes["chain_id"])
                if first is None or not first.is_start:
                    continue
                partners[end.name] = first.name
                if end.is_done:
                    partners[first.name] = end.name
        return partners

    @cached_property
    def _hashes(self) -> dict[str, str]:
        return {}

    def _wrapped(self, start: Instruction) -> Instruction | None:
        # In text, a start has a fusion kind and calls the fused computation directly.
        # An all-reduce-start may call its reducer, whose root is not an all-reduce.
        if not start.is_start or not start.called or start.fusion_kind:
            return None
        computation = self.computations.get(start.called[0])
        if computation is None or f"{computation.root.opcode}-start" != start.opcode:
            return None
        return computation.root

    def _runs(self, instruction: Instruction) -> tuple[str, ...]:
        """The computations whose instructions run one by one as part of this instruction."""
        if instruction.opcode in ("while", "conditional", "call") or self._wrapped(instruction):
            return instruction.called
        return ()

    def _climb(self, name: str) -> Iterator[tuple[Instruction, str]]:
        """(caller, computation it called) for each caller, from the inside out."""
        computation = self._by_name[name].computation
        seen = set()
        while computation not in seen and (caller := self.caller(computation)) is not None:
            seen.add(computation)
            yield caller, computation
            computation = caller.computation

    def _canonical(self, name: str, outer: tuple[str, ...]) -> str:
        if name in self._hashes or name in outer or name not in self.computations:
            return self._hashes.get(name, "")
        computation = self.computations[name]
        numbers: dict[str, int] = {}
        digest = hashlib.sha256()
        for instruction in _post_order(computation):
            numbers[instruction.name] = len(numbers)
            called = [self._canonical(inner, (*outer, name)) for inner in instruction.called]
            operands = [numbers.get(operand, -1) for operand in instruction.operands]
            digest.update(_nameless(instruction, operands, called).encode())
        return self._hashes.setdefault(name, digest.hexdigest()[:32])


def _post_order(computation: Computation) -> Iterator[Instruction]:
    """Operands before users, from the root: an order that doesn't depend on the file."""
    seen: set[str] = set()
    stack = [(computation.root, False)]
    while stack:
        instruction, ready = stack.pop()
        if ready:
            yield instruction
        elif instruction.name not in seen:
            seen.add(instruction.name)
            stack.append((instruction, True))
            operands = computation.operands(instruction)
            stack.extend((o, False) for o in reversed(operands) if o.name not in seen)


def _content(instruction: Instruction) -> str:
    """Everything about an instruction that changes what it computes or how."""
    return "\x1f".join(
        (
            instruction.name,
            repr(instruction.operands),
            repr(instruction.control_predecessors),
            repr(instruction.collective),
            repr(instruction.trip_count),
            repr(instruction.is_root),
            _nameless(instruction, [], list(instruction.called)),
        )
    )


def _nameless(instruction: Instruction, operands: list[int], called: list[str]) -> str:
    return "\x1f".join(
        (
            instruction.opcode,
            str(instruction.shape),
            repr(operands),
            repr(called),
            repr(sorted(instruction.attributes.items())),
            str(instruction.parameter_number),
            str(instruction.tuple_index),
            instruction.fusion_kind,
            instruction.custom_call_target,
            instruction.backend_config,
            "\n",
        )
    )


def once_per_instruction(
    find: Callable[[Program, Instruction], Found],
) -> Callable[[Program, Instruction], Found]:
    """Keeps what a function finds out about an instruction for as long as its program lives."""
    known: WeakKeyDictionary[Program, dict[str, tuple[Instruction, Found]]] = WeakKeyDictionary()

    @wraps(find)
    def found(program: Program, instruction: Instruction) -> Found:
        of_program = known.get(program)
        if of_program is None:
            of_program = known.setdefault(program, {})
        kept = of_program.get(instruction.name)
        if kept is None or kept[0] is not instruction:
            kept = of_program[instruction.name] = instruction, find(program, instruction)
        return kept[1]

    return found

"""The task graph of a program and its estimates: what `clock` runs.

A node is an instruction that does something at run time; `order` is the schedule with loops
unrolled, as indices of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from slipstream.costs.table import MOST_US
from slipstream.errors import BadInput
from slipstream.machines.links import Load
from slipstream.machines.machine import Estimate
from slipstream.machines.tpu.slices import RENDEZVOUS, is_slice_transfer
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.events import Array
from slipstream.profile.program import Attribute, Computation, Instruction, Program
from slipstream.simulate.contention import NONE, Contention
from slipstream.simulate.graphs import regions
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import COMPUTE, CORES, NO_ENGINE, Streams, communicates, engine

KERNEL, START, DONE, READ, MARK = range(5)
"""kinds of nodes: work on the compute stream, asynchronous work, a wait, the host's wait, and a
point in time at which the compute stream only starts or ends something"""
MOST_NODES = 20_000_000
"""limit of executed instructions in a simulation: about 2 GB"""
PS_PER_US = 1_000_000
_MOST_NAMED = 3
"""loops and conditionals, in a warning"""


@dataclass(frozen=True)
class Node:
    """One instruction that does something when it runs."""

    kind: int
    instruction: Instruction
    duration_ps: int = 0
    host_ps: int = 0
    """how long it occupies the launching thread"""
    stream: int = COMPUTE
    engine: int = NO_ENGINE
    slot: int = -1
    """the asynchronous operation that it starts or waits for"""
    is_communication: bool = False
    contention: Contention = NONE
    """how it slows others that run at the same time, and is slowed by them"""
    graph: int = 0
    gap_ps: int = 0
    """between the previous kernel and this one"""
    links: tuple[tuple[int, float], ...] = ()
    """the links that it uses, and the share of each that it uses when it runs alone"""


@dataclass
class TaskGraph:
    """Nodes, their launch order, and the assumptions behind them."""

    program: Program
    streams: list[str]
    nodes: list[Node] = field(default_factory=list)
    order: Array = field(default_factory=lambda: np.empty(0, np.int32))
    slots: int = 0
    once: list[str] = field(default_factory=list)
    """loops whose trip count is unknown, which run once"""
    longest: list[str] = field(default_factory=list)
    """conditionals, each with the branch that is taken"""

    @property
    def assumptions(self) -> Iterator[tuple[str, str]]:
        """(code, sentence) for what the program doesn't state."""
        if self.once:
            text = _counted(self.once, "loop runs once, because its trip count is unknown",
                            "loops run once, because their trip counts are unknown")  # fmt: skip
            yield "unknown-trip-count", text
        if self.longest:
            text = _counted(self.longest, "conditional takes its longest branch",
                            "conditionals take their longest branches")  # fmt: skip
            yield "conditional", text


def _counted(names: list[str], one: str, many: str) -> str:
    """How many there are, and the first of them."""
    shown = ", ".join(names[:_MOST_NAMED])
    rest = len(names) - _MOST_NAMED
    return f"{len(names)} {one if len(names) == 1 else many}: {shown}" + (
        f" and {rest} more" if rest > 0 else ""
    )


def task_graph(
    program: Program,
    estimates: Mapping[str, Estimate],
    kinds: frozenset[str],
    overheads: Overheads | None = None,
    loads: Mapping[str, tuple[Load, ...]] | None = None,
    contentions: Mapping[str, Contention] | None = None,
    streams: Streams | None = None,
) -> TaskGraph:
    """Build the task graph; `kinds` are the commands that CUDA graphs capture, `loads` what
    instructions move over links, `contentions` how they slow each other, `streams` where
    asynchronous operations run, if not as on a GPU."""
    return _Builder(
        program,
        estimates,
        kinds,
        overheads or Overheads(),
        loads or {},
        contentions or {},
        streams or Streams(program),
    ).build()


class _Builder:
    def __init__(
        self,
        program: Program,
        estimates: Mapping[str, Estimate],
        kinds: frozenset[str],
        overheads: Overheads,
        loads: Mapping[str, tuple[Load, ...]],
        contentions: Mapping[str, Contention],
        streams: Streams,
    ) -> None:
        self.program = program
        self.estimates = estimates
        self.kinds = kinds
        self.overheads = overheads
        self.loads = loads
        self.contentions = contentions
        self.streams = streams
        self.graph = TaskGraph(program, self.streams.names)
        self.orders: dict[str, Array] = {}
        self.slots: dict[str, int] = {}
        self.sends: dict[Attribute, str] = {}
        """sends between slices, by their rendezvous"""
        self.graphs = 0

    def build(self) -> TaskGraph:
        self.graph.order = self._order(self.program.entry.name)
        self.graph.slots = len(self.slots)
        return self.graph

    def _order(self, name: str) -> Array:
        """The nodes of one run of a computation, in launch order."""
        if name not in self.orders:
            self.orders[name] = np.empty(0, np.int32)  # stops recursion
            self.orders[name] = self._made_order(self.program.computations[name])
        return self.orders[name]

    def _made_order(self, computation: Computation) -> Array:
        graph_of = regions(self.program, computation.name, self.kinds)
        first_graph, last_graph = self.graphs, 0
        self.graphs += max(graph_of.values(), default=0)
        parts: list[Array] = []
        loose: list[int] = []
        for instruction in computation.instructions:
            called = self._called(instruction)
            if called is not None:
                parts += [np.array(loose, np.int32), called]
                loose = []
                continue
            if is_slice_transfer(self._started(instruction)):
                loose += self._add(self._between_slices(instruction))
                continue
            graph = graph_of.get(instruction.name, 0)
            node = self._node(instruction, graph and graph + first_graph, graph == last_graph)
            if node is not None:
                loose += self._add((node,))
                last_graph = graph
        order = np.concatenate([*parts, np.array(loose, np.int32)])
        _refuse_huge(self.program, len(order))
        return order

    def _add(self, nodes: Iterable[Node]) -> range:
        """The numbers of new nodes."""
        first = len(self.graph.nodes)
        self.graph.nodes.extend(nodes)
        return range(first, len(self.graph.nodes))

    # Control flow.

    def _called(self, instruction: Instruction) -> Array | None:
        if instruction.opcode == "while":
            return self._loop(instruction)
        if instruction.opcode == "call":
            return np.concatenate([self._order(name) for name in instruction.called])
        return self._branches(instruction) if instruction.opcode == "conditional" else None

    def _loop(self, loop: Instruction) -> Array:
        body = self._order(loop.called[0])
        if loop.trip_count is not None:
            _refuse_huge(self.program, len(body) * loop.trip_count)
            return np.tile(body, loop.trip_count)
        self.graph.once.append(loop.name)
        return np.concatenate((self._read(loop), body))

    def _branches(self, conditional: Instruction) -> Array:
        branches = [self._order(name) for name in conditional.called]
        lengths = [sum(self.graph.nodes[i].duration_ps for i in b.tolist()) for b in branches]
        longest = lengths.index(max(lengths))
        self.graph.longest.append(f"{conditional.name} ({conditional.called[longest]})")
        return np.concatenate((self._read(conditional), branches[longest]))

    def _read(self, instruction: Instruction) -> Array:
        host_ps = round(self.overheads.read_us * PS_PER_US)
        self.graph.nodes.append(Node(READ, instruction, host_ps=host_ps))
        return np.array([len(self.graph.nodes) - 1], np.int32)

    # Single instructions.

    def _node(self, instruction: Instruction, graph: int, is_inside: bool) -> Node | None:
        """The node of an instruction; `is_inside`: an earlier node launches the same CUDA graph."""
        if instruction.is_done:
            start = self.program.partner(instruction.name) or self._by_channel(instruction)
            waits = start is not None and start.name in self.slots
            return Node(DONE, instruction, slot=self.slots[start.name]) if start and waits else None
        if launches_nothing(instruction):
            return None
        estimate = self.estimates.get(instruction.name)
        duration_ps = _duration_ps(instruction, estimate) if estimate is not None else 0
        contention = self.contentions.get(instruction.name, NONE)
        is_communication = communicates(self.program, instruction)
        links = self._links(instruction, duration_ps)
        host_us = self.overheads.launch_us if not graph else self.overheads.graph_us
        host_ps = 0 if graph and is_inside else round(host_us * PS_PER_US)
        if not instruction.is_start or graph or _is_sync(instruction):
            return Node(
                KERNEL,
                instruction,
                duration_ps=duration_ps,
                host_ps=host_ps,
                is_communication=is_communication,
                contention=contention,
                graph=graph,
                gap_ps=self._gap(instruction, graph),
                links=links,
            )
        busy = engine(self.program, instruction)
        return Node(
            START,
            instruction,
            duration_ps=duration_ps,
            host_ps=host_ps,
            stream=self.streams.of[instruction.name],
            engine=busy,
            slot=self.slots.setdefault(instruction.name, len(self.slots)),
            is_communication=is_communication,
            contention=contention if is_communication or busy == CORES else NONE,
            links=links,
        )

    def _started(self, instruction: Instruction) -> Instruction:
        """The start of what a done ends; any other instruction itself."""
        start = self.program.partner(instruction.name) if instruction.is_done else None
        return start or instruction

    def _between_slices(self, instruction: Instruction) -> Iterator[Node]:
        """A transfer begins with its send, and a recv-done waits for it."""
        start = self._started(instruction)
        if instruction.opcode == "recv-done":
            sent = self.sends.get(start.attributes[RENDEZVOUS], "")
            if sent in self.slots:
                yield Node(DONE, instruction, slot=self.slots[sent], is_communication=True)
                return
        yield Node(MARK, instruction, is_communication=True)
        if instruction.opcode == "send":
            self.sends[instruction.attributes[RENDEZVOUS]] = instruction.name
            estimate = self.estimates.get(instruction.name)
            duration_ps = _duration_ps(instruction, estimate) if estimate is not None else 0
            yield Node(
                START,
                instruction,
                duration_ps=duration_ps,
                stream=self.streams.of[instruction.name],
                slot=self.slots.setdefault(instruction.name, len(self.slots)),
                is_communication=True,
                links=self._links(instruction, duration_ps),
            )

    def _links(self, instruction: Instruction, duration_ps: int) -> tuple[tuple[int, float], ...]:
        loads = self.loads.get(instruction.name, ()) if duration_ps else ()
        return tuple((load.link, min(1.0, load.us * PS_PER_US / duration_ps)) for load in loads)

    def _gap(self, instruction: Instruction, graph: int) -> int:
        us = self.overheads.graph_gap_us if graph else self.overheads.gap_us
        if instruction.custom_call_target.startswith(("__cublas", "__cudnn")):
            us += self.overheads.library_us
        return round(us * PS_PER_US)

    def _by_channel(self, done: Instruction) -> Instruction | None:
        """The send or receive with the same channel, if a loop carries it to its done."""
        channel = done.collective.channel_id if done.collective is not None else None
        if channel is None:
            return None
        opcode = done.opcode.removesuffix("-done")
        for name in self.slots:
            start = self.program.instruction(name)
            same = start.collective is not None and start.collective.channel_id == channel
            if same and start.opcode == opcode:
                return start
        return None


def _duration_ps(instruction: Instruction, estimate: Estimate) -> int:
    if not 0 <= estimate.us <= MOST_US:  # not a number, too
        why = f"{estimate.basis}: {estimate.why}" if estimate.why else estimate.basis
        raise BadInput(
            f"the time of {instruction.name} is {estimate.us:g} µs ({why}); expected 0 to "
            f"{MOST_US:,} µs (a day): check its cost, or its shape {instruction.shape}"
        )
    return round(estimate.us * PS_PER_US)


def _is_sync(start: Instruction) -> bool:
    return start.collective is not None and start.collective.is_sync


def _refuse_huge(program: Program, nodes: int) -> None:
    if nodes > MOST_NODES:
        raise BadInput(
            f"{program.name} executes more than {MOST_NODES:,} instructions in one step, too many "
            "to simulate; simulate one iteration of its outer loop, or fewer steps in one call"
        )

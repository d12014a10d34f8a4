"""The tasks of one computation: what runs where, for how long, and after what.

    fusion, matmul       KERNEL   on the compute stream
    while, call          KERNEL   as long as what it runs
    all-gather-start     START    on a stream of its own, beside kernels
    all-gather-done      DONE     holds the compute stream until its operation has ended
    tuple, bitcast, …    LIGHT    takes no time: listed where something needs it first

Kernels and starts decide the time of a schedule, so they alone are ordered. `after` are the kernels
and starts that one depends on, through whatever lies between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from slipstream.profile.program import Computation, Program
from slipstream.simulate.contention import NONE, Contention
from slipstream.simulate.streams import CORES, NO_ENGINE
from slipstream.simulate.task_graph import DONE as DONE_NODE
from slipstream.simulate.task_graph import MARK, READ, Node
from slipstream.simulate.task_graph import START as START_NODE

KERNEL, START, DONE, LIGHT = range(4)
PS_PER_NS = 1000

Resource = tuple[str, int]
"""what does one thing at a time: ("stream", 0), ("engine", 2)"""


@dataclass(frozen=True, eq=False)
class Tasks:
    """One computation; a task is the place of its instruction in XLA's order."""

    computation: Computation
    kinds: tuple[int, ...]
    ns: tuple[int, ...]
    """how long each task keeps its stream busy, with the gap before it"""
    resources: tuple[tuple[Resource, ...], ...]
    needs: tuple[tuple[int, ...], ...]
    """what has to come before each: operands, control predecessors and hazards"""
    start_of: Mapping[int, int]
    """of each done"""
    loads: tuple[tuple[tuple[int, int], ...], ...] = ()
    """(link, nanoseconds): how long each task keeps links of the GPU busy, if it has them alone"""
    collectives: frozenset[int] = frozenset()
    """the starts that communicate"""
    contentions: tuple[Contention, ...] = ()
    """what each task takes from others, and loses beside them"""
    gaps: tuple[int, ...] = ()
    """nanoseconds of each task in which nothing runs yet"""

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(one.name for one in self.computation.instructions)

    @cached_property
    def heavy(self) -> tuple[int, ...]:
        """Kernels and starts, in XLA's order."""
        return tuple(task for task, kind in enumerate(self.kinds) if kind in (KERNEL, START))

    @cached_property
    def after(self) -> Mapping[int, tuple[int, ...]]:
        """The kernels and starts that each kernel or start depends on."""
        seen: list[frozenset[int]] = []
        found: dict[int, tuple[int, ...]] = {}
        for task, kind in enumerate(self.kinds):
            before: frozenset[int] = frozenset().union(*(seen[one] for one in self.needs[task]))
            if kind in (KERNEL, START):
                found[task] = tuple(sorted(before))
                before = frozenset((task,))
            seen.append(before)
        return found

    @cached_property
    def before(self) -> Mapping[int, tuple[int, ...]]:
        """The kernels and starts that depend on each."""
        return _turned(self.after)

    @cached_property
    def ended_after(self) -> Mapping[int, tuple[int, ...]]:
        """The kernels and starts whose end each has to come after.

        Not all that it depends on: behind a start without its done, the operation may go on.
        """
        seen: list[frozenset[int]] = []
        found: dict[int, tuple[int, ...]] = {}
        for task, kind in enumerate(self.kinds):
            before: frozenset[int] = frozenset().union(*(seen[one] for one in self.needs[task]))
            if kind in (KERNEL, START):
                found[task] = tuple(sorted(before))
            if kind == KERNEL:
                before = frozenset((task,))
            elif task in self.start_of:
                before = before | {self.start_of[task]}
            seen.append(before)
        return found

    @cached_property
    def ended_before(self) -> Mapping[int, tuple[int, ...]]:
        """The kernels and starts that have to come after the end of each."""
        return _turned(self.ended_after)

    @cached_property
    def tails(self) -> Mapping[int, int]:
        """The longest chain from each task's start to the end, in nanoseconds."""
        found: dict[int, int] = {}
        for task in reversed(self.heavy):
            longest = max((found[user] for user in self.ended_before[task]), default=0)
            found[task] = self.ns[task] + longest
        return found

    @cached_property
    def heads(self) -> Mapping[int, int]:
        """The longest chain to each task's start."""
        found: dict[int, int] = {}
        for task in self.heavy:
            ended = self.ended_after[task]
            found[task] = max((found[one] + self.ns[one] for one in ended), default=0)
        return found


def _turned(needed: Mapping[int, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """From what each needs to what needs each."""
    found: dict[int, list[int]] = {task: [] for task in needed}
    for task, ones in needed.items():
        for one in ones:
            found[one].append(task)
    return {task: tuple(users) for task, users in found.items()}


def tasks_of(
    program: Program,
    computation: Computation,
    nodes: Mapping[str, Node],
    spans_ns: Mapping[str, int],
    hazards: Iterable[tuple[str, str]] = (),
) -> Tasks:
    """`nodes` are those of the simulator's task graph, by instruction; `spans_ns` how long the
    instructions take that run other computations; `hazards` are pairs whose order must stay."""
    kept: dict[str, list[str]] = defaultdict(list)
    for name, before in hazards:
        kept[name].append(before)
    places = {one.name: place for place, one in enumerate(computation.instructions)}
    kinds: list[int] = []
    times: list[int] = []
    resources: list[tuple[Resource, ...]] = []
    loads: list[tuple[tuple[int, int], ...]] = []
    contentions: list[Contention] = []
    gaps: list[int] = []
    starts: dict[int, int] = {}
    for place, one in enumerate(computation.instructions):
        node, span = nodes.get(one.name), spans_ns.get(one.name)
        kind, ns, used = _kernel(span) if span is not None else _of_node(node)
        if kind == DONE:
            start = program.partner(one.name)
            if start is None or start.name not in places:
                kind = KERNEL  # the wait for an operation of another computation
            else:
                starts[place] = places[start.name]
        kinds.append(kind)
        times.append(ns)
        resources.append(used)
        alone = node if span is None else None
        loads.append(_loads(alone) if alone is not None else ())
        contentions.append(alone.contention if alone is not None else NONE)
        gaps.append(-(-alone.gap_ps // PS_PER_NS) if alone is not None and ns else 0)
    needs = tuple(
        tuple(
            dict.fromkeys(
                places[name]
                for name in (*one.operands, *one.control_predecessors, *kept.get(one.name, ()))
                if name in places
            )
        )
        for one in computation.instructions
    )
    talking = (
        places[name] for name, node in nodes.items() if node.is_communication and name in places
    )
    return Tasks(
        computation,
        tuple(kinds),
        tuple(times),
        tuple(resources),
        needs,
        starts,
        tuple(loads),
        frozenset(place for place in talking if kinds[place] == START),
        tuple(contentions),
        tuple(gaps),
    )


def _kernel(ns: int) -> tuple[int, int, tuple[Resource, ...]]:
    return KERNEL, ns, (("stream", 0), ("engine", CORES))


def _of_node(node: Node | None) -> tuple[int, int, tuple[Resource, ...]]:
    if node is None or node.kind in (READ, MARK):
        return LIGHT, 0, ()
    if node.kind == DONE_NODE:
        return DONE, 0, ()
    ns = (node.duration_ps + node.gap_ps) // PS_PER_NS  # rounded down, so that bounds hold
    if node.kind != START_NODE:
        return _kernel(ns)
    engine: tuple[Resource, ...] = (("engine", node.engine),) if node.engine != NO_ENGINE else ()
    return START, ns, (("stream", node.stream), *engine)


def _loads(node: Node) -> tuple[tuple[int, int], ...]:
    return tuple((link, int(share * node.duration_ps) // PS_PER_NS) for link, share in node.links)


def is_topological(tasks: Tasks, sequence: Sequence[int]) -> bool:
    """Whether a sequence lists every task once, each after what it needs."""
    seen: set[int] = set()
    for task in sequence:
        if task in seen or not seen.issuperset(tasks.needs[task]):
            return False
        seen.add(task)
    return len(seen) == len(tasks)

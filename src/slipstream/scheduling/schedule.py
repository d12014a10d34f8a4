"""The order of a program's instructions that the simulator likes best.

Computations are searched from the inside outwards: a loop's body first, then what runs the loop, in
which it counts as one kernel as long as all its turns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from slipstream.analyses.hazards import hazards_of
from slipstream.compiler.order import Order
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Computation, Program
from slipstream.scheduling.bound import bound_ns
from slipstream.scheduling.computations import calls_of, from_inside, length_of
from slipstream.scheduling.memory import buffers_of, peak_bytes
from slipstream.scheduling.search import ComputationSearch, Found
from slipstream.scheduling.tasks import Tasks, is_topological, tasks_of
from slipstream.scheduling.trial import Trial
from slipstream.simulate.engine import graph_of, simulation
from slipstream.simulate.graphs import captured_kinds
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import overlap_limit
from slipstream.simulate.task_graph import READ, TaskGraph
from slipstream.simulate.window_clock import prepare

SECONDS = 20.0
"""time for the search of a whole program"""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class SearchedComputation:
    """What the search of one computation found."""

    name: str
    tasks: Tasks
    trial: Trial
    found: Found
    xla_ns: int
    tried: int


@dataclass(frozen=True)
class SearchedProgram:
    """The order that was found."""

    order: Order
    computations: tuple[SearchedComputation, ...]
    streams: tuple[str, ...]
    """names of the streams, by number"""
    seconds: float


def searched(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    source: Program | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    known: Sequence[Program] = (),
    spare_bytes: int = 0,
    seconds: float = SECONDS,
    progress: Progress | None = None,
) -> SearchedProgram:
    """Search all computations of a program.

    `estimates` go instead of costs if they exist already. `known` are the same program in other
    orders. `spare_bytes` is how much more memory than in
    XLA's order each computation may need (less, if negative).
    """
    if machine.kind == "tpu":
        raise BadInput(
            f"{machine.spec} has TPUs, and XLA:TPU takes no order; expected GPUs, such as 8xH200"
        )
    step = simulation(program, machine, costs, source=source, estimates=estimates)
    search = _Search(program, machine, step.estimates, known, spare_bytes, seconds, progress)
    return search.run()


class _Search:
    def __init__(
        self,
        program: Program,
        machine: Machine,
        estimates: Mapping[str, Estimate],
        known: Sequence[Program],
        spare_bytes: int,
        seconds: float,
        progress: Progress | None,
    ) -> None:
        self.program = program
        self.overheads = Overheads()
        kinds = captured_kinds(program.flags)
        self.graph: TaskGraph = graph_of(program, machine, estimates, kinds, self.overheads)
        self.nodes = {one.instruction.name: one for one in self.graph.nodes if one.kind != READ}
        self.hazards = hazards_of(program)
        self.known = known
        self.spare_bytes = spare_bytes
        self.seconds = seconds
        self.progress = progress or (lambda text: None)
        self.lengths_ns: dict[str, int] = {}
        """of computations, in the orders that were found"""
        self.done: dict[str, SearchedComputation] = {}
        self.too_large: list[_TooLarge] = []

    def run(self) -> SearchedProgram:
        prepare()
        began = time.monotonic()
        inner = list(from_inside(self.program))
        sizes = {one.name: sum(i.name in self.nodes for i in one.instructions) for one in inner}
        whole = sum(sizes.values()) or 1
        for place, computation in enumerate(inner, 1):
            self.progress(f"searching {computation.name} ({place} of {len(inner)})")
            share = self.seconds * sizes[computation.name] / whole
            found = self._searched(computation, share)
            self.done[computation.name] = found
            self.lengths_ns[computation.name] = found.found.ns
        if len(self.too_large) == len(inner):
            raise self.too_large[-1]  # if only some are, XLA's own count says whether all fits
        changed = {
            name: tuple(one.tasks.names[task] for task in one.found.sequence)
            for name, one in self.done.items()
            if one.found.sequence != tuple(range(len(one.tasks)))
        }
        order = Order(changed, self.program.fingerprint, self.program.name, self.program.flags)
        return SearchedProgram(
            order,
            tuple(self.done.values()),
            tuple(self.graph.streams),
            time.monotonic() - began,
        )

    def _searched(self, computation: Computation, seconds: float) -> SearchedComputation:
        spans = {one.name: length_of(one, self.lengths_ns) for one in calls_of(computation)}
        kept = self.hazards.get(computation.name, ())
        tasks = tasks_of(self.program, computation, self.nodes, spans, kept)
        trial = Trial(tasks, self.graph, self.nodes, spans, self.overheads)
        buffers = buffers_of(tasks, self.program)
        own = peak_bytes(buffers, range(len(tasks)))
        search = ComputationSearch(
            tasks,
            trial,
            buffers,
            max(own + self.spare_bytes, 0),
            bound_ns(tasks, overlap_limit(self.program)),
            overlap_limit(self.program),
            seconds,
            known=tuple(self._orders_of(tasks)),
        )
        xla_ns = search.best.ns
        found = search.run()
        if found.bytes > search.most_bytes:
            self.too_large.append(_TooLarge(computation.name, own, search.most_bytes))
        return SearchedComputation(computation.name, tasks, trial, found, xla_ns, search.tried)

    def _orders_of(self, tasks: Tasks) -> Iterator[list[int]]:
        """The computation's order in the other programs that have the same instructions."""
        places = {name: place for place, name in enumerate(tasks.names)}
        for other in self.known:
            same = other.computations.get(tasks.computation.name)
            names = [one.name for one in same.instructions] if same is not None else []
            if places.keys() != set(names) or len(names) != len(places):
                continue
            sequence = [places[name] for name in names]
            if is_topological(tasks, sequence):  # other copies may have been dropped there
                yield sequence


class _TooLarge(BadInput):
    def __init__(self, computation: str, needs: int, allowed: int) -> None:
        from slipstream.units import format_bytes

        super().__init__(
            f"no order of {computation} was found whose temporaries take less than "
            f"{format_bytes(allowed)}; XLA's take {format_bytes(needs)}: allow more (--memory), or "
            "make the program smaller (batch, remat, sharding)"
        )

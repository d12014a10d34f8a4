"""The simulator's clock, slow and plain: a world in which time moves from event to event."""

from dataclasses import dataclass, field

from slipstream.simulate.streams import CORES
from slipstream.simulate.task_graph import DONE, KERNEL, READ, START, Node, TaskGraph

PS = 1_000_000


@dataclass
class Operation:
    """One launch: of a node, at a place of the order, by a host that launched it at a time."""

    node: Node
    place: int
    launched: int
    ready: int = 0


@dataclass
class Flow:
    """An operation in progress: since a time it has had some work left, and runs at a rate."""

    operation: Operation
    since: int
    left: float
    rate: float = 1.0

    @property
    def node(self) -> Node:
        return self.operation.node

    @property
    def end(self) -> int:
        whole = self.since + self.node.duration_ps
        is_steady = self.rate == 1 and self.left == self.node.duration_ps
        return whole if is_steady else self.since + int(max(self.left, 0) / self.rate + 0.5)


@dataclass
class World:
    graph: TaskGraph
    latency: int
    wake: int
    now: int = 0
    host: int = 0
    place: int = 0
    free: int = 0
    compute: list[Operation] = field(default_factory=list)
    running: Flow | None = None
    queues: dict[int, list[Operation]] = field(default_factory=dict)
    busy: dict[int, Flow] = field(default_factory=dict)
    idle_since: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)

    def run(self) -> "World":
        while True:
            while self.launch() or self.end() or self.begin_beside() or self.step():
                pass
            self.share()
            times = self.next_times()
            if not times:
                return self
            self.now = min(times)

    # One thing that can happen now; True if it did.

    def launch(self) -> bool:
        if self.place == len(self.graph.order):
            return False
        node = self.graph.nodes[self.graph.order[self.place]]
        if node.kind == READ:
            if self.compute or self.running:
                return False
            self.host = max(self.host, self.free) + node.host_ps
        else:
            self.host += node.host_ps
            self.compute.append(Operation(node, self.place, self.host))
        self.place += 1
        return True

    def end(self) -> bool:
        for stream, flow in list(self.busy.items()):
            if flow.end == self.now:
                self.ends[flow.node.slot] = self.ended[flow.operation.place] = self.now
                self.idle_since[stream] = self.now
                del self.busy[stream]
                return True
        if self.running is not None and self.running.end == self.now:
            self.ended[self.running.operation.place] = self.free = self.now
            self.running = None
            return True
        return False

    def begin_beside(self) -> bool:
        heads = []
        for stream, queue in self.queues.items():
            if queue and stream not in self.busy and queue[0].ready <= self.now:
                since = max(queue[0].ready, self.idle_since.get(stream, 0))
                heads.append((since, queue[0].place, stream))
        for _, _, stream in sorted(heads):
            operation = self.queues[stream][0]
            if self.is_free(operation.node.engine):
                self.queues[stream].pop(0)
                self.begun[operation.place] = self.now
                self.busy[stream] = Flow(operation, self.now, operation.node.duration_ps)
                return True
        return False

    def is_free(self, engine: int) -> bool:
        if engine == CORES and self.running is not None:
            return False
        return engine == 0 or all(flow.node.engine != engine for flow in self.busy.values())

    def step(self) -> bool:
        """The compute stream goes on to its next operation."""
        if self.running is not None or not self.compute or self.free > self.now:
            return False
        first = self.compute[0]
        if first.node.kind == START:
            first.ready = max(self.free, first.launched + self.latency)
            self.queues.setdefault(first.node.stream, []).append(first)
            self.ends.pop(first.node.slot, None)
        elif first.node.kind == DONE:
            if first.node.slot not in self.ends:
                return False
            self.ended[first.place] = max(self.ends[first.node.slot], self.free)
            if self.ends[first.node.slot] > self.free:
                self.waited[first.place] = self.ends[first.node.slot] - self.free
                self.free = self.ends[first.node.slot] + self.wake
        else:
            if self.opening(first) > self.now or not self.is_free(CORES):
                return False
            self.begun[first.place] = self.now
            self.running = Flow(first, self.now, first.node.duration_ps)
        self.compute.pop(0)
        return True

    def opening(self, operation: Operation) -> int:
        after = self.free + operation.node.gap_ps if self.free else 0
        return max(after, operation.launched + self.latency)

    # Time.

    def next_times(self) -> list[int]:
        times = [flow.end for flow in self.busy.values()]
        times += [q[0].ready for q in self.queues.values() if q and q[0].ready > self.now]
        if self.running is not None:
            times.append(self.running.end)
        elif self.compute:
            at = max(self.free, self.opening(self.compute[0]))
            times += [time for time in (at, self.free) if time > self.now]
        return times

    def share(self) -> None:
        """From now on, everything runs at the rate that the links allow."""
        flows = [*([self.running] if self.running else []), *self.busy.values()]
        for flow, rate in zip(flows, self.rates(flows), strict=True):
            if rate != flow.rate:
                flow.left -= (self.now - flow.since) * flow.rate
                flow.since, flow.rate = self.now, rate

    def rates(self, flows: list[Flow]) -> list[float]:
        """Max-min fair: what they use of their busiest link rises evenly, until they stop."""
        most = [self.speed(flow, flows) for flow in flows]
        shares = [dict(flow.node.links) for flow in flows]
        links = {link for share in shares for link in share}
        found = {i: most[i] for i in range(len(flows)) if not any(shares[i].values())}
        while len(found) < len(flows):
            rising = {i: max(shares[i].values()) for i in range(len(flows)) if i not in found}
            levels = {i: most[i] * busiest for i, busiest in rising.items()}
            full = {}
            for link in links:
                room = 1 - sum(rate * shares[i].get(link, 0) for i, rate in found.items())
                slope = sum(shares[i].get(link, 0) / busiest for i, busiest in rising.items())
                if slope:
                    full[link] = max(0.0, room) / slope
            level = min(*levels.values(), *full.values())
            for i, busiest in rising.items():
                on = [full[link] for link, share in shares[i].items() if share]
                if min(levels[i], *on) <= level * (1 + 1e-9):
                    found[i] = min(level / busiest, most[i])
        return [found[i] for i in range(len(flows))]

    def speed(self, flow: Flow, flows: list[Flow]) -> float:
        """At most, if the links allow it."""
        talking = [other.node for other in flows if other.node.is_communication]
        working = [other for other in flows if other is self.running or other.node.engine == CORES]
        working = [other for other in working if not other.node.is_communication]
        loses = flow.node.contention
        on_cores = [node for node in talking if node.contention.cores]
        if not (working if flow.node.is_communication else on_cores):
            return 1
        cores = min(0.5, sum(node.contention.cores for node in talking))
        memory = min(0.5, sum(node.contention.memory for node in talking))
        lost = loses.loses + loses.loses_by_cores * cores + loses.loses_by_memory * memory
        return 1 - min(lost, 0.75)


def plain_run(graph: TaskGraph, latency: int, wake: int) -> tuple[list[int], list[int], list[int]]:
    """(start, end, wait) of each entry of the graph's order; -1 where nothing starts."""
    assert all(node.kind in (KERNEL, START, DONE, READ) for node in graph.nodes)
    world = World(graph, latency, wake).run()
    places = range(len(graph.order))
    return (
        [world.begun.get(place, -1) for place in places],
        [world.ended.get(place, 0) for place in places],
        [world.waited.get(place, 0) for place in places],
    )

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
class World:
    graph: TaskGraph
    latency: int
    wake: int
    slowdown: float
    now: int = 0
    host: int = 0
    place: int = 0
    free: int = 0
    compute: list[Operation] = field(default_factory=list)
    running: Operation | None = None
    left: float = 0
    queues: dict[int, list[Operation]] = field(default_factory=dict)
    busy: dict[int, tuple[Operation, int]] = field(default_factory=dict)
    idle_since: dict[int, int] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)

    def run(self) -> "World":
        while True:
            while self.launch() or self.end() or self.begin_beside() or self.step():
                pass
            times = self.next_times()
            if not times:
                return self
            self.move(min(times))

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
        for stream, (operation, at) in list(self.busy.items()):
            if at == self.now:
                self.ends[operation.node.slot] = self.ended[operation.place] = at
                self.idle_since[stream] = at
                del self.busy[stream]
                return True
        if self.running is not None and self.left == 0:
            self.ended[self.running.place] = self.free = self.now
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
                self.busy[stream] = (operation, self.now + operation.node.duration_ps)
                return True
        return False

    def is_free(self, engine: int) -> bool:
        if engine == CORES and self.running is not None:
            return False
        return engine == 0 or all(o.node.engine != engine for o, _ in self.busy.values())

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
            if self.ends[first.node.slot] > self.free:
                self.waited[first.place] = self.ends[first.node.slot] - self.free
                self.free = self.ends[first.node.slot] + self.wake
        else:
            if self.opening(first) > self.now or not self.is_free(CORES):
                return False
            self.begun[first.place] = self.now
            self.running, self.left = first, first.node.duration_ps
        self.compute.pop(0)
        return True

    def opening(self, operation: Operation) -> int:
        after = self.free + operation.node.gap_ps if self.free else 0
        return max(after, operation.launched + self.latency)

    # Time.

    def speed(self) -> float:
        node = self.running.node if self.running else None
        talks = any(o.node.is_communication for o, _ in self.busy.values())
        slows = node is not None and node.is_modelled and not node.is_communication
        return 1 - self.slowdown if talks and slows else 1

    def next_times(self) -> list[int]:
        times = [at for _, at in self.busy.values()]
        times += [q[0].ready for q in self.queues.values() if q and q[0].ready > self.now]
        if self.running is not None:
            times.append(self.now + int(self.left / self.speed()))
        elif self.compute:
            at = max(self.free, self.opening(self.compute[0]))
            times += [time for time in (at, self.free) if time > self.now]
        return times

    def move(self, time: int) -> None:
        if self.running is not None:
            self.left -= (time - self.now) * self.speed()
        self.now = time


def plain_run(
    graph: TaskGraph, latency: int, wake: int, slowdown: float
) -> tuple[list[int], list[int], list[int]]:
    """(start, end, wait) of each entry of the graph's order; -1 where nothing starts."""
    assert all(node.kind in (KERNEL, START, DONE, READ) for node in graph.nodes)
    world = World(graph, latency, wake, slowdown).run()
    places = range(len(graph.order))
    return (
        [world.begun.get(place, -1) for place in places],
        [world.ended.get(place, 0) for place in places],
        [world.waited.get(place, 0) for place in places],
    )

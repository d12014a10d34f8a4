"""`simulate`: turns a program, a machine and costs into a timeline, which is a Profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from slipstream.costs.table import CostTable
from slipstream.machines.links import program_loads
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.power import Power
from slipstream.profile.attribution.kernels import sanitized
from slipstream.profile.events import EVENT_COLUMNS, Array, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning, Programs
from slipstream.profile.program import Program
from slipstream.profile.simulated import simulated_warning
from slipstream.simulate.clock import NodeTimes, run
from slipstream.simulate.contention import contentions
from slipstream.simulate.costing import costing
from slipstream.simulate.foreign import CODE as FOREIGN
from slipstream.simulate.foreign import foreign
from slipstream.simulate.graphs import DEFAULT_KINDS, captured_kinds, regions
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.power_cap import StepPower, without_waits
from slipstream.simulate.streams import (
    COMPUTE,
    SAME_SIDE,
    TO_DEVICE,
    TO_HOST,
    communicates,
    direction,
    is_copy,
)
from slipstream.simulate.task_graph import DONE, KERNEL, MARK, READ, Node, TaskGraph, task_graph
from slipstream.simulate.tpu_streams import NO_OVERHEADS, TpuStreams
from slipstream.units import PS_PER_US

HOST = "simulated"
CORRECTIONS = 3
CLOCK_ERROR = 0.001
"""how far the clock may be from the one that the cap allows: it changes the step by less, and after
two corrections it is that close"""
_COPIES = {TO_DEVICE: "MemcpyH2D", TO_HOST: "MemcpyD2H", SAME_SIDE: "MemcpyD2D"}


@dataclass(frozen=True)
class Wait:
    """How long the compute stream waits for an asynchronous operation in one step."""

    instruction: str
    """the start of the operation"""
    us: float
    times: int
    """how often per step"""


@dataclass(frozen=True)
class Simulation:
    """One simulated step: its timeline, its waits, and the estimates behind it."""

    profile: Profile
    estimates: Mapping[str, Estimate]
    waits: tuple[Wait, ...]
    """the longest first"""
    executions: Mapping[str, int]
    """how often each instruction ran, by the name of its start"""
    inline: frozenset[str]
    """communication and asynchronous copies that run on the compute stream nevertheless"""
    power: Power | None = None
    """None with measured costs, which contain the clock that they were measured at, and for a GPU
    whose power cap is unknown"""


def simulate(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    command_buffers: bool | None = None,
) -> Profile:
    """Simulate one step of a program on a machine; the result is a Profile for every analysis.

    Measured costs are used where they fit; the rest is modelled. `command_buffers` turns CUDA
    graphs on or off; by default the program's flags decide.
    """
    return simulation(program, machine, costs, command_buffers=command_buffers).profile


def simulation(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    source: Program | None = None,
    estimates: Mapping[str, Estimate] | None = None,
    command_buffers: bool | None = None,
    overheads: Overheads | None = None,
) -> Simulation:
    """Like `simulate`, with the waits; pass `estimates` instead of costs if they exist already.

    `source` is the program that the costs were measured on.
    """
    is_tpu = machine.kind == "tpu"
    kinds = frozenset() if is_tpu else captured_kinds(program.flags)
    usual = NO_OVERHEADS if is_tpu else Overheads()
    if command_buffers is not None and not is_tpu:
        kinds = (kinds or DEFAULT_KINDS) if command_buffers else frozenset()

    def timed(machine: Machine, estimates: Mapping[str, Estimate]) -> Simulation:
        return _timed(program, machine, estimates, kinds, overheads or usual)

    if estimates is not None:
        return timed(machine, estimates)
    if costs is not None:
        return timed(machine, costing(program, machine, costs, source))
    return _at_power_cap(program, machine, timed)


def _at_power_cap(
    program: Program,
    machine: Machine,
    timed: Callable[[Machine, Mapping[str, Estimate]], Simulation],
) -> Simulation:
    """A step at the clock that its power cap leaves to it: the more it waits, the higher."""
    if machine.kind == "tpu" or not machine.gpu.power_w:
        highest = machine.at(1.0)
        return timed(highest, costing(program, highest, None))

    def timed_at(share: float) -> Simulation:
        clocked = machine.at(share)
        return timed(clocked, costing(program, clocked, None))

    share = without_waits(program, machine)
    step = timed_at(share)
    draw = StepPower(program, machine, step.executions)
    for _ in range(CORRECTIONS):
        allowed = draw.share(_wall_us(step.profile), share)
        if abs(allowed / share - 1) < CLOCK_ERROR:
            break
        share, step = allowed, timed_at(allowed)
    return replace(step, power=draw.power(share, _wall_us(step.profile)))


def _wall_us(profile: Profile) -> float:
    events = profile.events
    if not len(events):
        return 0.0
    ends = events["start_ps"][:] + events["duration_ps"][:]
    return float(ends.max() - events["start_ps"][:].min()) / PS_PER_US


def _timed(
    program: Program,
    machine: Machine,
    estimates: Mapping[str, Estimate],
    kinds: frozenset[str],
    overheads: Overheads,
) -> Simulation:
    estimates = (
        estimates if machine.kind == "tpu" else undisturbed(program, machine, estimates, kinds)
    )
    graph = graph_of(program, machine, estimates, kinds, overheads)
    times = run(graph, overheads)
    profile = _profile(program, machine, graph, times)
    return Simulation(profile, estimates, _waits(graph, times), _executions(graph), _inline(graph))


def graph_of(
    program: Program,
    machine: Machine,
    estimates: Mapping[str, Estimate],
    kinds: frozenset[str],
    overheads: Overheads,
) -> TaskGraph:
    """The task graph of a program on a machine, with all that its instructions share and slow."""
    loads = program_loads(machine, program, estimates)
    slowing = contentions(program, machine, estimates, loads)
    streams = TpuStreams(program) if machine.kind == "tpu" else None
    return task_graph(program, estimates, kinds, overheads, loads, slowing, streams)


def undisturbed(
    program: Program,
    machine: Machine,
    estimates: Mapping[str, Estimate],
    kinds: frozenset[str],
) -> Mapping[str, Estimate]:
    """Estimates, with host copies that graphs capture at their undisturbed speed.

    beside kernels    134 MB to the host in 2.78 ms      on an H200: both use the same memory
    in a graph        134 MB to the host in 2.43 ms

    A measured cost doesn't say which of the two it is, so a captured copy takes the shorter of the
    measured and the modelled time.
    """
    from slipstream.machines.kernel_model import kernel_time

    changed: dict[str, Estimate] = {}
    for start in program.scheduled:
        known = estimates.get(start.name)
        if not start.is_start or known is None or known.basis != "measured":
            continue
        if communicates(program, start) or not is_copy(program, start):
            continue
        if direction(program, start) == SAME_SIDE:
            continue
        if start.name in regions(program, start.computation, kinds):
            alone = kernel_time(machine, program, start)
            if alone.us < known.us:
                changed[start.name] = replace(known, us=alone.us, why="not slowed down by kernels")
    return {**estimates, **changed} if changed else estimates


def _profile(program: Program, machine: Machine, graph: TaskGraph, times: NodeTimes) -> Profile:
    is_tpu = machine.kind == "tpu"
    times = _with_waits(graph, times) if is_tpu else times
    rows = np.flatnonzero(times.start_ps >= 0)
    device = Device(f"{machine.kind.upper()}:0", 0, 0, machine.kind, machine.chip.full_name)
    lanes = tuple(_lane(i, name, is_tpu) for i, name in enumerate(graph.streams))
    name = f"{program.name}({program.program_id or 0})"
    return Profile(
        (Host(HOST, f"simulated for {machine.spec}", _versions(program)),),
        (device,),
        lanes,
        _events(program, graph, times, rows, name, is_tpu),
        programs=Programs({name: lambda: program}),
        warnings=_warnings(program, machine, graph),
    )


def _lane(number: int, name: str, is_tpu: bool) -> Lane:
    """As recordings name it."""
    if not is_tpu:
        return Lane(f"Stream #{number}({name})", 0, 0)
    if number == COMPUTE:
        return Lane("XLA Ops", 0, 0, "ops")
    return Lane(f"Async XLA Ops ({name})", 0, 0, "async")


def _with_waits(graph: TaskGraph, times: NodeTimes) -> NodeTimes:
    """Times with a start for each wait: on a TPU, a done is an operation that takes that long."""
    kinds = np.array([node.kind for node in graph.nodes])[graph.order]
    shown = (kinds == DONE) & ((times.wait_ps > 0) | _between_slices(graph)[graph.order])
    start = np.where(shown, times.end_ps - times.wait_ps, times.start_ps)
    return replace(times, start_ps=start)


def _between_slices(graph: TaskGraph) -> Array:
    """Nodes that are shown even if they take no time: the ends of transfers between slices."""
    return np.array([node.is_communication and node.kind == DONE for node in graph.nodes], bool)


def _versions(program: Program) -> dict[str, str]:
    return {"jaxlib_version": program.jaxlib_version} if program.jaxlib_version else {}


def _events(
    program: Program, graph: TaskGraph, times: NodeTimes, rows: Array, name: str, is_tpu: bool
) -> Table:
    texts = Texts()
    nodes = graph.order[rows]
    labels = texts.map([_label(program, node) for node in graph.nodes])
    kernels = labels if is_tpu else texts.map([_kernel_name(program, node) for node in graph.nodes])
    order = np.argsort(times.start_ps[rows], kind="stable")
    rows, nodes = rows[order], nodes[order]
    zeros = np.zeros(len(rows), np.int64)
    columns = {
        "start_ps": times.start_ps[rows],
        "duration_ps": times.end_ps[rows] - times.start_ps[rows],
        "lane": np.array([node.stream for node in graph.nodes], np.int32)[nodes],
        "name": kernels[nodes],
        "op": labels[nodes],
        "program": np.full(len(rows), texts.index(name)),
        "details": zeros,
        # Launches are numbered from 1: 0 means that the launch isn't known. A TPU runs a whole
        # program at once.
        "correlation": np.ones(len(rows), np.int64) if is_tpu else rows + 1,
        "graph": np.array([node.graph for node in graph.nodes], np.int64)[nodes],
        "graph_node": zeros,
        "instruction": labels[nodes],
        "execution": zeros,
    }
    arrays = {c.name: columns[c.name].astype(c.dtype) for c in EVENT_COLUMNS}
    return Table(EVENT_COLUMNS, arrays, texts.values)


def _label(program: Program, node: Node) -> str:
    """The instruction that a profile would name: for a start, the wrapped operation if known.

    Only TPUs have events of waits.
    """
    if node.kind == READ:
        return ""
    instruction = node.instruction
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    return (inner or instruction).name


def _kernel_name(program: Program, node: Node) -> str:
    if node.kind in (DONE, READ):
        return ""
    if not node.is_communication and is_copy(program, node.instruction):
        return _COPIES[direction(program, node.instruction)]
    instruction = node.instruction
    return sanitized(instruction.deduplicated_name or instruction.name)


def _warnings(program: Program, machine: Machine, graph: TaskGraph) -> tuple[ProfileWarning, ...]:
    assumptions = dict.fromkeys(graph.assumptions)
    if text := foreign(program, machine):
        assumptions[FOREIGN, text] = None
    return (
        simulated_warning(machine.spec),
        *(ProfileWarning(code, text) for code, text in assumptions),
    )


def _waits(graph: TaskGraph, times: NodeTimes) -> tuple[Wait, ...]:
    nodes = len(graph.nodes)
    total = np.bincount(graph.order, times.wait_ps, nodes)
    counts = np.bincount(graph.order, minlength=nodes)
    starts = {node.slot: node for node in graph.nodes if node.slot >= 0 and node.kind != DONE}
    found = [
        Wait(starts[graph.nodes[i].slot].instruction.name, float(total[i]) / 1e6, int(counts[i]))
        for i in np.flatnonzero(total).tolist()
    ]
    return tuple(sorted(found, key=lambda wait: -wait.us))


def all_waits(step: Simulation) -> list[Wait]:
    """Waits for asynchronous operations, and communication and copies on the compute stream."""
    found = list(step.waits)
    for name in step.inline:
        count, estimate = step.executions[name], step.estimates.get(name)
        if estimate is not None:
            found.append(Wait(name, estimate.us * count, count))
    return sorted((w for w in found if w.us > 0), key=lambda wait: -wait.us)


def _executions(graph: TaskGraph) -> dict[str, int]:
    counts = np.bincount(graph.order, minlength=len(graph.nodes))
    found: dict[str, int] = {}
    for node, count in zip(graph.nodes, counts.tolist(), strict=True):
        if node.kind not in (DONE, READ, MARK):
            found[node.instruction.name] = found.get(node.instruction.name, 0) + count
    return found


def _inline(graph: TaskGraph) -> frozenset[str]:
    return frozenset(
        node.instruction.name
        for node in graph.nodes
        if node.kind == KERNEL and (node.is_communication or node.instruction.is_start)
    )

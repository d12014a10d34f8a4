"""`simulate`: program, machine and costs into a timeline, which is a Profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from slipstream.costs.table import CostTable
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.attribution.kernels import sanitized
from slipstream.profile.events import EVENT_COLUMNS, Array, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning, Programs
from slipstream.profile.program import Program
from slipstream.simulate.clock import NodeTimes, run
from slipstream.simulate.costing import costing
from slipstream.simulate.graphs import DEFAULT_KINDS, captured_kinds
from slipstream.simulate.host_copy_speed import undisturbed
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import SAME_SIDE, TO_DEVICE, TO_HOST, direction, is_copy
from slipstream.simulate.task_graph import DONE, KERNEL, READ, Node, TaskGraph, task_graph

HOST = "simulated"
_COPIES = {TO_DEVICE: "MemcpyH2D", TO_HOST: "MemcpyD2H", SAME_SIDE: "MemcpyD2D"}


@dataclass(frozen=True)
class Wait:
    """Time in which the compute stream waits for an asynchronous operation, in one step."""

    instruction: str
    """what is waited for: the start"""
    us: float
    times: int
    """how often the step comes there"""


@dataclass(frozen=True)
class Simulation:
    """One simulated step: its timeline, what it waits for, and what it rests on."""

    profile: Profile
    estimates: Mapping[str, Estimate]
    waits: tuple[Wait, ...]
    """the longest first"""
    executions: Mapping[str, int]
    """how often each instruction ran, by the name of its start"""
    inline: frozenset[str]
    """communication, and copies made asynchronous, that run on the compute stream nevertheless"""


def simulate(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    command_buffers: bool | None = None,
) -> Profile:
    """One step of a program on a machine, as a Profile that every analysis takes.

    Costs that were measured are taken where they fit; the rest is modelled. `command_buffers`
    turns CUDA graphs on or off; by default the program's flags decide.
    """
    return simulation(program, machine, costs, command_buffers=command_buffers).profile


def simulation(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    *,
    estimates: Mapping[str, Estimate] | None = None,
    command_buffers: bool | None = None,
    overheads: Overheads | None = None,
) -> Simulation:
    """As `simulate`, with the waits; `estimates` instead of costs, where they are made already."""
    if estimates is None:
        estimates = costing(program, machine, costs)
    overheads = overheads or Overheads()
    kinds = captured_kinds(program.flags)
    if command_buffers is not None:
        kinds = (kinds or DEFAULT_KINDS) if command_buffers else frozenset()
    estimates = undisturbed(program, machine, estimates, kinds)
    graph = task_graph(program, estimates, kinds, overheads)
    times = run(graph, overheads, overheads.slowdown(machine))
    profile = _profile(program, machine, graph, times)
    return Simulation(profile, estimates, _waits(graph, times), _executions(graph), _inline(graph))


def _profile(program: Program, machine: Machine, graph: TaskGraph, times: NodeTimes) -> Profile:
    rows = np.flatnonzero(times.start_ps >= 0)
    device = Device("GPU:0", 0, 0, "gpu", machine.gpu.full_name)
    lanes = tuple(Lane(f"Stream #{i}({name})", 0, 0) for i, name in enumerate(graph.streams))
    name = f"{program.name}({program.program_id or 0})"
    return Profile(
        (Host(HOST, f"simulated for {machine.spec}", _versions(program)),),
        (device,),
        lanes,
        _events(program, graph, times, rows, name),
        programs=Programs({name: lambda: program}),
        warnings=_warnings(machine, graph),
    )


def _versions(program: Program) -> dict[str, str]:
    return {"jaxlib_version": program.jaxlib_version} if program.jaxlib_version else {}


def _events(program: Program, graph: TaskGraph, times: NodeTimes, rows: Array, name: str) -> Table:
    texts = Texts()
    nodes = graph.order[rows]
    labels = texts.map([_label(program, node) for node in graph.nodes])
    kernels = texts.map([_kernel_name(program, node) for node in graph.nodes])
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
        # Launches are numbered from 1: 0 means that the launch isn't known.
        "correlation": rows + 1,
        "graph": np.array([node.graph for node in graph.nodes], np.int64)[nodes],
        "instruction": labels[nodes],
        "execution": zeros,
    }
    arrays = {c.name: columns[c.name].astype(c.dtype) for c in EVENT_COLUMNS}
    return Table(EVENT_COLUMNS, arrays, texts.values)


def _label(program: Program, node: Node) -> str:
    """The instruction a profile would name: of a start, the operation inside, where known."""
    if node.kind in (DONE, READ):
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


def _warnings(machine: Machine, graph: TaskGraph) -> tuple[ProfileWarning, ...]:
    said = dict.fromkeys(graph.assumptions)
    return (
        ProfileWarning(
            "simulated",
            f"these times are predicted for {machine.spec}, one device of it; no such step ran",
        ),
        *(ProfileWarning(code, text) for code, text in said),
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


def _executions(graph: TaskGraph) -> dict[str, int]:
    counts = np.bincount(graph.order, minlength=len(graph.nodes))
    found: dict[str, int] = {}
    for node, count in zip(graph.nodes, counts.tolist(), strict=True):
        if node.kind not in (DONE, READ):
            found[node.instruction.name] = found.get(node.instruction.name, 0) + count
    return found


def _inline(graph: TaskGraph) -> frozenset[str]:
    return frozenset(
        node.instruction.name
        for node in graph.nodes
        if node.kind == KERNEL and (node.is_communication or node.instruction.is_start)
    )

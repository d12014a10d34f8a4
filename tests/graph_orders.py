"""Recordings without CUDA graphs, as if XLA had captured them: the labels are hidden, and each
graph runs its kernels in some order that the program's dependencies allow, on some streams."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace

import numpy as np

from slipstream.profile.attribution.launch_sequence import unroll
from slipstream.profile.events import Array
from slipstream.profile.profile import Lane, Profile
from slipstream.profile.program import Instruction, Program

GAP_PS = 1_000_000


@dataclass(frozen=True)
class Captured:
    """The recording with hidden labels, and the instruction of each of its events."""

    profile: Profile
    truth: list[str]


@dataclass(frozen=True)
class Call:
    """One run of an instruction: rows of its kernels, in order."""

    instruction: str
    rows: list[int]


def captured(
    plain: Profile, seed: int, streams: int = 1, *, numbered: bool = True, executions: int = 1
) -> Captured:
    """The compute stream of the first executions, with every stretch of it as a graph."""
    program, rows = _compute_rows(plain, executions)
    events = plain.events
    chance = random.Random(seed)
    graphs = list(_graphs(program, plain, rows))
    columns: dict[str, list[int]] = {
        name: [] for name in ("start_ps", "lane", "op", "correlation", "graph", "graph_node")
    }
    order: list[int] = []
    labels: dict[tuple[str, ...], int] = {}
    now = 0
    for launch, calls in enumerate(graphs, 1):
        ids = tuple(call.instruction for call in calls)
        graph = labels.setdefault(ids, 10 * len(labels) + 1)
        nodes = _nodes(program, calls, lambda row: events.text("name", row))
        times, now = _run(program, calls, events["duration_ps"], chance, streams, now)
        for row, (start, lane) in times.items():
            order.append(row)
            values = (start, lane, graph, launch, graph, nodes[row] if numbered else 0)
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
        now += GAP_PS
    texts = [*events.texts, *(f"command_buffer_{graph}" for graph in labels.values())]
    place = {graph: len(events.texts) + i for i, graph in enumerate(labels.values())}
    hidden = events.take(np.array(order))
    nothing = np.zeros(len(order), np.int32)
    hidden = hidden.replace(
        texts,
        start_ps=np.array(columns["start_ps"]),
        lane=np.array(columns["lane"], np.int32),
        op=np.array([place[graph] for graph in columns["op"]], np.int32),
        correlation=np.array(columns["correlation"]),
        graph=np.array(columns["graph"]),
        graph_node=np.array(columns["graph_node"]),
        instruction=nothing,
        execution=nothing,
    )
    lanes = tuple(Lane(f"Stream #{i}", 0, 0) for i in range(streams))
    truth = [events.text("instruction", row) for row in order]
    return Captured(replace(plain, lanes=lanes).with_events(hidden), truth)


def _compute_rows(plain: Profile, executions: int) -> tuple[Program, Array]:
    events = plain.events
    compute = np.bincount(events["lane"]).argmax()
    own = (events["lane"] == compute) & (events["execution"] < executions)
    rows = np.flatnonzero(own & (events["instruction"] != 0))
    return plain.programs[events.text("program", int(rows[0]))], rows


def _graphs(program: Program, plain: Profile, rows: Array) -> Iterator[list[Call]]:
    """Calls of one iteration of one computation: what one graph can hold."""
    calls: list[Call] = []
    last: tuple[str, int] | None = None
    for row in rows[np.argsort(plain.events["start_ps"][rows], kind="stable")].tolist():
        label = plain.events.text("instruction", row)
        instruction = program.starter(label) or program.instruction(label)
        place = (instruction.computation, instruction.position)
        if last is not None and (place[0] != last[0] or place[1] < last[1]):
            yield calls
            calls = []
        if calls and calls[-1].instruction == label:
            calls[-1].rows.append(row)
        else:
            calls.append(Call(label, [row]))
        last = place
    yield calls


def _nodes(program: Program, calls: list[Call], names: Callable[[int], str]) -> dict[int, int]:
    """The number of each kernel's node: what XLA did not compile is inside child graphs.

    Plain copies aside, which are nodes of the graph itself.
    """
    compiled = unroll(program).groups
    numbers: dict[int, int] = {}
    inside: list[int] = []
    count = 0
    for call in calls:
        is_own = program.instruction(call.instruction).opcode == "copy"
        if is_own or any(names(row) in compiled for row in call.rows):
            for row in call.rows:
                count += 1
                numbers[row] = count
        else:
            count += 1
            inside += call.rows
    return numbers | {row: count + i for i, row in enumerate(inside, 1)}


def _run(
    program: Program, calls: list[Call], duration: Array, chance: random.Random, streams: int,
    now: int,
) -> tuple[dict[int, tuple[int, int]], int]:  # fmt: skip
    """(start, stream) of each kernel, and the end, in a random order that dependencies allow."""
    index = {call.instruction: i for i, call in enumerate(calls)}
    needs = [
        {index[name] for name in _needed(program, call.instruction, index)} - {i}
        for i, call in enumerate(calls)
    ]
    free = [now] * streams
    ends: dict[int, int] = {}
    times: dict[int, tuple[int, int]] = {}
    while len(ends) < len(calls):
        ready = [i for i in range(len(calls)) if i not in ends and needs[i] <= ends.keys()]
        chosen = chance.choice(ready)
        earliest = max([now, *(ends[i] for i in needs[chosen])])
        lane = min(range(streams), key=lambda i: max(free[i], earliest))
        at = max(free[lane], earliest)
        for row in calls[chosen].rows:
            times[row] = (at, lane)
            at += int(duration[row]) + 1000
        ends[chosen] = free[lane] = at
    return times, max(free)


def _needed(program: Program, label: str, known: Container[str]) -> set[str]:
    """Those of the `known` instructions whose results an instruction uses, directly or not."""
    found: set[str] = set()
    seen: set[str] = set()
    start = program.starter(label) or program.instruction(label)
    by_name = program.computations[start.computation].by_name
    queue = [*start.operands, *start.control_predecessors]
    while queue:
        name = queue.pop()
        if name in seen or name not in by_name:
            continue
        seen.add(name)
        operand = by_name[name]
        if (ran := _label(program, operand)) in known:
            found.add(ran)
        else:
            queue += [*operand.operands, *operand.control_predecessors]
    return found


def _label(program: Program, instruction: Instruction) -> str:
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    return (inner or instruction).name

"""Recordings without CUDA graphs, as if XLA had captured them: the labels are hidden, and each
graph runs its kernels in some order that the program's dependencies allow, on some streams."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.attribution.kernels import sanitized
from slipstream.profile.attribution.launch_sequence import unroll
from slipstream.profile.events import EVENT_COLUMNS, Array, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, Programs
from slipstream.profile.program import Instruction, Program
from slipstream.sources.hlo.reader import program_from_text

GAP_PS = 1_000_000
_GEMM = """{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],\
"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]}}}"""


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
    plain: Profile,
    seed: int,
    streams: int = 1,
    *,
    numbered: bool = True,
    scrambled: bool = False,
    executions: int = 1,
) -> Captured:
    """The compute stream of the first executions, with every stretch of it as a graph.

    `scrambled` numbers child graphs in another order than the schedule's.
    """
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
        inside = random.Random(graph) if scrambled else None
        nodes = _nodes(program, calls, lambda row: events.text("name", row), inside)
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


def _nodes(
    program: Program,
    calls: list[Call],
    names: Callable[[int], str],
    scramble: random.Random | None,
) -> dict[int, int]:
    """The number of each kernel's node: what XLA did not compile is inside child graphs.

    Plain copies aside, which are nodes of the graph itself.
    """
    compiled = unroll(program).groups
    numbers: dict[int, int] = {}
    inside: list[list[int]] = []
    count = 0
    for call in calls:
        is_own = program.instruction(call.instruction).opcode == "copy"
        if is_own or any(names(row) in compiled for row in call.rows):
            for row in call.rows:
                count += 1
                numbers[row] = count
        else:
            count += 1
            inside.append(call.rows)
    if scramble is not None:
        scramble.shuffle(inside)
    return numbers | {row: count + i for i, row in enumerate(chain(*inside), 1)}


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


def mixture_of_experts(experts: int = 8, seed: int = 0) -> Profile:
    """One step of an expert layer without graphs: separate products, of three sizes."""
    program = program_from_text(_experts_text(experts))
    chance = random.Random(seed)
    texts = Texts()
    rows: list[tuple[int, str, str]] = []
    kernels: dict[str, str] = {}
    for launch in unroll(program).launches:
        if launch.is_library:
            name = "nvjet_sm90_tst_128x256" if "up" in launch.instruction else "nvjet_sm90_tst_64x8"
            took = 4 * _hidden(launch.instruction) * chance.uniform(0.99, 1.01)
            rows.append((900_000, "Memset 0", launch.instruction))
            rows.append((int(took), name, launch.instruction))
        else:
            name = kernels.setdefault(launch.group, sanitized(launch.instruction))
            rows.append((3_000_000, name, launch.instruction))
    durations = np.array([row[0] for row in rows], np.int64)
    label = texts.map([row[2] for row in rows])
    columns = {column.name: np.zeros(len(rows), column.dtype) for column in EVENT_COLUMNS}
    columns |= {
        "start_ps": np.cumsum(durations) - durations,
        "duration_ps": durations,
        "name": texts.map([row[1] for row in rows]),
        "op": label,
        "program": np.full(len(rows), texts.index("experts(1)"), np.int32),
        "details": texts.map([_grid(row[2]) if "nvjet" in row[1] else "" for row in rows]),
        "correlation": np.arange(1, len(rows) + 1),
    }
    return attribute(
        Profile(
            (Host("host", "mock"),),
            (Device("GPU:0", 0, 0, "gpu", "NVIDIA H200"),),
            (Lane("Stream #0", 0, 0),),
            Table(EVENT_COLUMNS, columns, texts.values),
            programs=Programs({"experts(1)": lambda: program}),
        )
    )


def _hidden(instruction: str) -> int:
    """The bytes of an expert's inner values."""
    return 4096 * 2 * 640 * (1 + int(instruction.rpartition(".")[2]) % 3)


def _grid(instruction: str) -> str:
    """Larger products have larger grids."""
    return f"regs:168 grid:{_hidden(instruction) >> 20},1,1 block:384,1,1"


def _experts_text(experts: int) -> str:
    fused, entry = [], ["  %x = bf16[4096,1024] parameter(0)"]
    call = f'custom_call_target="__cublas$lt$matmul", backend_config={_GEMM}'
    for e in range(experts):
        hidden = f"bf16[4096,{640 * (1 + e % 3)}]"
        fused.append(
            f"%gelu{e} (a: {hidden}) -> {hidden} {{\n"
            f"  %a{e} = {hidden} parameter(0)\n  ROOT %t{e} = {hidden} tanh(%a{e})\n}}\n"
        )
        entry += [
            f"  %w.{e} = bf16[1024,{640 * (1 + e % 3)}] parameter({1 + 2 * e})",
            f"  %v.{e} = bf16[{640 * (1 + e % 3)},1024] parameter({2 + 2 * e})",
        ]
    for e in range(experts):
        hidden = f"bf16[4096,{640 * (1 + e % 3)}]"
        entry += [
            f"  %up.{e} = ({hidden}, s8[1024]) custom-call(%x, %w.{e}), {call}",
            f"  %u.{e} = {hidden} get-tuple-element(%up.{e}), index=0",
            f"  %gelu_fusion.{e} = {hidden} fusion(%u.{e}), kind=kLoop, calls=%gelu{e}",
            f"  %down.{e} = (bf16[4096,1024], s8[1024]) "
            f"custom-call(%gelu_fusion.{e}, %v.{e}), {call}",
            f"  %d.{e} = bf16[4096,1024] get-tuple-element(%down.{e}), index=0",
        ]
    results = ", ".join(f"%d.{e}" for e in range(experts))
    entry.append(f"  ROOT %sum = bf16[4096,1024] concatenate({results}), dimensions={{0}}")
    head = "HloModule experts, is_scheduled=true\n\n"
    return head + "\n".join(fused) + "\nENTRY %main {\n" + "\n".join(entry) + "\n}\n"

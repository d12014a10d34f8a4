"""What limits a step: what it spends its time on, from its simulated timeline.

compute      ██ product ██ fusion ██      ██ product ██     to the kernel that began last
all-gather        ═══════════════════════                   exposed: no kernel runs beside it
parts        ██ product ██ fusion ██░░░░░░██ product ██     each moment belongs to one part

A kernel that is computed again for the backward pass counts as recomputation, whatever it does.
Of what runs in the loop of a pipeline, the turns without a microbatch are its bubble.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from slipstream.machines.collectives import slowest_group
from slipstream.machines.machine import Machine
from slipstream.plan.report.pipeline_loops import PipelineLoop, pipeline_loops
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.dataflow import is_weight, parameter_name
from slipstream.profile.semantics.descriptions import moved_arguments, sums
from slipstream.profile.semantics.names import phase_of, scope
from slipstream.profile.timeline.concurrency import serialize
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY
from slipstream.profile.timeline.segments import kind_mask
from slipstream.results.planning import (
    ATTENTION,
    BUBBLE,
    COMMUNICATION_PARTS,
    COPIES,
    EXPOSED,
    ICI,
    IDLE,
    MEMORY,
    NETWORK,
    NVLINK,
    OTHER_KERNELS,
    PARTS,
    PCIE,
    PRODUCTS,
    RECOMPUTATION,
    TRAFFIC,
    Limit,
)
from slipstream.results.prediction import Prediction
from slipstream.units import PS_PER_US, format_bytes

NOTICEABLE = 0.005
"""share of the step below which a limit is not mentioned"""
_KERNELS = {
    "matmul": PRODUCTS,
    "convolution": PRODUCTS,
    "attention": ATTENTION,
    "custom call": OTHER_KERNELS,
}
_NETWORKS = {
    "infiniband": "InfiniBand", "ethernet": "Ethernet", "efa": "EFA", "sockets": "TCP",
    "dcn": "the data-centre network",
}  # fmt: skip
_INSIDE = {"nvlink": NVLINK, "nvswitch": NVLINK, "pcie": PCIE, "ici": ICI}
"""parts by the link of a chip"""
_MOST_NAMES = 4


def limits_of(
    prediction: Prediction, program: Program, machine: Machine
) -> tuple[tuple[Limit, ...], dict[str, float]]:
    """(what limits the step, the largest first; its parts, which add up to it)."""
    if prediction.timeline is None or not prediction.step_us:
        return _memory(prediction), {}
    pipelines = pipeline_loops(program)
    times = [
        part
        for (name, kind), us in exclusive_times(prediction.timeline).items()
        for part in _split(program, pipelines, name, _attributed(program, machine, name, kind, us))
    ]
    parts: dict[str, float] = defaultdict(float)
    for time in times:
        parts[time.part] += time.us
    parts[IDLE] = max(0.0, prediction.step_us - sum(parts.values()))
    ordered = {name: parts[name] for name in PARTS if parts.get(name)}
    found = sorted(_of_parts(times, parts, prediction), key=lambda limit: -limit.share)
    return (*found, *_memory(prediction)), ordered


def exclusive_times(timeline: Profile) -> dict[tuple[str, int], float]:
    """Microseconds of each (instruction, kind of time) in which nothing more important runs.

    Kernels come before communication, and communication before copies. Of two that run at the same
    time, the one that began last counts.
    """
    events = timeline.events
    found: dict[tuple[str, int], float] = {}
    for _, own in timeline.segments.by_device():
        above = 0
        for kind in (COMPUTE, COMMUNICATION, COPY):
            mask = kind_mask(kind)
            start, end, at = serialize(own.start_ps, own.duration_ps, own.kind, mask)
            length = end - start
            if above:
                length = length - own.union(above).covered(start, end)
            names = events["instruction"][own.row[at]]
            for index, us in _summed(names, length):
                found[events.texts[index], kind] = us
            above |= mask
    return found


def _summed(names: Array, length_ps: Array) -> Iterator[tuple[int, float]]:
    total = np.bincount(names, length_ps) / PS_PER_US
    for index in np.flatnonzero(total).tolist():
        yield index, float(total[index])


@dataclass(frozen=True)
class _Time:
    """The time of one instruction in a step, and what it counts as."""

    part: str
    us: float
    detail: str
    """what it is, within its part"""
    link: str = ""
    """of communication"""
    names: tuple[str, ...] = ()
    """weights that it moves"""
    loop: int | None = None
    """iterations of the loop around it"""


def _attributed(program: Program, machine: Machine, name: str, kind: int, us: float) -> _Time:
    if name not in program:
        part = {COMPUTE: OTHER_KERNELS, COMMUNICATION: NETWORK, COPY: COPIES}[kind]
        return _Time(part, us, "not in the program", link_name(machine, is_network=True))
    instruction = program.instruction(name)
    if kind == COMMUNICATION:
        return _communication(program, machine, instruction, us)
    what = category(program, instruction)
    if kind == COPY:
        return _Time(COPIES, us, _COPIES.get(what, "within the device"))
    part = _KERNELS.get(what, TRAFFIC)
    if phase_of(program, instruction) == "remat":
        return _Time(RECOMPUTATION, us, part)
    return _Time(part, us, what)


_COPIES = {"host copy": "between device and host"}


def _split(
    program: Program, pipelines: Mapping[str, PipelineLoop], name: str, time: _Time
) -> Iterator[_Time]:
    """The time of an instruction; in the loop of a pipeline, without that of its bubble."""
    loops = _loops(program, name) if pipelines else ()
    around = next((pipelines[loop] for loop in loops if loop in pipelines), None)
    if around is None:
        yield time
        return
    yield replace(time, us=time.us * (1 - around.bubble))
    idle = f"{around.stages - 1} of {around.turns} turns of a pipeline of {around.stages} stages"
    yield _Time(BUBBLE, time.us * around.bubble, idle)


def _loops(program: Program, name: str) -> Iterator[str]:
    """The loops around an instruction, the innermost first."""
    loop = program.loop_of(name) if name in program else None
    while loop is not None:
        yield loop.name
        loop = program.loop_of(loop.name)


# Communication: what it moves, and over which link.


def _communication(
    program: Program, machine: Machine, instruction: Instruction, us: float
) -> _Time:
    start = program.starter(instruction.name) or instruction
    collective = program.collective_of(start)
    if collective is None:
        return _Time(NETWORK, us, "communication", link_name(machine, is_network=True))
    is_network = _is_network(machine, collective)
    inside = _INSIDE.get(machine.chip.link, NVLINK)
    # The operands of an asynchronous collective belong to the operation that it wraps.
    inner = program.wrapped(start.name) or start
    described = start if start.collective is not None else inner
    what, names = _moved(program, described)
    loop = program.loop_of(start.name)
    return _Time(
        NETWORK if is_network else inside,
        us,
        f"{collective.kind}s of {what}",
        link_name(machine, is_network),
        names,
        loop.trip_count if loop is not None else None,
    )


def _is_network(machine: Machine, collective: Collective) -> bool:
    if machine.kind == "tpu":  # between slices, by Megascale
        return collective.kind in ("send", "recv")
    slowest = slowest_group(machine, collective)
    return slowest is not None and slowest[0].domains > 1


def link_name(machine: Machine, is_network: bool) -> str:
    """`InfiniBand (400 Gb/s)` between hosts, `NVLink` within one, `ICI` within a slice."""
    if is_network:
        network = machine.network
        name = _NETWORKS.get(network.name, network.name)
        return f"{name} ({network.bandwidth * 8 / 1e9:,.3g} Gb/s)"
    return _INSIDE.get(machine.chip.link, NVLINK).removeprefix("exposed ")


def _moved(program: Program, instruction: Instruction) -> tuple[str, tuple[str, ...]]:
    """(what a collective moves, the names of the weights)."""
    arguments = moved_arguments(program, instruction)
    weights = [found for found in arguments if is_weight(found.op_name)]
    names = tuple(dict.fromkeys(parameter_name(found.op_name) for found in weights))
    is_sum = sums(instruction)
    if weights:
        return "gradients" if is_sum else "weights", names
    if arguments:
        return "arguments", ()
    phase = phase_of(program, instruction)
    if phase == "optimizer":
        return "values of the optimizer" if is_sum else "updated weights", ()
    where = scope(instruction.op_name)
    if where:
        return f"activations in {where}", ()
    # A sum may be of gradients whose way to their weights is not known.
    return "other values" if is_sum else "activations", ()


# Limits.


def _of_parts(
    times: Iterable[_Time], parts: dict[str, float], prediction: Prediction
) -> Iterator[Limit]:
    by_part: dict[str, list[_Time]] = defaultdict(list)
    for time in times:
        by_part[time.part].append(time)
    for part, us in parts.items():
        share = us / prediction.step_us
        own = by_part[part]
        if part in COMMUNICATION_PARTS:
            yield from _exposed(own, prediction.step_us)
        elif share >= NOTICEABLE:
            yield Limit(part, share, us, _text(part, own, us))


def _exposed(times: Iterable[_Time], step_us: float) -> Iterator[Limit]:
    groups: dict[tuple[str, str], list[_Time]] = defaultdict(list)
    for time in times:
        groups[time.detail, time.link].append(time)
    for (detail, link), own in groups.items():
        us = sum(time.us for time in own)
        if us / step_us >= NOTICEABLE:
            text = f"{detail}{_named(own)} over {link}{_looped(own, us)}"
            yield Limit(EXPOSED, us / step_us, us, text)


def _named(times: list[_Time]) -> str:
    """` (up, gate, query +3)`: the weights that take longest come first."""
    ordered = sorted(times, key=lambda time: -time.us)
    names = list(dict.fromkeys(name for time in ordered for name in time.names))
    if not names:
        return ""
    rest = len(names) - _MOST_NAMES
    return f" ({', '.join(names[:_MOST_NAMES])}{f' +{rest}' if rest > 0 else ''})"


def _looped(times: list[_Time], us: float) -> str:
    """`, in a loop × 32`, if most of the time is there."""
    loops: dict[int, float] = defaultdict(float)
    for time in times:
        if time.loop:
            loops[time.loop] += time.us
    most = max(loops, key=lambda count: loops[count], default=None)
    return f", in a loop × {most}" if most is not None and loops[most] > us / 2 else ""


def _text(part: str, times: list[_Time], us: float) -> str:
    """What a part consists of: `reduction 40%, elementwise 31%`."""
    if part == BUBBLE:
        details = dict.fromkeys(time.detail for time in times)
        return f"{', '.join(details)} have no microbatch to work on"
    shares: dict[str, float] = defaultdict(float)
    for time in times:
        shares[time.detail] += time.us
    most = sorted(shares.items(), key=lambda one: -one[1])[:3]
    listed = ", ".join(f"{name} {share / us:.0%}" for name, share in most)
    return f"{_MEANING[part]}: {listed}" if len(most) > 1 else _MEANING[part]


_MEANING = {
    PRODUCTS: "matrix products",
    ATTENTION: "fused attention",
    TRAFFIC: "kernels that move data through memory",
    OTHER_KERNELS: "kernels of custom calls",
    RECOMPUTATION: "values computed again for the backward pass",
    COPIES: "copies that no kernel hides",
    IDLE: "nothing runs on the device",
}


def _memory(prediction: Prediction) -> tuple[Limit, ...]:
    used, capacity = prediction.memory_bytes, prediction.memory_capacity_bytes
    if used is None or not capacity:
        return ()
    text = f"{format_bytes(used)} of {format_bytes(capacity)}"
    return (Limit(MEMORY, used / capacity, None, text),)

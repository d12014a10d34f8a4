"""Small collectives that could be combined: each pays its own latency.

all-gather.1 ▒█ all-gather.2 ▒█ all-gather.3 ▒█      ▒ latency    █ bytes
combined     ▒███
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.errors import BadInput
from slipstream.flags.thresholds.thresholds import (
    ALL_GATHER,
    ALL_REDUCE,
    REDUCE_SCATTER,
    thresholds,
)
from slipstream.machines.collectives import collective_time
from slipstream.machines.machine import Machine
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.units import format_bytes, format_time

NAME = "small-collectives"
FLAGS = {"all-gather": ALL_GATHER, "reduce-scatter": REDUCE_SCATTER, "all-reduce": ALL_REDUCE}
FEWEST = 3
"""minimum number of collectives of a kind for a finding"""
MIB = 1 << 20
STEP_BYTES = 32 * MIB
LARGE_BYTES = 1 << 30
EFFICIENT = 0.8
"""collectives that reach this share of a large one's bandwidth have nothing to gain"""
GUIDE = "https://docs.jax.dev/en/latest/gpu_performance_tips.html"


@dataclass(frozen=True)
class _Member:
    """One collective of a group that could be combined."""

    start: Instruction
    collective: Collective
    us: float
    """of one execution"""
    exposed_us: float
    """of one step"""
    times: int


def check(evidence: Evidence) -> RuleResults:
    """Groups of independent small collectives; one finding per kind."""
    program, machine = evidence.program, evidence.machine
    if program is None or not evidence.step.exposed_communication_us:
        return
    if machine is None:
        yield Abstention(NAME, f"{evidence.model or 'the device'} and its links are unknown")
        return
    groups: dict[str, list[list[_Member]]] = defaultdict(list)
    small = [one for one in _members(evidence, program) if _is_small(machine, one.collective)]
    for members in _groups(program, small):
        groups[members[0].collective.kind].append(members)
    for kind, found in groups.items():
        if sum(map(len, found)) >= FEWEST:
            yield from _finding(evidence, program, machine, kind, found)


def _finding(
    evidence: Evidence,
    program: Program,
    machine: Machine,
    kind: str,
    groups: list[list[_Member]],
) -> RuleResults:
    saved = sum(_saved_us(machine, group) for group in groups)
    exposed = sum(one.exposed_us for group in groups for one in group)
    most = min(saved, exposed)
    if most < evidence.noticeable_us:
        return
    count = sum(len(group) * group[0].times for group in groups)
    after = sum(group[0].times for group in groups)
    largest = max(sum(_counted(one) for one in group) for group in groups)
    change = _threshold(evidence, program, kind, largest)
    sizes = [one.collective.bytes for group in groups for one in group]
    yield Finding(
        NAME,
        title=f"many small {kind}s could be combined",
        evidence=f"{count} {kind}s per step, {format_bytes(min(sizes))} to "
        f"{format_bytes(max(sizes))} each, don't depend on each other and could be combined into "
        f"{after}. Together they are exposed for {format_time(exposed * 1e6)}.",
        gain=Gain(
            us=most,
            low_us=0.0,
            high_us=exposed,
            basis="modelled",
            why="what the NCCL model predicts that one large collective saves over many small "
            "ones; a combined collective waits for its last operand, so the result depends on the "
            "schedule",
        ),
        changes=(change,) if change is not None else _by_hand(kind),
        exhibits=_exhibits(evidence, groups),
        see="slipstream collectives PATH",
        sources=(GUIDE,),
    )


def _exhibits(evidence: Evidence, groups: list[list[_Member]]) -> tuple[Exhibit, ...]:
    members = sorted((one for group in groups for one in group), key=lambda one: -one.exposed_us)
    found = []
    for one in members[:MOST_EXHIBITS]:
        named = evidence.label(one.start)
        size = format_bytes(one.collective.bytes)
        found.append(
            Exhibit(
                one.start.name, one.us * one.times, one.times, named.source, named.description, size
            )
        )
    return tuple(found)


def _threshold(evidence: Evidence, program: Program, kind: str, largest: int) -> Remedy | None:
    """The threshold for one layer, if layers are known; otherwise for these collectives."""
    needed = -(-largest // STEP_BYTES) * STEP_BYTES
    note = f"fits the largest group, {format_bytes(largest)}, rounded up to 32 MiB"
    try:
        proposed = thresholds(program)
        figure = {ALL_GATHER: proposed.all_gather, REDUCE_SCATTER: proposed.reduce_scatter}
        if FLAGS[kind] in figure and figure[FLAGS[kind]].bytes >= needed:
            needed, note = figure[FLAGS[kind]].bytes, figure[FLAGS[kind]].basis
    except BadInput:
        pass  # without weights there are no layers: use the collectives' own sizes
    return evidence.flag(FLAGS[kind], str(needed), note)


def _by_hand(kind: str) -> tuple[Remedy, ...]:
    return (
        Remedy("code", f"# one {kind} of a concatenated array", "this jaxlib has no flag for it"),
    )


def _is_small(machine: Machine, collective: Collective) -> bool:
    """Whether latency dominates: a large collective of its kind has much more bandwidth."""
    large = replace(collective, bytes=LARGE_BYTES)
    us, large_us = (collective_time(machine, one).us for one in (collective, large))
    if not us or not large_us:
        return False
    return collective.bytes / us < EFFICIENT * LARGE_BYTES / large_us


def _saved_us(machine: Machine, group: list[_Member]) -> float:
    """Time per step of the separate collectives, minus that of the combined one."""
    parts = [collective_time(machine, one.collective).us for one in group]
    total = replace(group[0].collective, bytes=sum(one.collective.bytes for one in group))
    whole = collective_time(machine, total).us
    modelled, measured = sum(parts), sum(one.us for one in group)
    share = 1 - whole / modelled if modelled else 0.0
    return max(0.0, share * measured) * group[0].times


def _counted(one: _Member) -> int:
    """Bytes as XLA's combiners count them: of the result."""
    size = one.collective.group_size or 1
    bytes_ = one.collective.bytes
    return bytes_ // size if one.collective.kind == "reduce-scatter" else bytes_


def _members(evidence: Evidence, program: Program) -> list[_Member]:
    found = []
    steps = max(1, len(evidence.profile.steps))
    for op in evidence.overlap.collectives:
        start = evidence.start(op.instruction)
        collective = program.collective_of(start) if start is not None else None
        if start is None or collective is None or collective.kind not in FLAGS:
            continue
        times = program.executions(start.name) or round(op.count / steps) or 1
        us = op.per_step_us / times
        found.append(_Member(start, collective, us, op.exposed_us, times))
    return found


def _groups(program: Program, members: list[_Member]) -> Iterator[list[_Member]]:
    """Members that XLA could combine: same kind and type, one computation, independent."""
    alike: dict[object, list[_Member]] = defaultdict(list)
    for one in members:
        operands = program.operands(one.start)
        dtype = operands[0].shape.dtype if operands else ""
        key = (one.start.computation, one.collective.kind, one.collective.replica_groups, dtype)
        alike[key].append(one)
    for same in alike.values():
        yield from _independent(program, same)


def _independent(program: Program, members: list[_Member]) -> Iterator[list[_Member]]:
    """Group members, in schedule order, with earlier ones that they don't depend on."""
    if len(members) < 2:
        return
    computation = program.computations[members[0].start.computation]
    wanted = {one.start.name: number for number, one in enumerate(members)}
    needs: dict[str, int] = {}
    for instruction in computation.instructions:
        found = 0
        for name in (*instruction.operands, *instruction.control_predecessors):
            found |= needs.get(name, 0)
        if instruction.name in wanted:
            found |= 1 << wanted[instruction.name]
        needs[instruction.name] = found
    groups: list[list[_Member]] = []
    for one in sorted(members, key=lambda member: member.start.position):
        before = needs[one.start.name]
        for group in groups:
            if not any(before >> wanted[other.start.name] & 1 for other in group):
                group.append(one)
                break
        else:
            groups.append([one])
    yield from (group for group in groups if len(group) > 1)


RULE = Rule(NAME, "Could small collectives be combined?", check)

"""Host copies that command buffers serialise with the kernels.

with graphs     ████ copy ████ copy ████     inside a CUDA graph: one after the other
without         ████████████████             the copies overlap with the kernels
                  copy    copy
"""

from __future__ import annotations

from slipstream.diagnosis.evidence import SIMULATION_ERROR, Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.profile.program import Instruction
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.simulate.streams import SAME_SIDE, direction, is_copy
from slipstream.units import format_time

NAME = "host-copies"
FLAG = "xla_gpu_enable_command_buffer"
BESIDE_KERNELS = 2.78 / 2.43
"""slowdown of a host copy that overlaps with kernels, as recorded on an H200
(`simulate.engine.undisturbed`); inside a graph it runs alone"""


def captured(evidence: Evidence) -> list[Instruction]:
    """Asynchronous host copies of the program that ran inside graphs."""
    program = evidence.program
    if program is None or not evidence.in_graphs:
        return []
    found = []
    for start in program.scheduled:
        if not start.is_start or not is_copy(program, start):
            continue
        inner = program.wrapped(start.name) or start
        ran_in_graph = bool({start.name, inner.name} & evidence.in_graphs)
        if ran_in_graph and direction(program, start) != SAME_SIDE:
            found.append(start)
    return found


def explained(evidence: Evidence) -> frozenset[str]:
    """Copies that a finding of this rule already covers; other rules skip them."""
    if any(isinstance(one, Finding) for one in check(evidence)):
        return frozenset(start.name for start in captured(evidence))
    return frozenset()


def check(evidence: Evidence) -> RuleResults:
    """Simulate the step without CUDA graphs, so that the copies are not captured."""
    copies = captured(evidence)
    if not copies:
        return
    shown = _exhibits(evidence, copies)
    total_us = sum(one.us for one in shown)
    if total_us < evidence.noticeable_us:
        return
    if evidence.simulation_doubt:
        yield Abstention(NAME, evidence.simulation_doubt)
        return
    now = evidence.simulated(graphs=True)
    names = [start.name for start in copies]
    if not set(names) & now.simulation.inline:
        yield Abstention(
            NAME, "the simulation does not capture the copies that the recording shows in graphs"
        )
        return
    alone = now.profile_us - evidence.simulated(graphs=False).profile_us
    slowed = {name: evidence.estimates[name].us * BESIDE_KERNELS for name in names}
    expected = now.profile_us - evidence.simulated(graphs=False, costs=slowed).profile_us
    error = SIMULATION_ERROR * now.profile_us
    if expected < evidence.noticeable_us:
        return
    gain = Gain(
        us=expected,
        low_us=max(0.0, expected - error),
        high_us=max(alone, expected) + error,
        basis="simulated",
        why="the program simulated with and without CUDA graphs, with the recorded costs; copies "
        f"that overlap with kernels take {BESIDE_KERNELS:.2f} times as long as alone, and the mean "
        f"error of a simulated step is {SIMULATION_ERROR:.0%}",
    )
    yield Finding(
        NAME,
        title="host copies are serialised by command buffers",
        evidence=f"{len(copies)} asynchronous copies to and from host memory ran inside CUDA "
        f"graphs, serialised with the kernels: {format_time(total_us * 1e6)} of the step, "
        f"{_exposed(evidence, shown)}. Outside graphs they run on their own streams and can "
        "overlap with the kernels.",
        gain=gain,
        changes=_changes(evidence, copies),
        exhibits=shown[:MOST_EXHIBITS],
        see="slipstream overlap PATH",
        sources=("simulated; docs/accuracy.md shows this change measured on an H200",),
    )


def _exhibits(evidence: Evidence, copies: list[Instruction]) -> tuple[Exhibit, ...]:
    program = evidence.program
    assert program is not None
    steps = max(1, len(evidence.profile.steps))
    found = []
    for start in copies:
        inner = program.wrapped(start.name) or start
        op = evidence.op_by_name.get(inner.name) or evidence.op_by_name.get(start.name)
        if op is not None:
            times = round(op.count / steps)
            found.append(Exhibit(op.instruction, op.per_step_us, times, op.source, op.description))
    return tuple(sorted(found, key=lambda one: -one.us))


def _exposed(evidence: Evidence, shown: tuple[Exhibit, ...]) -> str:
    """How much of the copies was exposed in the recording."""
    names = {one.name for one in shown}
    total_us = sum(one.us for one in shown)
    exposed_us = sum(op.exposed_us for op in evidence.overlap.copies if op.instruction in names)
    if exposed_us >= 0.99 * total_us:
        return "all of it exposed"
    return f"{format_time(exposed_us * 1e6)} of it exposed"


def _changes(evidence: Evidence, copies: list[Instruction]) -> tuple[Remedy, ...]:
    note = "turns CUDA graphs off for the whole program; the gain includes the extra launches"
    changes = [evidence.flag(FLAG, "", note)]
    program = evidence.program
    if program is not None and any(program.loop_of(start.name) is not None for start in copies):
        changes.append(
            Remedy(
                "code",
                "jax.lax.scan(…, unroll=True)",
                "unrolled layers use copy-start, which graphs do not capture; compile time "
                "increases",
            )
        )
    return tuple(change for change in changes if change is not None)


RULE = Rule(NAME, "Do command buffers serialise host copies with the kernels?", check)

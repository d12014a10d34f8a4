"""Host copies that command buffers put in line with the kernels.

kernels     ████ copy ████ copy ████       inside a CUDA graph: one after the other
without     ████████████████                the copies run beside them
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
"""how much longer a host copy takes beside kernels than alone, as recorded on an H200
(simulate/contention.py): inside a graph it runs alone"""


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
    """Copies whose waits this rule has a finding for: no other rule needs to speak of them."""
    if any(isinstance(one, Finding) for one in check(evidence)):
        return frozenset(start.name for start in captured(evidence))
    return frozenset()


def check(evidence: Evidence) -> RuleResults:
    """What the step would take if graphs did not capture the copies: simulated."""
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
        yield Abstention(NAME, "the recording has copies in graphs that the simulation has not")
        return
    alone = now.profile_us - evidence.simulated(graphs=False).profile_us
    slowed = {name: evidence.estimates[name].us * BESIDE_KERNELS for name in names}
    expected = now.profile_us - evidence.simulated(graphs=False, costs=slowed).profile_us
    error = SIMULATION_ERROR * now.profile_us
    if expected < evidence.noticeable_us:
        return
    gain = Gain(
        expected,
        max(0.0, expected - error),
        max(alone, expected) + error,
        "simulated",
        "the program simulated with and without CUDA graphs, with the costs of the recording; "
        f"copies beside kernels take {BESIDE_KERNELS:.2f} times as long as alone, and a simulated "
        f"step is {SIMULATION_ERROR:.0%} off in the mean",
    )
    yield Finding(
        NAME,
        "host copies are serialised by command buffers",
        f"{len(copies)} asynchronous copies to and from host memory ran inside CUDA graphs, in "
        f"line with the kernels: {format_time(total_us * 1e6)} of the step, all of it exposed. "
        "Outside graphs they run on streams of their own, beside the kernels.",
        gain,
        _changes(evidence, copies),
        shown[:MOST_EXHIBITS],
        "slipstream overlap PATH",
        ("simulated; docs/accuracy.md has what was measured of this very change on an H200",),
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


def _changes(evidence: Evidence, copies: list[Instruction]) -> tuple[Remedy, ...]:
    note = "turns CUDA graphs off for the whole program; the gain counts the launches it adds"
    changes = [evidence.flag(FLAG, "", note)]
    program = evidence.program
    if program is not None and any(program.loop_of(start.name) is not None for start in copies):
        changes.append(
            Remedy(
                "code",
                "jax.lax.scan(…, unroll=True)",
                "unrolled layers are copied by copy-start, which graphs leave alone; compiles "
                "longer",
            )
        )
    return tuple(change for change in changes if change is not None)


RULE = Rule(NAME, "Do command buffers put host copies in line with the kernels?", check)

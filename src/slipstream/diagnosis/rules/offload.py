"""Values that are offloaded to host memory although the device has room for them."""

from __future__ import annotations

from slipstream.diagnosis.evidence import USABLE_MEMORY, Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.profile.program import Instruction
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.simulate.streams import SAME_SIDE, direction, is_copy
from slipstream.units import format_bytes, format_time

NAME = "offload"


def check(evidence: Evidence) -> RuleResults:
    """What the host copies cost, and whether they are needed."""
    exposed = [
        op for op in evidence.overlap.copies if op.category == "host copy" and op.exposed_us > 0
    ]
    total_us = sum(op.exposed_us for op in exposed)
    if total_us < evidence.noticeable_us:
        return
    free, memory = evidence.free_bytes, evidence.memory
    if free is None or memory is None:
        yield Abstention(NAME, "the program's memory use or the device's memory is unknown")
        return
    if memory.host_bytes > free or not memory.host_bytes:
        return
    starts = _host_copies(evidence)
    gain = _gain(evidence, starts, memory.host_bytes, total_us)
    yield Finding(
        NAME,
        title="values are offloaded to host memory although the device has room",
        evidence=f"{format_bytes(memory.host_bytes)} live in host memory; the program needs "
        f"{format_bytes(memory.peak_bytes)} of the {format_bytes(memory.peak_bytes + free)} that "
        f"JAX allocates on the device by default ({USABLE_MEMORY:.0%} of its memory). The copies "
        f"are exposed for {format_time(total_us * 1e6)} of the step.",
        gain=gain,
        changes=(
            Remedy(
                "code",
                "jax.checkpoint_policies.save_only_these_names(…)",
                "instead of save_and_offload_only_these_names: the same names, kept on the device",
            ),
        ),
        exhibits=tuple(
            Exhibit(op.instruction, op.exposed_us, 0, op.source, op.description, "exposed")
            for op in exposed[:MOST_EXHIBITS]
        ),
        see="slipstream memory PATH",
        sources=("https://docs.jax.dev/en/latest/notebooks/host-offloading.html",),
    )


def _host_copies(evidence: Evidence) -> list[Instruction]:
    program = evidence.program
    return [
        start
        for start in (program.scheduled if program is not None else ())
        if program is not None
        and start.is_start
        and is_copy(program, start)
        and direction(program, start) != SAME_SIDE
    ]


def _gain(
    evidence: Evidence, starts: list[Instruction], host_bytes: int, exposed_us: float
) -> Gain:
    most = exposed_us
    if not evidence.simulation_doubt and starts:
        gone = {start.name: 0.0 for start in starts}
        now = evidence.simulated().profile_us
        most = now - evidence.simulated(costs=gone).profile_us
    # Kept on the device, the values are written and read there instead.
    assert evidence.gpu is not None
    kept = 2 * host_bytes / evidence.gpu.memory_bandwidth * 1e6
    return Gain(
        us=max(0.0, most - kept),
        low_us=0.0,
        high_us=most,
        basis="simulated" if not evidence.simulation_doubt else "modelled",
        why="the step without the copies, minus writing and reading the values on the device; "
        "memory use comes from the program, and other users of the memory are unknown",
    )


RULE = Rule(NAME, "Are values offloaded although the device has room for them?", check)

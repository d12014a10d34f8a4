"""Values that go to host memory and back though the device has room for them."""

from __future__ import annotations

from slipstream.diagnosis.evidence import USABLE_MEMORY, Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.profile.program import Instruction
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.simulate.streams import SAME_SIDE, direction, is_copy
from slipstream.units import format_bytes, format_time

NAME = "offload"


def check(evidence: Evidence) -> RuleResults:
    """What the host copies of the step cost, and whether they are needed."""
    exposed = [
        op for op in evidence.overlap.copies if op.category == "host copy" and op.exposed_us > 0
    ]
    total_us = sum(op.exposed_us for op in exposed)
    if total_us < evidence.noticeable_us:
        return
    free, memory = evidence.free_bytes, evidence.memory
    if free is None or memory is None:
        yield Abstention(NAME, "the memory that the program needs, or the device has, is not known")
        return
    if memory.host_bytes > free or not memory.host_bytes:
        return
    starts = _host_copies(evidence)
    gain = _gain(evidence, starts, memory.host_bytes, total_us)
    yield Finding(
        NAME,
        "values are offloaded to host memory though the device has room",
        f"{format_bytes(memory.host_bytes)} live in host memory; the program needs "
        f"{format_bytes(memory.peak_bytes)} on the device, which has "
        f"{format_bytes(memory.peak_bytes + free)} for JAX ({USABLE_MEMORY:.0%} of its memory by "
        f"default). The copies are exposed for {format_time(total_us * 1e6)} of the step.",
        gain,
        (
            Remedy(
                "code",
                "jax.checkpoint_policies.save_only_these_names(…)",
                "in place of save_and_offload_only_these_names: the same names, kept on the device",
            ),
        ),
        tuple(
            Exhibit(op.instruction, op.exposed_us, 0, op.source, op.description, "exposed")
            for op in exposed[:MOST_EXHIBITS]
        ),
        "slipstream memory PATH",
        ("https://docs.jax.dev/en/latest/notebooks/host-offloading.html",),
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
        max(0.0, most - kept),
        0.0,
        most,
        "simulated" if not evidence.simulation_doubt else "modelled",
        "the step without the copies, less writing and reading the values on the device; memory "
        "is counted from the program, and what else needs it is not known",
    )


RULE = Rule(NAME, "Are values offloaded though the device has room for them?", check)

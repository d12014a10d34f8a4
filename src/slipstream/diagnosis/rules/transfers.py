"""Copies between host and device that belong to no known program, while nothing else runs.

Input that is not on the device when a step needs it, arrays that go back and forth, or a recording
without XLA's ranges, in which the copies of a program can't be told from others.
"""

from __future__ import annotations

from slipstream.analyses.labels import found_instruction
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Exhibit, Finding, Gain, Remedy
from slipstream.units import format_time

NAME = "transfers"


def check(evidence: Evidence) -> RuleResults:
    """The exposed time of host copies without an instruction; other rules know the rest."""
    profile = evidence.profile
    copies = [
        op
        for op in evidence.overlap.copies
        if op.category == "host copy"
        and found_instruction(profile, op.program, op.instruction) is None
    ]
    # Copies that run at once count once for the step.
    exposed_us = min(sum(op.exposed_us for op in copies), evidence.step.exposed_copy_us)
    if exposed_us < evidence.noticeable_us:
        return
    has_steps = profile.steps.basis != "recording"
    rows = max(1, len(profile.steps))
    yield Finding(
        NAME,
        title="the device waits for copies from and to host memory",
        evidence=f"For {format_time(exposed_us * 1e6)} of the "
        f"{'step' if has_steps else 'recording'} ({exposed_us / evidence.step.wall_us:.0%}), "
        "copies between host and device run and nothing else does. They belong to no instruction "
        "of a recorded program: input, results, or arrays that are not kept on the device.",
        gain=Gain(
            us=None,
            low_us=0.0,
            high_us=exposed_us,
            basis="bound",
            why="at most the time in which nothing but copies runs; how much compute could run "
            "beside them is unknown",
        ),
        changes=_changes(evidence),
        exhibits=tuple(
            Exhibit(op.instruction, op.exposed_us, round(op.count / rows), note="exposed")
            for op in copies[:MOST_EXHIBITS]
            if op.exposed_us
        ),
        see="slipstream overlap PATH",
        sources=("https://docs.jax.dev/en/latest/async_dispatch.html",),
    )


def _changes(evidence: Evidence) -> tuple[Remedy, ...]:
    keep = Remedy(
        "code",
        "next_batch = jax.device_put(…)  # before this step's results are awaited",
        "copies the next input while this step computes; keep everything else on the device, as "
        "jax.Array, between steps",
    )
    if not any(warning.code == "no-ranges" for warning in evidence.whole.warnings):
        return (keep,)
    record = Remedy(
        "command",
        "nsys profile --trace=cuda,nvtx …",
        "records XLA's ranges, which say to which instruction a copy belongs",
    )
    return (keep, record)


RULE = Rule(NAME, "Does the device wait for copies of no program?", check, needs_program=False)

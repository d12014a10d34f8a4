"""Problems between slices that Megascale's guide describes, found by `analyses.network`."""

from __future__ import annotations

from slipstream.analyses.network.network import network
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy

NAME = "megascale"


def check(evidence: Evidence) -> RuleResults:
    """One finding for each problem."""
    if not len(evidence.whole.transfers):
        return
    found = network(evidence.whole, slice_gbps=evidence.slice_gbps)
    if not len(evidence.whole.steps):
        yield Abstention(NAME, "no steps were found, so the steady state is unknown")
        return
    stalls = sorted(found.collectives, key=lambda one: -one.stall_us * one.occurrences)
    shown = tuple(
        Exhibit(
            one.name,
            one.stall_us,
            one.occurrences,
            one.source,
            one.moves or one.recv_done,
            "stalls",
        )
        for one in stalls[:MOST_EXHIBITS]
    )
    for problem in found.troubles:
        gain = Gain(
            us=None,
            low_us=0.0,
            high_us=min(problem.per_step_us, evidence.step.wall_us),
            basis="bound",
            why="at most the time during which the problem is visible",
        )
        change = (
            Remedy("setting", f"LIBTPU_INIT_ARGS={problem.flag}=BYTES", problem.remedy)
            if problem.flag
            else Remedy("code", "# see the note", problem.remedy)
        )
        yield Finding(
            f"{NAME}-{problem.code}",
            title=problem.title,
            evidence=problem.evidence,
            gain=gain,
            changes=(change,),
            exhibits=shown,
            see="slipstream network PATH",
            sources=(problem.source,),
        )


RULE = Rule(
    NAME,
    "Does the traffic between slices have a problem that Megascale's guide describes?",
    check,
    needs_gpu=False,
    needs_program=False,
)

"""Troubles between slices, as `analyses.network` finds them by Megascale's guide."""

from __future__ import annotations

from slipstream.analyses.network.network import network
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy

NAME = "megascale"


def check(evidence: Evidence) -> RuleResults:
    """Each trouble that the guide knows is one finding."""
    if not len(evidence.whole.transfers):
        return
    found = network(evidence.whole, slice_gbps=evidence.slice_gbps)
    if not len(evidence.whole.steps):
        yield Abstention(NAME, "no steps were found, so nothing can be said of the steady state")
        return
    stalls = sorted(found.collectives, key=lambda one: -one.stall_us * one.occurrences)
    shown = tuple(
        Exhibit(one.name, one.stall_us, one.occurrences, "", one.recv_done, "stalls")
        for one in stalls[:MOST_EXHIBITS]
    )
    for trouble in found.troubles:
        gain = Gain(
            None,
            0.0,
            min(trouble.per_step_us, evidence.step.wall_us),
            "bound",
            "no more than the time in which it shows",
        )
        change = (
            Remedy("setting", f"LIBTPU_INIT_ARGS={trouble.flag}=BYTES", trouble.remedy)
            if trouble.flag
            else Remedy("code", "# see the note", trouble.remedy)
        )
        yield Finding(
            f"{NAME}-{trouble.code}",
            trouble.title,
            trouble.evidence,
            gain,
            (change,),
            shown,
            "slipstream network PATH",
            (trouble.source,),
        )


RULE = Rule(
    NAME, "Does anything that Megascale's guide knows go wrong between slices?", check, False, False
)

"""`diagnose`: all rules over one profile, their findings by the time that they would win."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slipstream.costs.table import CostTable
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule
from slipstream.diagnosis.rules import (
    attention,
    collective_sizes,
    float32,
    host_copies,
    idling,
    megascale,
    offload,
    remat,
    scheduling,
    stragglers,
    wrong_results,
    zero_slack,
)
from slipstream.machines.machine import Machine
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import Abstention, Diagnosis, Finding

RULES: tuple[Rule, ...] = (
    wrong_results.RULE,
    host_copies.RULE,
    attention.RULE,
    float32.RULE,
    remat.RULE,
    offload.RULE,
    collective_sizes.RULE,
    scheduling.SCHEDULER_RULE,
    scheduling.COSTS_RULE,
    zero_slack.RULE,
    *idling.RULES,
    *stragglers.RULES,
    megascale.RULE,
)
"""every rule; their order says nothing"""


def diagnose(
    profile: Profile,
    *,
    costs: CostTable | None = None,
    settings: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    slice_gbps: float | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """What is wrong with the steps of a profile, ranked by the time to be won.

    `costs` are those that the run gave to XLA's scheduler (PGLE), to check them; `settings` are
    the flags that it was started with, by name, where the profile doesn't hold them;
    `machine` says how the GPUs are connected, which no profile does; `slice_gbps` is what the
    network between TPU slices carries for a host.
    """
    evidence = Evidence(
        profile, costs=costs, settings=settings, machine=machine, slice_gbps=slice_gbps
    )
    findings: list[Finding] = []
    abstained: list[Abstention] = []
    clear: list[str] = []
    for number, rule in enumerate(RULES):
        said = list(rule.apply(evidence)) if len(profile.events) else []
        findings += [one for one in said if isinstance(one, Finding)]
        abstained += [one for one in said if isinstance(one, Abstention)]
        if not said:
            clear.append(rule.name)
        if progress is not None:
            progress(number + 1, len(RULES))
    findings.sort(key=_rank)
    return Diagnosis(
        evidence.program_name,
        evidence.model,
        profile.steps.count if profile.steps.basis != "recording" else 0,
        evidence.step.wall_us,
        evidence.flags.catalogue.jaxlib_version,
        tuple(findings),
        tuple(abstained),
        tuple(clear),
        tuple(_notes(evidence)),
    )


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """What is wrong before what is slow; what can be counted on first, then what is expected.

    Where only the most is known, anything up to it is as likely: half of it counts.
    """
    gain = finding.gain
    likely = gain.us if gain.us is not None else (gain.high_us or 0.0) / 2
    return (not finding.is_wrong, -gain.low_us, -likely)


def _notes(evidence: Evidence) -> list[str]:
    notes = []
    if not len(evidence.whole.events):
        return ["the profile has no device events: there is nothing to diagnose"]
    if evidence.flags.note:
        notes.append(evidence.flags.note)
    if evidence.whole.steps.basis == "recording":
        notes.append("no steps were found: times are of the whole recording")
    if evidence.profile is not evidence.whole:
        kept, all_ = evidence.profile.steps.count, evidence.whole.steps.count
        notes.append(f"{kept} of {all_} steps were looked at in detail, from the middle")
    if any(warning.code == "simulated" for warning in evidence.whole.warnings):
        notes.append("these steps are simulated: gains are predictions on top of predictions")
    return notes

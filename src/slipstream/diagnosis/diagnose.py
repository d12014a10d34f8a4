"""`diagnose`: runs every rule on one profile and ranks the findings by the time they would save."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slipstream.analyses.hosts import FleetContext
from slipstream.costs.table import CostTable
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import Rule
from slipstream.diagnosis.rules import (
    attention,
    callbacks,
    collective_sizes,
    data_movement,
    float32,
    host_copies,
    idling,
    megascale,
    odd_shapes,
    offload,
    remat,
    resharding,
    scheduling,
    slice_transfers,
    stragglers,
    transfers,
    wrong_results,
    zero_slack,
)
from slipstream.machines.machine import Machine
from slipstream.profile.profile import Profile
from slipstream.profile.simulated import is_simulated
from slipstream.results.diagnosis import Abstention, Diagnosis, Finding

RULES: tuple[Rule, ...] = (
    wrong_results.RULE,
    host_copies.RULE,
    attention.RULE,
    float32.RULE,
    odd_shapes.RULE,
    *data_movement.RULES,
    remat.RULE,
    offload.RULE,
    transfers.RULE,
    resharding.RULE,
    collective_sizes.RULE,
    scheduling.SCHEDULER_RULE,
    scheduling.COSTS_RULE,
    zero_slack.RULE,
    *idling.RULES,
    callbacks.RULE,
    *stragglers.RULES,
    megascale.RULE,
    slice_transfers.RULE,
)
"""every rule, in no particular order"""


def diagnose(
    profile: Profile,
    *,
    costs: CostTable | None = None,
    settings: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    slice_gbps: float | None = None,
    fleet: FleetContext | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Diagnosis:
    """Find what is wrong with the steps of a profile, ranked by the time that fixing it would save.

    `costs` are the PGLE costs that the run gave to XLA's scheduler, to be checked. `settings` are
    the flags of the run by name, if the profile doesn't hold them. `machine` says how the GPUs
    are connected, which profiles don't record. `slice_gbps` is the bandwidth per host of the
    network between TPU slices. `fleet` is what is known of the run's other hosts, if the profile
    is of one of them.
    """
    evidence = Evidence(
        profile,
        costs=costs,
        settings=settings,
        machine=machine,
        slice_gbps=slice_gbps,
        fleet=fleet,
    )
    findings: list[Finding] = []
    abstained: list[Abstention] = []
    clear: list[str] = []
    # Rules compare with the length of the step, which is 0 in a recording of empty events.
    has_time = bool(len(profile.events)) and evidence.step.wall_us > 0
    for number, rule in enumerate(RULES):
        results = list(rule.apply(evidence)) if has_time else []
        findings += [one for one in results if isinstance(one, Finding)]
        abstained += [one for one in results if isinstance(one, Abstention)]
        if not results:
            clear.append(rule.name)
        if progress is not None:
            progress(number + 1, len(RULES))
    findings.sort(key=_rank)
    return Diagnosis(
        program=evidence.program_name,
        device=evidence.model,
        steps=profile.steps.count if profile.steps.basis != "recording" else 0,
        step_us=evidence.step.wall_us,
        jaxlib=evidence.flags.catalogue.jaxlib_version,
        findings=tuple(findings),
        abstained=tuple(abstained),
        clear=tuple(clear),
        notes=tuple(_notes(evidence)),
    )


def _rank(finding: Finding) -> tuple[bool, float, float]:
    """Wrong results first, then by the certain gain, then by the expected gain.

    Where only an upper bound is known, half of it counts as expected.
    """
    gain = finding.gain
    likely = gain.us if gain.us is not None else (gain.high_us or 0.0) / 2
    return (not finding.is_wrong, -gain.low_us, -likely)


def _notes(evidence: Evidence) -> list[str]:
    notes = [evidence.fleet.detail] if evidence.fleet is not None else []
    if not len(evidence.whole.events):
        return ["the profile has no device events, so there is nothing to diagnose"]
    if not evidence.step.wall_us > 0:
        return ["the device events of the profile take no time, so there is nothing to diagnose"]
    if evidence.flags.note:
        notes.append(evidence.flags.note)
    if evidence.whole.steps.basis == "recording":
        notes.append("no steps were found: times are for the whole recording")
    if evidence.profile is not evidence.whole:
        kept, all_ = evidence.profile.steps.count, evidence.whole.steps.count
        notes.append(f"{kept} of {all_} steps, from the middle, were analysed in detail")
    if is_simulated(evidence.whole):
        notes.append("these steps are simulated: gains are predictions based on predictions")
    return notes

"""Devices that make the others wait, and links that carry less than they could."""

from __future__ import annotations

from dataclasses import dataclass, replace

from slipstream.analyses.collectives import CollectiveRow, Straggler
from slipstream.diagnosis.evidence import Evidence
from slipstream.diagnosis.rule import MOST_EXHIBITS, Rule, RuleResults
from slipstream.machines.collectives import collective_time
from slipstream.machines.machine import Machine
from slipstream.results.diagnosis import Abstention, Exhibit, Finding, Gain, Remedy
from slipstream.units import format_bytes, format_time

STRAGGLER, LINKS = "straggler", "slow-links"
LARGE_BYTES = 16 << 20
"""collectives from which on bandwidth counts, and latency doesn't"""
SLOW = 4.0
"""a collective that takes this many times what the model says has a slow link, or waits"""


def check_straggler(evidence: Evidence) -> RuleResults:
    """The device that comes last, more often than by chance."""
    if not evidence.step.communication_us:
        return
    if len(evidence.profile.devices) < 2:
        yield Abstention(STRAGGLER, "one device was recorded: who waits for whom is not known")
        return
    found = evidence.collectives
    last = found.straggler
    if last is None:
        if not found.stragglers:
            yield Abstention(STRAGGLER, "no collective was recorded by two devices")
        return
    gain = _waiting(evidence, last)
    if gain.high_us is None or gain.high_us < evidence.noticeable_us:
        return
    slow = [
        row for row in evidence.hosts.slow if (row.device, row.host) == (last.device, last.host)
    ]
    computes = (
        f" It computes {format_time(slow[0].compute_us * 1e6)} a step, more than the others."
        if slow
        else " It computes no longer than the others: it starts late."
    )
    yield Finding(
        STRAGGLER,
        f"the others wait for {last.device} of {last.host}",
        f"it comes last to {last.last} of {last.meetings} collectives ({last.last_share:.0%}), and "
        f"the others wait {format_time(last.caused_us * 1e6)} a step for it.{computes}",
        gain,
        (
            Remedy(
                "command",
                "nvidia-smi -q -d PERFORMANCE,CLOCK",
                "on that host: a throttled clock, another job, a slower link"
                if slow
                else "on that host, and its input pipeline: it does the same work, later",
            ),
        ),
        tuple(
            Exhibit(row.instruction, row.wait_us or 0.0, 0, row.source, row.description, "waiting")
            for row in sorted(found.rows, key=lambda row: -(row.wait_us or 0.0))[:MOST_EXHIBITS]
            if row.wait_us
        ),
        "slipstream hosts PATH",
        ("docs/hosts.md",),
    )


def _waiting(evidence: Evidence, last: Straggler) -> Gain:
    """What the others wait for the last one while nothing computes.

    collective   ├── waits ──┤ moves ├       of what is exposed, at least what moving can't explain
    exposed          ░░░░░░░░░░░░            and at most the wait itself
    """
    found = evidence.collectives
    devices = len(found.stragglers)
    caused = sum(one.caused_us for one in found.stragglers)
    # Means over all devices hold the last one's, which waits for nobody.
    share = last.caused_us / caused * devices / max(1, devices - 1) if caused else 0.0
    low = high = 0.0
    for row in found.rows:
        if row.wait_us is not None:
            low += max(0.0, row.exposed_us + row.wait_us - row.per_step_us)
            high += min(row.exposed_us, row.wait_us)
    doubt = last.last * (found.alignment_us or 0.0) / max(found.steps, 1)
    high = min(share * high, last.caused_us)
    low = min(max(0.0, share * low - doubt), high)
    return Gain(
        (low + high) / 2,
        low,
        high,
        "measured",
        "the part of the waits in which nothing computes: at least what moving bytes can't "
        "explain, less what clocks may be off; at most all of the wait",
    )


def check_links(evidence: Evidence) -> RuleResults:
    """Large collectives that take much longer than the links need."""
    if evidence.step.exposed_communication_us < evidence.noticeable_us:
        return
    machine = evidence.machine
    if machine is None:
        yield Abstention(LINKS, f"{evidence.model or 'the device'} and its links are not known")
        return
    slow = _slow(evidence, machine)
    if evidence.stated_machine is None and slow:
        # How many GPUs share a host is not recorded: at worst, each has one of its own.
        apart = replace(machine, hosts=machine.devices, gpus_per_host=1, slices=1)
        sure = _slow(evidence, replace(apart, spec=f"{apart.hosts}x1x{apart.gpu.name}"))
        if not _exposed(sure) >= evidence.noticeable_us:
            if _exposed(slow) >= evidence.noticeable_us:
                yield Abstention(LINKS, _which_machine(machine))
            return
        slow, machine = sure, apart
    if _exposed(slow) >= evidence.noticeable_us:
        yield _slow_links(evidence, machine, slow)


def _which_machine(machine: Machine) -> str:
    return (
        f"collectives take over {SLOW:.0f} times what {machine.spec} needs, but not if each GPU "
        "has a host of its own; say how they are connected: --on"
    )


@dataclass(frozen=True)
class _Slow:
    row: CollectiveRow
    needs_us: float
    """of one execution, as modelled"""


def _slow(evidence: Evidence, machine: Machine) -> list[_Slow]:
    """Collectives that take several times what a machine's links need, the most exposed first."""
    found = []
    for row in evidence.collectives.rows:
        start = evidence.start(row.instruction)
        collective = start.collective if start is not None else None
        if collective is None or collective.bytes < LARGE_BYTES:
            continue
        needs = collective_time(machine, collective).us
        if needs and row.moving_us > SLOW * needs:
            found.append(_Slow(row, needs))
    return sorted(found, key=lambda one: -one.row.exposed_us)


def _exposed(slow: list[_Slow]) -> float:
    return sum(one.row.exposed_us for one in slow)


def _slow_links(evidence: Evidence, machine: Machine, slow: list[_Slow]) -> Finding:
    most = sum(one.row.exposed_us * (1 - one.needs_us / one.row.moving_us) for one in slow)
    worst = slow[0]
    group = worst.row.group_size or 0
    alone = worst.row.members_recorded < group
    assumed = "" if evidence.stated_machine is not None else ", even if no two share a host"
    waits = (
        f"{worst.row.members_recorded} of its {group} devices were recorded, so that waiting for "
        "the others can't be told from a slow link."
        if alone
        else "Waiting for other devices is not in it."
    )
    return Finding(
        LINKS,
        "large collectives take far longer than the links need",
        f"{len(slow)} collectives of {format_bytes(LARGE_BYTES)} and more take over {SLOW:.0f} "
        f"times what {machine.devices} {machine.gpu.name} should need{assumed}: "
        f"{worst.row.instruction} {format_time(worst.row.moving_us * 1e6)} for "
        f"{format_bytes(worst.row.bytes or 0)}, modelled {format_time(worst.needs_us * 1e6)}. "
        f"{waits}",
        Gain(
            None if alone else most,
            0.0,
            most,
            "bound" if alone else "modelled",
            "what is exposed, less the links' share of it as modelled",
        ),
        (
            Remedy(
                "setting",
                "NCCL_DEBUG=INFO",
                "says which network and links NCCL chose: NET/Socket in place of NET/IB, or no "
                "P2P, is what to look for",
            ),
        ),
        tuple(
            Exhibit(
                one.row.instruction,
                one.row.exposed_us,
                0,
                one.row.source,
                one.row.description,
                f"{(one.row.bus_bandwidth or 0) / 1e9:.3g} GB/s on the bus",
            )
            for one in slow[:MOST_EXHIBITS]
        ),
        "slipstream collectives PATH",
        ("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    )


RULES = (
    Rule(STRAGGLER, "Does one device make the others wait?", check_straggler, False, False),
    Rule(LINKS, "Do links carry far less than they could?", check_links),
)

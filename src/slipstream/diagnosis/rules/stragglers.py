"""Devices that make the others wait, and links far below their bandwidth."""

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
"""minimum size of collectives that are limited by bandwidth, not latency"""
SLOW = 4.0
"""a collective that takes this many times the modelled time has a slow link, or waits"""


def check_straggler(evidence: Evidence) -> RuleResults:
    """The device that arrives last more often than by chance."""
    if not evidence.step.communication_us:
        return
    if evidence.hosts.devices < 2:
        yield Abstention(
            STRAGGLER, "only one device was recorded, so waits between devices are unknown"
        )
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
    place = (last.device, last.host)
    slow = [one for one in evidence.hosts.slow if (one.row.device, one.row.host) == place]
    computes = (
        f" It computes for {format_time(slow[0].row.compute_us * 1e6)} per step, "
        f"{slow[0].excess:.0%} longer than the others."
        if slow
        else " It computes about as long as the others, so it starts late."
    )
    yield Finding(
        STRAGGLER,
        title=f"the other devices wait for {last.device} of {last.host}",
        evidence=f"It is the last to arrive at {last.last} of {last.meetings} collectives "
        f"({last.last_share:.0%}), and the others wait {format_time(last.caused_us * 1e6)} per "
        f"step for it.{computes}",
        gain=gain,
        changes=(
            Remedy(
                "command",
                "nvidia-smi -q -d PERFORMANCE,CLOCK",
                "on that host: look for a throttled clock, another job or a slower link"
                if slow
                else "on that host, and check its input pipeline: it does the same work, but later",
            ),
        ),
        exhibits=tuple(
            Exhibit(row.instruction, row.wait_us or 0.0, 0, row.source, row.description, "waiting")
            for row in sorted(found.rows, key=lambda row: -(row.wait_us or 0.0))[:MOST_EXHIBITS]
            if row.wait_us
        ),
        see="slipstream hosts PATH",
        sources=("docs/hosts.md",),
    )


def _waiting(evidence: Evidence, last: Straggler) -> Gain:
    """The time that the others wait for the last one with nothing to compute.

    collective   ├── waits ──┤ moves ├       at least: the exposed time that the transfer can't
    exposed          ░░░░░░░░░░░░            explain; at most: the whole wait
    """
    found = evidence.collectives
    devices = len(found.stragglers)
    caused = sum(one.caused_us for one in found.stragglers)
    # Means over all devices include the last one, which waits for nobody.
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
        us=(low + high) / 2,
        low_us=low,
        high_us=high,
        basis="measured",
        why="the part of the waits without compute: at least what the transfer can't explain, "
        "minus the clocks' uncertainty; at most the whole wait",
    )


def check_links(evidence: Evidence) -> RuleResults:
    """Large collectives that take much longer than modelled for the links."""
    if evidence.step.exposed_communication_us < evidence.noticeable_us:
        return
    machine = evidence.machine
    if machine is None:
        yield Abstention(LINKS, f"{evidence.model or 'the device'} and its links are unknown")
        return
    slow = _slow(evidence, machine)
    if evidence.stated_machine is None and slow:
        # The profile doesn't say how many GPUs share a host; in the worst case, none do.
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
        f"collectives take over {SLOW:.0f} times as long as modelled for {machine.spec}, but not "
        "if each GPU has its own host; specify how they are connected: --on"
    )


@dataclass(frozen=True)
class _Slow:
    row: CollectiveRow
    needs_us: float
    """of one execution, modelled"""


def _slow(evidence: Evidence, machine: Machine) -> list[_Slow]:
    """Collectives that take several times the modelled time, the most exposed first."""
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
    is_partial = worst.row.members_recorded < group
    assumed = "" if evidence.stated_machine is not None else ", even if no two of them share a host"
    waits = (
        f"Only {worst.row.members_recorded} of its {group} devices were recorded, so a slow link "
        "can't be distinguished from waiting for the others."
        if is_partial
        else "This excludes waiting for other devices."
    )
    return Finding(
        LINKS,
        title="large collectives take far longer than the links need",
        evidence=f"{len(slow)} collectives of at least {format_bytes(LARGE_BYTES)} take over "
        f"{SLOW:.0f} times as long as modelled for {machine.devices} {machine.chip.name}{assumed}: "
        f"{worst.row.instruction} moves {format_bytes(worst.row.bytes or 0)} in "
        f"{format_time(worst.row.moving_us * 1e6)}, modelled {format_time(worst.needs_us * 1e6)}. "
        f"{waits}",
        gain=Gain(
            us=None if is_partial else most,
            low_us=0.0,
            high_us=most,
            basis="bound" if is_partial else "modelled",
            why="the exposed time, minus what the links need according to the model",
        ),
        changes=(
            Remedy(
                "setting",
                "NCCL_DEBUG=INFO",
                "logs which network and links NCCL chose: look for NET/Socket instead of NET/IB, "
                "or for missing P2P",
            ),
        ),
        exhibits=tuple(
            Exhibit(
                one.row.instruction,
                one.row.exposed_us,
                0,
                one.row.source,
                one.row.description,
                f"{(one.row.bus_bandwidth or 0) / 1e9:.3g} GB/s bus bandwidth",
            )
            for one in slow[:MOST_EXHIBITS]
        ),
        see="slipstream collectives PATH",
        sources=("https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html",),
    )


RULES = (
    Rule(STRAGGLER, "Does one device make the others wait?", check_straggler, False, False),
    Rule(LINKS, "Do links carry far less than their bandwidth allows?", check_links),
)

"""Network: bandwidth over time on every kind of link, against its capacity, and known problems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.analyses.network.flows import (
    DCN,
    HOST,
    ICI,
    LINK,
    NETWORK,
    Flow,
    device_flows,
    machine_of,
    predicted_machine,
    transfer_flows,
)
from slipstream.analyses.network.guide import GuideAnswer, guide_answers, joined_answers, usage_text
from slipstream.analyses.network.latency import Latency, arrivals, latency
from slipstream.analyses.network.links import BINS, Link, Region, Series, StepsWindow, capacity_of
from slipstream.analyses.network.problems import NetworkEvidence, NetworkProblem, network_problems
from slipstream.analyses.network.slack import Senders, SliceCollective, slice_collectives
from slipstream.errors import BadInput
from slipstream.inline import Inline
from slipstream.machines.jitter import slowest
from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slices_of
from slipstream.profile.profile import Profile
from slipstream.profile.simulated import is_simulated, simulated_machine
from slipstream.units import format_bytes

_CLOSE = 0.05
"""published capacities and recorded times are only this exact"""


@dataclass(frozen=True)
class Network(Inline):
    """What the links carried over time."""

    steps: int
    step_us: float
    bin_us: float
    machine: str
    """the machine that capacities were taken from; empty if unknown"""
    series: tuple[Series, ...]
    regions: tuple[Region, ...]
    """by exposed time, longest first"""
    latency: Latency | None
    """of transfers between slices; None if there are none"""
    collectives: tuple[SliceCollective, ...]
    """between slices, longest stall first"""
    troubles: tuple[NetworkProblem, ...]
    guide: tuple[GuideAnswer, ...]
    """the questions of Megascale's guide, in its order; empty without anything between slices"""
    notes: tuple[str, ...]
    """what the figures assume, and what is unknown"""

    @property
    def hides_by_latency(self) -> bool:
        """Whether the latency is known up to which each collective is hidden: of a prediction."""
        return any(one.hidden_to_latency_us is not None for one in self.collectives)


def network(
    profile: Profile, machine: Machine | None = None, slice_gbps: float | None = None
) -> Network:
    """What the links carried, and what they could carry.

    `machine` says how GPUs are connected, which profiles don't record; `slice_gbps` is the rate of
    a host's network between slices, in one direction.
    """
    assumed = machine or machine_of(profile)
    window = StepsWindow(profile)
    flows = [window.cut(flow) for flow in device_flows(profile, assumed) + transfer_flows(profile)]
    flows = [flow for flow in flows if len(flow.start_ps)]
    stated = slice_gbps * 1e9 / 8 if slice_gbps else None
    capacity = capacity_of(DCN, assumed, stated)[0]
    simulated = is_simulated(profile)
    series: list[Series] = []
    regions: list[Region] = []
    full: list[list[float]] = []
    for link, direction in sorted({(flow.link, flow.direction) for flow in flows}):
        own = [flow for flow in flows if (flow.link, flow.direction) == (link, direction)]
        one = Link(profile, window, own, *capacity_of(link, assumed, stated))
        series.append(one.series())
        regions += one.regions()
        full += one.full.tolist() if link == DCN else []
    slices = _slices(profile)
    senders = _senders(profile, assumed if machine is not None or simulated else None, stated)
    collectives = slice_collectives(profile, slices, senders)
    arrived = arrivals(profile, window.start, window.end)
    evidence = NetworkEvidence(
        profile=profile,
        start_ps=window.start,
        end_ps=window.end,
        steps=profile.steps.count,
        step_us=window.step_us,
        collectives=collectives,
        arrivals=arrived,
        capacity=capacity,
        saturated=sorted((start, end) for start, end in full),
        senders=senders,
        is_simulated=simulated,
    )
    is_sliced = bool(len(profile.transfers)) or simulated
    troubles = network_problems(evidence) if is_sliced else ()
    percentiles = latency(arrived, window.edges)
    return Network(
        steps=profile.steps.count if profile.steps.basis != "recording" else 0,
        step_us=window.step_us,
        bin_us=(window.end - window.start) / BINS / 1e6,
        machine=assumed.spec if assumed is not None else "",
        series=tuple(series),
        regions=tuple(sorted(regions, key=lambda region: (-region.exposed_us, region.start_us))),
        latency=percentiles,
        collectives=collectives,
        troubles=troubles,
        guide=guide_answers(evidence, troubles, percentiles, _usage(series)),
        notes=(*_notes(profile, machine, assumed, flows, stated), *_too_fast(series)),
    )


def with_prediction(
    profile: Profile,
    predicted: Profile,
    machine: Machine | None = None,
    slice_gbps: float | None = None,
) -> Network:
    """Like `network`; questions of the guide that it leaves open are answered by a prediction.

    Without `machine`, it is the one that the prediction was made for.
    """
    if not is_simulated(predicted):
        raise BadInput(
            "the profile given as the prediction is a recording; write one with: slipstream "
            "predict TARGET --on 2xv5e-256 --timeline FILE"
        )
    ran, compiled = _program_names(profile), _program_names(predicted)
    if not ran & compiled:
        raise BadInput(
            f"the prediction is of {', '.join(sorted(compiled)) or 'no program'}, and the profile "
            f"is of {', '.join(sorted(ran)) or 'no program'}; predict the program that was recorded"
        )
    machine = machine or predicted_machine(predicted)
    found = network(profile, machine, slice_gbps)
    other = network(predicted, machine, slice_gbps)
    return replace(found, guide=joined_answers(found.guide, other.guide))


def _senders(profile: Profile, machine: Machine | None, stated: float | None) -> Senders:
    """What carries the transfers; `stated` are bytes per second of a host's network."""
    if machine is None or machine.kind != "tpu":
        machine = None
    elif stated is not None:
        fabric = replace(machine.network, bandwidth=stated / machine.gpus_per_host)
        machine = replace(machine, network=fabric)
    if is_simulated(profile) and machine is not None:
        return Senders(machine.gpus_per_host, machine, slowest(machine), is_predicted=True)
    # A simulation shows one of a host's devices, a recording all of them.
    devices = max(Counter(device.host for device in profile.devices).values(), default=1)
    return Senders(devices, machine)


def _program_names(profile: Profile) -> set[str]:
    """Names of the programs that ran, without their numbers."""
    texts = profile.events.texts
    names = (texts[i] for i in np.unique(profile.events["program"]).tolist())
    return {name.partition("(")[0] for name in names if name}


def _usage(series: Sequence[Series]) -> str:
    """What the network between slices carried, in the busier direction."""
    own = [one for one in series if one.link == DCN]
    if not own:
        return "nothing between slices is in the steps"
    one = max(own, key=lambda each: each.mean)
    return usage_text(one.per_step_bytes, one.mean, one.peak, one.capacity)


def _slices(profile: Profile) -> int | None:
    """Number of slices that take part in transfers, as recorded or as the program says."""
    table = profile.transfers
    rows = np.flatnonzero(table["has_ids"])
    if not len(rows):
        stated = (
            slices_of(send)
            for name in profile.programs
            for send in profile.programs[name].scheduled
            if is_slice_transfer(send)
        )
        return max((count for count in stated if count), default=None)
    columns = [table[name][rows] for name in ("source_slice", "destination_slice")]
    return len(np.unique(np.concatenate(columns)))


def _has_tpus(profile: Profile) -> bool:
    return any(device.kind == "tpu" for device in profile.devices)


def _too_fast(series: Sequence[Series]) -> Iterator[str]:
    """Rates that a link can't carry: then its capacity, or the counted bytes, are wrong."""
    for one in series:
        if one.capacity is not None and one.peak > one.capacity * (1 + _CLOSE):
            yield (
                f"{one.link}, {one.direction}: {format_bytes(one.peak)}/s at the busiest moment is "
                f"more than the {format_bytes(one.capacity)}/s of {one.capacity_of}; either the "
                "link is another one (name the machine with --on), or not all bytes counted from "
                "the program crossed it"
            )


def _notes(
    profile: Profile,
    given: Machine | None,
    assumed: Machine | None,
    flows: Sequence[Flow],
    slices: float | None,
) -> list[str]:
    links = {flow.link for flow in flows}
    notes = []
    if not flows:
        notes.append("nothing in the steps moves bytes between devices or to host memory")
    is_guess = given is None and simulated_machine(profile) is None
    if links & {LINK, ICI, NETWORK} and is_guess and assumed is not None:
        notes.append(
            f"assuming {assumed.spec}: profiles don't record how many GPUs share a host; name the "
            "machine with --on"
        )
    if links & {LINK, ICI, NETWORK, HOST} and assumed is None:
        kind = "TPU slice" if _has_tpus(profile) else "GPU"
        notes.append(f"this {kind} is unknown, and so are its links; name the machine with --on")
    is_stated = assumed is not None and assumed.kind == "tpu"
    if DCN in links and slices is None and not is_stated:
        notes.append(
            "profiles don't record the rate of the network between slices; set it with "
            "--slice-gbps to also find bandwidth-bound regions and slow transfers"
        )
    if len(profile.transfers) and not len(profile.steps):
        notes.append("no steps were found, so nothing can be said about the steady state")
    return notes

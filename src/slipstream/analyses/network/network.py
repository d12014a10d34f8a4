"""Network: bandwidth over time on every kind of link, against its capacity, and known problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

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
    transfer_flows,
)
from slipstream.analyses.network.latency import Latency, arrivals, latency
from slipstream.analyses.network.links import BINS, Link, Region, Series, StepsWindow, capacity_of
from slipstream.analyses.network.problems import NetworkEvidence, NetworkProblem, network_problems
from slipstream.analyses.network.slack import SliceCollective, slice_collectives
from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slices_of
from slipstream.profile.profile import Profile
from slipstream.units import format_bytes

_CLOSE = 0.05
"""published capacities and recorded times are only this exact"""


@dataclass(frozen=True)
class Network:
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
    notes: tuple[str, ...]
    """what the figures assume, and what is unknown"""


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
    capacity = slice_gbps * 1e9 / 8 if slice_gbps else None
    series: list[Series] = []
    regions: list[Region] = []
    full: list[list[float]] = []
    for link, direction in sorted({(flow.link, flow.direction) for flow in flows}):
        own = [flow for flow in flows if (flow.link, flow.direction) == (link, direction)]
        one = Link(profile, window, own, *capacity_of(link, assumed, capacity))
        series.append(one.series())
        regions += one.regions()
        full += one.full.tolist() if link == DCN else []
    slices = _slices(profile)
    collectives = slice_collectives(profile, slices)
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
    )
    is_sliced = bool(len(profile.transfers))
    return Network(
        steps=profile.steps.count if profile.steps.basis != "recording" else 0,
        step_us=window.step_us,
        bin_us=(window.end - window.start) / BINS / 1e6,
        machine=assumed.spec if assumed is not None else "",
        series=tuple(series),
        regions=tuple(sorted(regions, key=lambda region: (-region.exposed_us, region.start_us))),
        latency=latency(arrived, window.edges),
        collectives=collectives,
        troubles=network_problems(evidence) if is_sliced else (),
        notes=(*_notes(profile, machine, assumed, flows, capacity), *_too_fast(profile, series)),
    )


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


def _too_fast(profile: Profile, series: Sequence[Series]) -> Iterator[str]:
    """Rates that a link can't carry: then its capacity, or the counted bytes, are wrong.

    Simulated transfers share the links of a TPU at rates that change, and are drawn at their mean.
    """
    is_simulated = any(warning.code == "simulated" for warning in profile.warnings)
    for one in series:
        if is_simulated and one.link in (DCN, ICI):
            continue
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
    if links & {LINK, ICI, NETWORK} and given is None and assumed is not None:
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

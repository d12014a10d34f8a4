"""How long a collective takes on a machine: calibrated if possible, otherwise modelled.

replica groups ──► participants and hosts ──┬──► the NCCL model (`nccl`)
                                            └──► the machine's calibration curves, interpolated
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.nccl import (
    ALL_GATHER,
    ALL_REDUCE,
    KINDS,
    REDUCE_SCATTER,
    TRANSFERS,
    Choice,
    Group,
    NcclLinks,
    nccl_time,
)
from slipstream.machines.tpu.torus import torus_estimate
from slipstream.profile.program import Collective, Instruction
from slipstream.units import format_bytes

KIND = "collective"
FAMILIES = {8: "nvlink3", 9: "nvlink4"}
"""NVLink generation by major compute capability; newer ones are `nvlink5`"""
OLDEST_NVLINK = 8

SAMPLE_SIZES = (2**20, 2**25, 2**30)
SAMPLE_KINDS = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, "all-to-all")


@dataclass(frozen=True)
class CollectiveCurve:
    """Measured times of one kind of collective, by size, smallest first."""

    kind: str
    group: Group
    bytes: tuple[int, ...]
    us: tuple[float, ...]
    source: str = ""


@dataclass(frozen=True)
class CollectiveSample:
    """One collective of one size."""

    kind: str
    group: int
    bytes: int
    estimate: Estimate


@dataclass(frozen=True)
class MachineOverview:
    """A machine, and how long its collectives take."""

    machine: Machine
    samples: tuple[CollectiveSample, ...]


def collective_time(
    machine: Machine,
    collective: Collective,
    instruction: Instruction | None = None,
    program_devices: int | None = None,
) -> Estimate:
    """The time of one execution: of its slowest group, if all participants arrive at once."""
    if machine.kind == "tpu":
        return torus_estimate(machine, collective, instruction)
    found = slowest_group(machine, collective, program_devices)
    if found is None:
        return Estimate(0.0, "modelled", KIND, "no data to move")
    return found[1]


def slowest_group(
    machine: Machine, collective: Collective, program_devices: int | None = None
) -> tuple[Group, Estimate] | None:
    """The group that takes longest, and its time; None if there is nothing to move."""
    groups = groups_of(machine, collective, program_devices or machine.devices)
    if not groups or collective.bytes == 0:
        return None
    found = [(group, _of_group(machine, collective, group)) for group in groups]
    return max(found, key=lambda one: one[1].us)


def chosen(machine: Machine, collective: Collective, group: Group) -> Choice:
    """The algorithm that NCCL would use, by the model."""
    kind = collective.kind if collective.kind in KINDS else "all-to-all"
    return nccl_time(kind, collective.bytes, group, links_of(machine))


def links_of(machine: Machine) -> NcclLinks:
    """A machine's links, for the NCCL model."""
    gpu, network = machine.gpu, machine.network
    family = "pcie" if gpu.link == "pcie" else _family(gpu.compute_capability[0])
    return NcclLinks(
        family=family,
        link_bandwidth=gpu.link_bandwidth,
        network_bandwidth=network.bandwidth,
        network_latency_us=network.latency_us,
        has_nvls=gpu.link == "nvswitch",
        domains=machine.domain_of(machine.devices - 1) + 1,
    )


def curves_of(machine: Machine) -> list[CollectiveCurve]:
    """The machine's calibration curves."""
    stated = machine.calibration.get("collectives", ())
    return [curve_from(item) for item in stated] if isinstance(stated, Sequence) else []


def curve_from(item: Mapping[str, Any]) -> CollectiveCurve:
    """A curve from a machine file; raises ValueError, KeyError or TypeError if invalid."""
    points = sorted(zip(item["bytes"], item["us"], strict=True))
    if not points or not all(0 < size < 1 << 60 and 0 < us < 1e15 for size, us in points):
        raise ValueError("sizes and times must be present and positive")
    if not 1 <= int(item.get("hosts", 1)) <= int(item["group"]) <= 1 << 20:
        raise ValueError("a group of at least one device, on no more hosts than it has devices")
    return CollectiveCurve(
        kind=str(item["kind"]),
        group=Group(int(item["group"]), int(item.get("hosts", 1))),
        bytes=tuple(int(size) for size, _ in points),
        us=tuple(float(us) for _, us in points),
        source=str(item.get("source", "")),
    )


def _of_group(machine: Machine, collective: Collective, group: Group) -> Estimate:
    if group.size == 1:
        return _alone(machine, collective)
    kind = collective.kind if collective.kind in KINDS else "all-to-all"
    choice = chosen(machine, collective, group)
    curves = [curve for curve in curves_of(machine) if curve.kind == kind]
    same = next((curve for curve in curves if curve.group == group), None)
    if same is not None:
        us = _on_curve(machine, same, collective.bytes)
        return Estimate(
            us, "calibrated", KIND, f"{_what(machine, collective, group)}, from {same.source}"
        )
    near = _nearest_curve(curves or curves_of(machine), group)
    why = _why(machine, collective, group, choice)
    if near is None:
        basis = "modelled" if collective.kind in KINDS else "default"
        return Estimate(choice.us, basis, KIND, why)
    factor = _on_curve(machine, near, collective.bytes) / _model(machine, near, collective.bytes)
    why += f" × {factor:.2f}, from {near.source}"
    return Estimate(choice.us * factor, "modelled", KIND, why)


def _alone(machine: Machine, collective: Collective) -> Estimate:
    """A group of one device: its data is read and written once."""
    us = 1e6 * 2 * collective.bytes / machine.gpu.memory_bandwidth
    return Estimate(us, "modelled", KIND, f"{format_bytes(collective.bytes)}, one GPU: a copy")


def _on_curve(machine: Machine, curve: CollectiveCurve, size: int) -> float:
    """Log-linear interpolation between points; beyond the ends, the shape of the model."""
    nearest = min(max(size, curve.bytes[0]), curve.bytes[-1])
    us = _interpolated(curve, nearest)
    if nearest != size:
        us *= _model(machine, curve, size) / _model(machine, curve, nearest)
    return us


def _interpolated(curve: CollectiveCurve, size: int) -> float:
    for low in range(len(curve.bytes) - 1):
        first, second = curve.bytes[low], curve.bytes[low + 1]
        if first <= size <= second and second > first:
            share = math.log(size / first) / math.log(second / first)
            logs = math.log(curve.us[low]), math.log(curve.us[low + 1])
            return math.exp(logs[0] + share * (logs[1] - logs[0]))
    return curve.us[curve.bytes.index(size)]


def _model(machine: Machine, curve: CollectiveCurve, size: int) -> float:
    return nccl_time(curve.kind, size, curve.group, links_of(machine)).us


def _nearest_curve(curves: Iterable[CollectiveCurve], group: Group) -> CollectiveCurve | None:
    """The curve with the most similar group size, also within or across hosts."""
    alike = [curve for curve in curves if (curve.group.domains > 1) == (group.domains > 1)]
    return min(alike, key=lambda curve: abs(math.log(curve.group.size / group.size)), default=None)


def groups_of(machine: Machine, collective: Collective, devices: int) -> list[Group]:
    """The distinct groups that take part."""
    if collective.kind in TRANSFERS:
        return _pairs(machine, collective)
    if not collective.replica_groups:
        count = collective.group_size or devices
        return [Group(count, machine.domain_of(count - 1) + 1)]
    found = {
        Group(len(group), len({machine.domain_of(device) for device in group}))
        for group in collective.replica_groups
        if group
    }
    return sorted(found, key=lambda group: (group.size, group.domains))


def _pairs(machine: Machine, collective: Collective) -> list[Group]:
    """Transfers within hosts, and between hosts if any pair of the permutation crosses them."""
    pairs = collective.source_target_pairs
    if not pairs:
        return [Group(2, 1 if machine.devices <= machine.link_domain else 2)]
    found = {
        Group(2, 1 if machine.domain_of(source) == machine.domain_of(target) else 2)
        for source, target in pairs
        if source != target
    }
    return sorted(found, key=lambda group: group.domains)


def _family(major: int) -> str:
    return FAMILIES.get(max(major, OLDEST_NVLINK), "nvlink5")


def _what(machine: Machine, collective: Collective, group: Group) -> str:
    noun = "racks" if machine.link_domain > machine.gpus_per_host else "hosts"
    hosts = f" in {group.domains} {noun}" if group.domains > 1 else ""
    return f"{format_bytes(collective.bytes)}, {group.size} GPUs{hosts}"


def _why(machine: Machine, collective: Collective, group: Group, choice: Choice) -> str:
    over = machine.network.name if group.domains > 1 else machine.gpu.link
    rate = collective.bytes / choice.us / 1e3
    return (
        f"{_what(machine, collective, group)}: {choice.algorithm} ({choice.protocol}) over {over}, "
        f"{rate:.3g} GB/s"
    )


def overview(machine: Machine) -> MachineOverview:
    """Sample times of collectives: within a host, and over all GPUs if there are more."""
    if machine.kind == "tpu":
        return MachineOverview(machine, ())
    groups = dict.fromkeys((min(machine.gpus_per_host, machine.devices), machine.devices))
    samples = [
        CollectiveSample(
            kind, group, size, collective_time(machine, _sample_collective(kind, size, group))
        )
        for group in groups
        if group > 1
        for kind in SAMPLE_KINDS
        for size in SAMPLE_SIZES
    ]
    return MachineOverview(machine, tuple(samples))


def _sample_collective(kind: str, size: int, group: int) -> Collective:
    return Collective(kind, size, group, (tuple(range(group)),))

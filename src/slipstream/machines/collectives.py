"""How long a collective takes on a machine: measured where it was calibrated, else modelled.

replica groups ──► who takes part, in how many hosts ──► NCCL's model (`nccl`)
                                                    └──► curves of the machine's own, between
                                                         whose points we interpolate
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.nccl import KINDS, TRANSFERS, Choice, Group, Links, nccl_time
from slipstream.profile.program import Collective, Instruction
from slipstream.units import format_bytes

KIND = "collective"
FAMILIES = {8: "nvlink3", 9: "nvlink4"}
"""generation of NVLink by the major compute capability; newer ones are `nvlink5`"""
OLDEST_NVLINK = 8


@dataclass(frozen=True)
class CollectiveCurve:
    """Measured times of one collective by size, smallest first."""

    kind: str
    group: Group
    bytes: tuple[int, ...]
    us: tuple[float, ...]
    source: str = ""


def collective_time(
    machine: Machine,
    collective: Collective,
    instruction: Instruction | None = None,
    program_devices: int | None = None,
) -> Estimate:
    """One execution of a collective, its slowest group, with everybody there at once."""
    del instruction  # what a collective costs doesn't depend on where it stands
    groups = groups_of(machine, collective, program_devices or machine.devices)
    if not groups or collective.bytes == 0:
        return Estimate(0.0, "modelled", KIND, "nothing to move")
    found = [_of_group(machine, collective, group) for group in groups]
    return max(found, key=lambda estimate: estimate.us)


def links_of(machine: Machine) -> Links:
    """A machine as NCCL's model sees it."""
    gpu, network = machine.gpu, machine.network
    family = "pcie" if gpu.link == "pcie" else _family(gpu.compute_capability[0])
    return Links(
        family=family,
        link_bandwidth=gpu.link_bandwidth,
        network_bandwidth=network.bandwidth,
        network_latency_us=network.latency_us,
        has_nvls=gpu.link == "nvswitch",
    )


def curves_of(machine: Machine) -> list[CollectiveCurve]:
    """The curves of the machine's calibration."""
    stated = machine.calibration.get("collectives", ())
    return [curve_from(item) for item in stated] if isinstance(stated, Sequence) else []


def curve_from(item: Mapping[str, Any]) -> CollectiveCurve:
    """A curve as a machine file has it; ValueError, KeyError or TypeError where it is none."""
    points = sorted(zip(item["bytes"], item["us"], strict=True))
    if not points or min(min(size, us) for size, us in points) <= 0:
        raise ValueError("sizes and times must be there, and positive")
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
    choice = nccl_time(kind, collective.bytes, group, links_of(machine))
    curves = [curve for curve in curves_of(machine) if curve.kind == kind]
    same = next((curve for curve in curves if curve.group == group), None)
    if same is not None:
        us = _on_curve(machine, same, collective.bytes)
        return Estimate(
            us, "calibrated", KIND, f"{_what(machine, collective, group)}, as {same.source}"
        )
    near = _nearest_curve(curves or curves_of(machine), group)
    why = _why(machine, collective, group, choice)
    if near is None:
        basis = "modelled" if collective.kind in KINDS else "default"
        return Estimate(choice.us, basis, KIND, why)
    factor = _on_curve(machine, near, collective.bytes) / _model(machine, near, collective.bytes)
    why += f" × {factor:.2f}, as {near.source}"
    return Estimate(choice.us * factor, "modelled", KIND, why)


def _alone(machine: Machine, collective: Collective) -> Estimate:
    """A group of one: its data is read and written once."""
    us = 1e6 * 2 * collective.bytes / machine.gpu.memory_bandwidth
    return Estimate(us, "modelled", KIND, f"{format_bytes(collective.bytes)}, one GPU: a copy")


def _on_curve(machine: Machine, curve: CollectiveCurve, size: int) -> float:
    """Between two points a straight line in logarithms; beyond the ends the model's shape."""
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
    """The curve whose group is most like this one, inside hosts or across them as it is."""
    alike = [curve for curve in curves if (curve.group.domains > 1) == (group.domains > 1)]
    return min(alike, key=lambda curve: abs(math.log(curve.group.size / group.size)), default=None)


def groups_of(machine: Machine, collective: Collective, devices: int) -> list[Group]:
    """The kinds of group that take part, each once."""
    if collective.kind in TRANSFERS:
        return _pairs(machine, collective)
    members = collective.replica_groups
    if not members:
        count = collective.group_size or devices
        members = (tuple(range(count)),)
    found = {
        Group(len(group), len({machine.domain_of(device) for device in group}))
        for group in members
        if group
    }
    return sorted(found, key=lambda group: (group.size, group.domains))


def _pairs(machine: Machine, collective: Collective) -> list[Group]:
    """A transfer inside hosts, or between them if any pair of the permutation does that."""
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

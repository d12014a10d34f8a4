"""Collectives over the links between chips of a slice (ICI): a torus of two or three axes.

    ┌─► 0 ◄──► 1 ◄──► 2 ◄──► 3 ◄─┐      a full axis wraps around: each chip receives from both sides
    └────────────────────────────┘
        0 ◄──► 1 ◄──► 2 ◄──► 3          part of an axis: the last chip receives from one side only

A group of chips spans a box of the torus, and its collective uses all axes of the box at once, each
for a part of the data. With W the sum of what a chip can receive along these axes, and V the whole
result of an all-gather (the operand of a reduce-scatter) of N chips:

    all-gather, reduce-scatter    V (N − 1) / N / W
    all-reduce                    both, one after the other
    all-to-all                    what crosses the middle of the longest axis: a quarter of a chip's
                                  data for each chip along it, over the one link there, or two
    collective-permute            what the busiest link carries, along the shortest ways

This is the model of "How to Scale Your Model" (jax-ml.github.io/scaling-book/sharded), with lines
where axes don't wrap, and with the number of rings that the compiler states for some collectives.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise, product

from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Collective, Instruction
from slipstream.units import format_bytes

Place = tuple[int, ...]
"""a chip's coordinates"""
KIND = "collective"
START_US = 1.0
"""to start a collective: about what XLA's smallest operations take in HBM"""
_PHASES = {"all-reduce": 2}
_RINGS = re.compile(r'"emitter":"(\d)D')


@dataclass(frozen=True)
class Axis:
    """The part of an axis of the torus that a group spans."""

    number: int
    length: int
    """chips of the group along it"""
    gap: int
    """1: neighbours; 2: every other chip, so that two groups share its links"""
    wraps: bool

    @property
    def sides(self) -> float:
        """From how many sides each chip can receive at once."""
        return (2.0 if self.wraps else 1.0) / self.gap

    @property
    def hops(self) -> int:
        return (self.length // 2 if self.wraps else self.length - 1) * self.gap


@dataclass(frozen=True)
class TorusTime:
    """How long a collective takes, and for how long it keeps each axis busy."""

    us: float
    busy_us: tuple[tuple[int, float], ...] = ()
    """(axis, microseconds): of a load in one direction only, half"""
    how: str = ""
    is_known: bool = True
    """False for kinds of collectives and shapes of groups that have no model"""


def torus_estimate(
    machine: Machine,
    collective: Collective,
    instruction: Instruction | None = None,
    device_ids: tuple[int, ...] = (),
) -> Estimate:
    """The time of one execution of a collective within a slice."""
    found = torus_time(machine, collective, instruction, device_ids)
    basis = "modelled" if found.is_known else "default"
    return Estimate(found.us, basis, KIND, found.how)


def torus_time(
    machine: Machine,
    collective: Collective,
    instruction: Instruction | None = None,
    device_ids: tuple[int, ...] = (),
) -> TorusTime:
    """The time and the links; `device_ids` are those of the program's partitions."""
    places = chip_places(machine, device_ids)
    if not collective.bytes:
        return TorusTime(0.0, how="no data to move")
    if collective.kind in ("collective-permute", "send", "recv"):
        return _permute(machine, collective, places)
    group = _group(collective, len(places))
    axes = box({places[member] for member in group if member < len(places)}, machine)
    if len(group) < 2:
        return TorusTime(0.0, how="one chip: nothing to move")
    if not axes:
        return _on_chip(machine, collective)
    return _over_box(machine, collective, axes, len(group), _rings(instruction))


def chip_places(machine: Machine, device_ids: tuple[int, ...] = ()) -> tuple[Place, ...]:
    """The chip of each partition; by default in JAX's order of devices, host after host."""
    assert machine.torus is not None
    tpu = machine.tpu
    return _places(machine.torus.shape, tpu.host_shape, tpu.devices_per_chip, device_ids)


@lru_cache(maxsize=64)
def _places(shape: Place, host: Place, each: int, device_ids: tuple[int, ...]) -> tuple[Place, ...]:
    if device_ids:
        return tuple(_place(device // each, shape) for device in device_ids)
    return tuple(place for place in _host_by_host(shape, host) for _ in range(each))


def _host_by_host(shape: Place, host: Place) -> Iterator[Place]:
    """Chips of the first host, then of the next one; along the first axis first."""
    inside = tuple(min(one, length) for one, length in zip(host, shape, strict=True))
    outside = tuple(length // one for length, one in zip(shape, inside, strict=True))
    for at in _first_axis_first(outside):
        for within in _first_axis_first(inside):
            yield tuple(a * n + w for a, n, w in zip(at, inside, within, strict=True))


def _first_axis_first(shape: Place) -> Iterator[Place]:
    for place in product(*(range(length) for length in reversed(shape))):
        yield tuple(reversed(place))


def _place(chip: int, shape: Place) -> Place:
    found = []
    for length in shape:
        chip, at = divmod(chip, length)
        found.append(at)
    return tuple(found)


def _group(collective: Collective, devices: int) -> Sequence[int]:
    """The first group: the others are elsewhere, and alike."""
    if collective.replica_groups:
        return max(collective.replica_groups, key=len)
    return range(min(collective.group_size or devices, devices))


def box(places: set[Place], machine: Machine) -> tuple[Axis, ...]:
    """The axes along which these chips differ."""
    assert machine.torus is not None
    found = []
    for number, length in enumerate(machine.torus.shape):
        used = sorted({place[number] for place in places})
        if len(used) > 1:
            gap = max(high - low for low, high in pairwise(used))
            wraps = machine.torus.wraps[number] and len(used) * gap == length
            found.append(Axis(number, len(used), gap, wraps))
    return tuple(found)


def link_rate(machine: Machine) -> float:
    """Bytes per second that a device reaches over one link, in one direction."""
    tpu = machine.tpu
    return tpu.ici_bandwidth * tpu.ici_share / tpu.devices_per_chip


def _over_box(
    machine: Machine, collective: Collective, axes: tuple[Axis, ...], size: int, rings: int | None
) -> TorusTime:
    rate = link_rate(machine)
    chips = math.prod(axis.length for axis in axes)
    is_box = size in (chips, chips * machine.tpu.devices_per_chip)
    sides = sum(axis.sides for axis in axes)
    used = min(sides, 2.0 * rings) if rings else sides
    phases = _PHASES.get(collective.kind, 1)
    is_exchange = collective.kind in ("all-to-all", "ragged-all-to-all")
    if is_exchange:
        seconds = max(axis.length / axis.sides for axis in axes) * collective.bytes / 4 / rate
    else:
        seconds = phases * collective.bytes * (size - 1) / size / (used * rate)
    hops = phases * sum(axis.hops for axis in axes)
    us = seconds * 1e6 + START_US + hops * machine.tpu.ici_hop_us
    share = used / sides
    busy = tuple((axis.number, seconds * 1e6 * share) for axis in axes)
    known = is_box and collective.kind in (
        "all-gather", "reduce-scatter", "all-reduce", "all-to-all", "collective-broadcast"
    )  # fmt: skip
    how = _how(collective, axes, size, rings, us, is_box)
    return TorusTime(us, busy, how, known)


def _on_chip(machine: Machine, collective: Collective) -> TorusTime:
    """Two devices of one chip: through its memory."""
    us = 2e6 * collective.bytes / machine.tpu.memory_bandwidth + START_US
    return TorusTime(us, how=f"{format_bytes(collective.bytes)} between devices of a chip")


def _permute(machine: Machine, collective: Collective, places: tuple[Place, ...]) -> TorusTime:
    pairs = [
        (source, target)
        for source, target in collective.source_target_pairs
        if max(source, target) < len(places) and places[source] != places[target]
    ]
    if not pairs:
        return _on_chip(machine, collective)
    loads: Counter[tuple[int, int, Place]] = Counter()
    longest = 0
    for source, target in pairs:
        way = list(_way(places[source], places[target], machine))
        loads.update(way)
        longest = max(longest, len(way))
    rate = link_rate(machine)
    each = collective.bytes / rate * 1e6
    us = max(loads.values()) * each + START_US + longest * machine.tpu.ici_hop_us
    assert machine.torus is not None
    busy = []
    for axis in range(len(machine.torus.shape)):
        sides = [
            max((n for (a, s, _), n in loads.items() if (a, s) == (axis, side)), default=0)
            for side in (-1, 1)
        ]
        if any(sides):
            busy.append((axis, sum(sides) / 2 * each))
    hops = f"{longest} hop{'s' if longest > 1 else ''}"
    how = f"{format_bytes(collective.bytes)} over {hops}, {collective.bytes / us / 1e3:.3g} GB/s"
    return TorusTime(us, tuple(busy), how)


def _way(source: Place, target: Place, machine: Machine) -> Iterator[tuple[int, int, Place]]:
    """The links of a shortest way, axis by axis: (axis, direction, chip that sends)."""
    assert machine.torus is not None
    at = list(source)
    for axis, length in enumerate(machine.torus.shape):
        distance = target[axis] - at[axis]
        if machine.torus.wraps[axis] and abs(distance) > length / 2:
            distance -= length if distance > 0 else -length
        step = 1 if distance > 0 else -1
        for _ in range(abs(distance)):
            yield axis, step, tuple(at)
            at[axis] = (at[axis] + step) % length


def _rings(instruction: Instruction | None) -> int | None:
    """How many axes the compiler's algorithm uses, if it says so: `1DAllGather…`."""
    found = _RINGS.search(instruction.backend_config) if instruction is not None else None
    return int(found[1]) if found else None


def _how(
    collective: Collective,
    axes: tuple[Axis, ...],
    size: int,
    rings: int | None,
    us: float,
    is_box: bool,
) -> str:
    spans = " × ".join(f"{axis.length}{'' if axis.wraps else ' in a line'}" for axis in axes)
    limited = f", {rings} ring{'s' if rings > 1 else ''}" if rings and rings < len(axes) else ""
    unlike = "" if is_box else ", not a box of the torus"
    rate = collective.bytes / us / 1e3
    return (
        f"{format_bytes(collective.bytes)}, {size} TPUs: {spans}{limited}{unlike}, {rate:.3g} GB/s"
    )

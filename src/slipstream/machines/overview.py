"""What one machine would do with a few collectives: figures to look at before trusting a model."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.machines.collectives import collective_time
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.nccl import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from slipstream.profile.program import Collective

SIZES = (2**20, 2**25, 2**30)
SHOWN = (ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, "all-to-all")


@dataclass(frozen=True)
class Sample:
    """One collective of one size."""

    kind: str
    group: int
    bytes: int
    estimate: Estimate


@dataclass(frozen=True)
class Overview:
    """A machine and what its collectives take."""

    machine: Machine
    samples: tuple[Sample, ...]


def overview(machine: Machine) -> Overview:
    """Samples for the GPUs of a host, and for all of them where there are more."""
    groups = dict.fromkeys((min(machine.gpus_per_host, machine.devices), machine.devices))
    samples = [
        Sample(kind, group, size, collective_time(machine, _collective(kind, size, group)))
        for group in groups
        if group > 1
        for kind in SHOWN
        for size in SIZES
    ]
    return Overview(machine, tuple(samples))


def _collective(kind: str, size: int, group: int) -> Collective:
    return Collective(kind, size, group, (tuple(range(group)),))

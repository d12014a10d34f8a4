"""What communication moves, how fast, and who waits for whom.

Bandwidths follow nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): bytes over time,
and the bus bandwidth, which is what one link carries whatever the number of participants.  Where
several devices recorded a collective, its time is that of the last to come: the others wait.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.exposures import exposures
from slipstream.analyses.labels import collective_of, found_instruction, label
from slipstream.analyses.skew import MatchedCollectives, match_collectives
from slipstream.errors import BadInput
from slipstream.machines.gpus import gpu
from slipstream.machines.machine import Gpu
from slipstream.profile.events import Array, distinct, median
from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective
from slipstream.profile.timeline.kinds import COMMUNICATION

_NCCL = re.compile(
    r"nccl\w*?_(?P<what>AllReduce|AllGather|ReduceScatter|Reduce|Broadcast)\w*?"
    r"_(?P<algorithm>RING|TREE|COLLNET_DIRECT|COLLNET_CHAIN|NVLS_TREE|NVLS|PAT)"
    r"_(?P<protocol>LL128|LL|SIMPLE)"
)
CHANCE = 0.05
"""a device is a straggler where it comes last so often that chance does it more rarely than this"""


@dataclass(frozen=True)
class CollectiveRow:
    """One collective instruction."""

    program: str
    instruction: str
    kind: str
    bytes: int | None
    """payload of one participant: what an all-gather gives, what the others bring"""
    group_size: int | None
    groups: int | None
    """how many groups do it at the same time; None if the program doesn't say"""
    count: int
    """events, over all steps and devices"""
    per_step_us: float
    """of one step of one device"""
    exposed_us: float
    """the part of it without compute"""
    median_us: float
    """one execution on one device, its wait for others included"""
    moving_us: float
    """one execution on the device that came last: the least wait that was recorded"""
    bandwidth: float | None
    """bytes a second, of `moving_us`"""
    bus_bandwidth: float | None
    link_share: float | None
    """bus bandwidth as a share of the GPU's link to its neighbours, one direction"""
    members_recorded: int
    """devices that recorded it"""
    wait_us: float | None
    """of one step: waiting for the last device to come; None where that isn't known"""
    algorithm: str = ""
    """as far as the kernel's name tells"""
    kernel: str = ""
    phase: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""


@dataclass(frozen=True)
class Straggler:
    """One device: how often the others waited for it."""

    device: str
    host: str
    meetings: int
    """collectives that it and another device recorded"""
    last: int
    """how often it came last"""
    caused_us: float
    """of one step: how much later it came than the one before it, where it came last"""
    waited_us: float
    """of one step: its own waiting for others"""

    @property
    def last_share(self) -> float:
        return self.last / self.meetings if self.meetings else 0.0


@dataclass(frozen=True)
class Collectives:
    """Communication of the steps, by instruction."""

    steps: int
    model: str
    link_bandwidth: float | None
    """bytes a second to the other GPUs of the host, one direction; None if the GPU isn't known"""
    link: str
    rows: tuple[CollectiveRow, ...]
    """the longest first"""
    stragglers: tuple[Straggler, ...]
    """devices, those that made others wait most first; empty where nothing could be matched"""
    alignment_us: float | None
    """how far apart ends of one collective still are once clocks are aligned, the median"""
    notes: tuple[str, ...] = ()

    @property
    def straggler(self) -> Straggler | None:
        """The device that the others wait for, if there is one.

        It comes last more often than by chance, and by more than the clocks can be trusted.
        """
        first = self.stragglers[0] if self.stragglers else None
        if first is None or self.alignment_us is None:
            return None
        doubt = first.last * self.alignment_us / max(self.steps, 1)
        by_chance = _chance(first.last, first.meetings, 1 / len(self.stragglers))
        return first if by_chance < CHANCE and first.caused_us > doubt else None


def _chance(last: int, meetings: int, share: float) -> float:
    """How likely a device comes last so often or more, if all do equally often."""
    spread = math.sqrt(meetings * share * (1 - share))
    if meetings > 1000:
        return math.erfc((last - meetings * share) / spread / math.sqrt(2)) / 2
    return sum(
        math.comb(meetings, k) * share**k * (1 - share) ** (meetings - k)
        for k in range(last, meetings + 1)
    )


def collectives(profile: Profile) -> Collectives:
    """Kind, size, speed and waits of every collective of the steps."""
    whole = profile.steps.basis == "recording"
    met = match_collectives(profile)
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = known_gpu(model)
    rows = _Rows(profile, met, hardware, whole).rows()
    notes = list(met.skipped)
    expected = {row.group_size for row in rows if row.wait_us is not None and row.group_size}
    recorded = int((met.rows >= 0).any(axis=0).sum())
    if expected and max(expected) > recorded:
        notes.append(
            f"{recorded} of {max(expected)} devices were recorded: waits for the others are "
            "counted as moving bytes"
        )
    return Collectives(
        0 if whole else profile.steps.count,
        model,
        hardware.link_bandwidth if hardware else None,
        hardware.link if hardware else "",
        rows,
        stragglers(met),
        None if met.spread_ps is None else met.spread_ps / 1e6,
        tuple(notes),
    )


def known_gpu(model: str) -> Gpu | None:
    """The GPU of that name, if we know it."""
    try:
        return gpu(model) if model else None
    except BadInput:
        return None


def bus_factor(kind: str, size: int) -> float:
    """What one link carries of each byte of the payload, with `size` participants."""
    if kind == "all-reduce":
        return 2 * (size - 1) / size
    if kind in ("all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"):
        return (size - 1) / size
    return 1.0


def algorithm(kernel: str) -> str:
    """What NCCL's kernel name tells of the algorithm.

    NCCL runs all algorithms and protocols of a collective with few kernels: the one called RING_LL
    serves everything but trees, and that of all-gathers everything (src/device/generate.py,
    `best_kernel`, of github.com/NVIDIA/nccl).  Only other names are exact.
    """
    found = _NCCL.search(kernel)
    if found is None:
        return ""
    name, protocol = found["algorithm"].lower().replace("_", " "), found["protocol"]
    if protocol != "LL" or name not in ("ring", "tree"):
        return f"{name} {protocol.lower()}"
    if name == "tree":
        return "tree"
    return "" if found["what"] in ("AllGather", "Broadcast") else "not tree"


def stragglers(met: MatchedCollectives) -> tuple[Straggler, ...]:
    """Every device that took part in matched collectives."""
    profile = met.profile
    step_of = profile.steps.of_events(profile) if len(met) else np.empty(0, np.int32)
    found = []
    for index, device in enumerate(profile.devices):
        seen = met.rows[:, index] >= 0
        if not seen.any():
            continue
        steps = len(distinct(step_of[met.rows[seen, index]]))
        last = met.last == index
        found.append(
            Straggler(
                device.name,
                profile.hosts[device.host].name,
                int(seen.sum()),
                int(last.sum()),
                float(met.caused[last].sum()) / 1e6 / steps,
                float(np.nansum(met.waits[:, index])) / 1e6 / steps,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.caused_us))


class _Rows:
    """Rows of the table, one for each instruction that communicates."""

    def __init__(
        self, profile: Profile, met: MatchedCollectives, hardware: Gpu | None, whole: bool
    ) -> None:
        self.profile = profile
        self.hardware = hardware
        self.steps = 1 if whole else max(1, len(profile.steps))
        self.asides = exposures(profile, whole)
        self.own = np.flatnonzero(self.asides.kind == COMMUNICATION)
        self.waits: Array | None = None
        self.moving: Array | None = None
        if not len(met):
            return
        self.waits, self.moving = np.full((2, len(profile.events)), np.nan)
        known = met.rows >= 0
        self.waits[met.rows[known]] = met.waits[known]
        # The last to come has waited least: its whole time moves bytes.
        shortest = np.broadcast_to(np.nanmin(met.durations, axis=1)[:, None], known.shape)
        self.moving[met.rows[known]] = shortest[known]

    def rows(self) -> tuple[CollectiveRow, ...]:
        from slipstream.profile.grouping import group_labels

        groups, firsts = group_labels(self.profile.events, self.asides.row[self.own])
        order = np.argsort(groups, kind="stable")
        parts = np.split(order, np.searchsorted(groups[order], np.arange(1, len(firsts))))
        found = [self._row(self.own[part]) for part in parts if len(part)]
        return tuple(sorted(found, key=lambda row: (-row.per_step_us, row.instruction)))

    def _row(self, at: Array) -> CollectiveRow:
        rows = self.asides.row[at]
        named = label(self.profile, int(rows[0]))
        durations = self.asides.duration_ps[at]
        median_us = float(median(durations)) / 1e6
        moving_us = median_us
        if self.moving is not None:
            moving = self.moving[rows]
            moving_us = float(median(np.where(np.isfinite(moving), moving, durations))) / 1e6
        stated = self._collective(named.program, named.instruction)
        kernel = self.profile.events.text("name", int(rows[0]))
        size = stated.group_size if stated else None
        speed = stated.bytes / moving_us * 1e6 if stated and stated.bytes and moving_us else None
        # Several kernels do one all-to-all or permute: their time is of a part of the bytes.
        if speed is not None and self._kernels_each(rows) != 1:
            speed = None
        bus = speed * bus_factor(stated.kind, size) if speed and stated and size else None
        return CollectiveRow(
            named.program,
            named.instruction,
            stated.kind if stated else named.category,
            stated.bytes if stated else None,
            size,
            len(stated.replica_groups) or 1 if stated else None,
            len(rows),
            float(durations.sum()) / 1e6 / self.steps,
            float(self.asides.exposed_ps[at].sum()) / 1e6 / self.steps,
            median_us,
            moving_us,
            speed,
            bus,
            bus / self.hardware.link_bandwidth if bus and self.hardware else None,
            len(distinct(self.profile.event_devices[rows])),
            self._wait_us(rows),
            algorithm(kernel),
            kernel if kernel != named.instruction else "",
            named.phase,
            named.scope,
            named.source,
            named.description,
        )

    def _wait_us(self, rows: Array) -> float | None:
        """Of one step, what these events waited; None where none of them met another."""
        waits = self.waits[rows] if self.waits is not None else np.empty(0)
        if not np.isfinite(waits).any():
            return None
        return float(np.nanmean(waits)) / 1e6 * len(rows) / self.steps

    def _collective(self, program: str, instruction: str) -> Collective | None:
        found = found_instruction(self.profile, program, instruction)
        return collective_of(*found) if found is not None else None

    def _kernels_each(self, rows: Array) -> float | None:
        """Events that one execution of an instruction makes; None where that isn't known."""
        events = self.profile.events
        name, instruction = (events.text(c, int(rows[0])) for c in ("program", "instruction"))
        found = found_instruction(self.profile, name, instruction)
        if found is None:
            return None
        program, one = found
        start = program.starter(one.name) or one
        times = program.executions(start.name)
        device = self.profile.event_devices[rows].astype(np.int64)
        runs = len(distinct(device << 32 | events.cells("execution", rows)))
        return len(rows) / (runs * times) if times else None

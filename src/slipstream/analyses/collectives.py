"""What collectives move, how fast, and which devices wait for which.

Bandwidths follow nccl-tests (github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md): the algorithm
bandwidth is bytes over time, the bus bandwidth is what one link carries, independent of the number
of participants.  If several devices recorded a collective, its time is that of the last to arrive:
the others wait for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from slipstream.analyses.exposures import exposures
from slipstream.analyses.labels import collective_of, found_instruction, label
from slipstream.analyses.op_groups import grouped, layer_key
from slipstream.analyses.skew import MatchedCollectives, match_collectives
from slipstream.errors import BadInput
from slipstream.inline import Inline
from slipstream.machines.gpus import gpu
from slipstream.machines.machine import Gpu, Tpu
from slipstream.machines.tpus import known_tpu
from slipstream.profile.events import Array, distinct, median
from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective
from slipstream.profile.semantics.layers import rolled_description, rolled_scope
from slipstream.profile.timeline.kinds import COMMUNICATION
from slipstream.profile.timeline.steps import averaged_over
from slipstream.profile.timeline.windows import attending, hidden_windows

_NCCL = re.compile(
    r"nccl\w*?_(?P<what>AllReduce|AllGather|ReduceScatter|Reduce|Broadcast)\w*?"
    r"_(?P<algorithm>RING|TREE|COLLNET_DIRECT|COLLNET_CHAIN|NVLS_TREE|NVLS|PAT)"
    r"_(?P<protocol>LL128|LL|SIMPLE)"
)
CHANCE = 0.05
"""a device is a straggler if arriving last so often by chance is less likely than this"""


NOT_TREE = "not tree"
"""the algorithm where the kernel's name leaves all others possible"""


@dataclass(frozen=True)
class CollectiveRow:
    """One collective instruction."""

    program: str
    instruction: str
    kind: str
    bytes: int | None
    """payload of one participant: the result of an all-gather, the operands of everything else"""
    group_size: int | None
    groups: int | None
    """how many groups run it at the same time; None if unknown"""
    count: int
    """events, over all steps and devices"""
    per_step_us: float
    """device time, mean over steps and devices"""
    exposed_us: float
    """of `per_step_us`, the part without concurrent compute"""
    median_us: float
    """median duration of an execution on one device, including its wait for others"""
    moving_us: float
    """median duration on the device that arrived last, which waits least"""
    bandwidth: float | None
    """bytes per second, over `moving_us`"""
    bus_bandwidth: float | None
    link_share: float | None
    """bus bandwidth as a share of the GPU's link bandwidth, in one direction"""
    members_recorded: int
    """devices that recorded it"""
    wait_us: float | None
    """wait for the last device to arrive, mean over steps and devices; None if unknown"""
    algorithm: str = ""
    """as far as the kernel's name reveals it"""
    kernel: str = ""
    phase: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""
    per_step_count: float = 0.0
    """`count`, mean over steps and devices"""


@dataclass(frozen=True)
class CollectiveGroup(CollectiveRow):
    """Equal collectives of unrolled layers: of the same kind, size, participants and source line.

    `instruction` is the longest of them; times and counts are sums, durations and bandwidths means.
    """

    instructions: tuple[str, ...] = ()
    """all of them, the longest first"""


@dataclass(frozen=True)
class Straggler:
    """One device, and how often the others waited for it."""

    device: str
    host: str
    meetings: int
    """collectives that it and at least one other device recorded"""
    last: int
    """how often it arrived last"""
    caused_us: float
    """how much later than the second-to-last device it arrived where it was last, mean per step"""
    waited_us: float
    """its own wait for others, mean per step"""

    @property
    def last_share(self) -> float:
        return self.last / self.meetings if self.meetings else 0.0


@dataclass(frozen=True)
class Collectives(Inline):
    """The communication of the steps, by instruction."""

    steps: int
    model: str
    link_bandwidth: float | None
    """bytes per second to the host's other GPUs, in one direction; None if the GPU is unknown"""
    link: str
    rows: tuple[CollectiveRow, ...]
    """the longest first"""
    stragglers: tuple[Straggler, ...]
    """devices, the one that made others wait most first; empty if nothing could be matched"""
    alignment_us: float | None
    """median spread of one collective's ends after the clocks were aligned"""
    notes: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[CollectiveGroup, ...]:
        """The rows with equal collectives as one, the longest first."""
        merged = [_merged(same) for same in grouped(self.rows, _equality)]
        return tuple(sorted(merged, key=lambda group: -group.per_step_us))

    @property
    def straggler(self) -> Straggler | None:
        """The device that the others wait for, if there is one.

        It arrives last more often than by chance, and by more than the clocks' uncertainty.
        """
        first = self.stragglers[0] if self.stragglers else None
        if first is None or self.alignment_us is None:
            return None
        uncertainty_us = first.last * self.alignment_us / max(self.steps, 1)
        by_chance = _chance(first.last, first.meetings, 1 / len(self.stragglers))
        return first if by_chance < CHANCE and first.caused_us > uncertainty_us else None


def _equality(row: CollectiveRow) -> Hashable:
    if not row.description:
        return (row.program, row.instruction)  # nothing tells what else it equals
    return (*layer_key(row), row.kind, row.bytes, row.group_size, row.groups, row.algorithm)


def _merged(rows: Sequence[CollectiveRow]) -> CollectiveGroup:
    by_time = sorted(rows, key=lambda row: -row.per_step_us)
    values = {one.name: getattr(by_time[0], one.name) for one in fields(CollectiveRow)}
    if len(rows) > 1:
        for name in ("count", "per_step_us", "exposed_us", "per_step_count"):
            values[name] = sum(getattr(row, name) for row in rows)
        for name in ("median_us", "moving_us", "bandwidth", "bus_bandwidth", "link_share"):
            values[name] = _mean(rows, name)
        waits = [row.wait_us for row in rows if row.wait_us is not None]
        values["wait_us"] = sum(waits) if waits else None
        values["members_recorded"] = min(row.members_recorded for row in rows)
        values["scope"] = rolled_scope(values["scope"])
        values["description"] = rolled_description(values["description"])
    return CollectiveGroup(**values, instructions=tuple(row.instruction for row in by_time))


def _mean(rows: Sequence[CollectiveRow], name: str) -> float | None:
    """The mean over executions; a rate's is that of all bytes over all time."""
    known = [row for row in rows if getattr(row, name) is not None]
    if not known:
        return None
    # Bytes are equal, so the mean of rates is weighted by time.
    is_rate = not name.endswith("_us")
    weights = [row.count * (row.moving_us if is_rate else 1.0) for row in known]
    values = [float(getattr(row, name)) for row in known]
    return float(np.average(values, weights=weights)) if sum(weights) else values[0]


def _chance(last: int, meetings: int, share: float) -> float:
    """Probability that a device arrives last at least so often, if all do so equally often."""
    spread = math.sqrt(meetings * share * (1 - share))
    if meetings > 1000:
        return math.erfc((last - meetings * share) / spread / math.sqrt(2)) / 2
    return sum(
        math.comb(meetings, k) * share**k * (1 - share) ** (meetings - k)
        for k in range(last, meetings + 1)
    )


@dataclass(frozen=True)
class Meetings:
    """What matching with other devices says about the collectives of a profile."""

    rows: Array
    """the matched events of the profile"""
    wait_ps: Array
    """how long its device waited for the last to arrive"""
    moving_ps: Array
    """how long the last to arrive took: it waits least, so bytes move during all of its time"""
    members: Array
    """devices that recorded the same"""
    stragglers: tuple[Straggler, ...]
    recorded: int
    """devices that took part"""
    alignment_us: float | None
    notes: tuple[str, ...] = ()

    def taken(self, chosen: Array) -> Meetings:
        """The same for the chosen events, given as a mask, of the profile."""
        kept = chosen[self.rows]
        rows = (np.cumsum(chosen) - 1)[self.rows[kept]]
        columns = ("wait_ps", "moving_ps", "members")
        return replace(self, rows=rows, **{name: getattr(self, name)[kept] for name in columns})


def meetings(matched: MatchedCollectives, devices: slice = slice(None)) -> Meetings:
    """Matched collectives, of all devices or of some; rows are those of the matched profile."""
    rows = matched.rows[:, devices]
    known = rows >= 0
    members = np.broadcast_to((matched.rows >= 0).sum(axis=1)[:, None], known.shape)[known]
    times = (np.empty(0), np.empty(0))
    if len(matched):
        shortest = np.broadcast_to(np.nanmin(matched.durations, axis=1)[:, None], known.shape)
        times = (matched.waits[:, devices][known], shortest[known])
    return Meetings(
        rows[known],
        *times,
        members,
        stragglers=stragglers(matched),
        recorded=int((matched.rows >= 0).any(axis=0).sum()),
        alignment_us=None if matched.spread_ps is None else matched.spread_ps / 1e6,
        notes=matched.skipped,
    )


def collectives(profile: Profile, met: Meetings | None = None) -> Collectives:
    """Kind, size, bandwidth and waits of every collective in the steps.

    `met` says where its devices met others, if the profile holds only some of the run's hosts.
    """
    whole = profile.steps.basis == "recording"
    met = met or meetings(match_collectives(profile))
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = known_gpu(model)
    table = _Rows(profile, met, hardware, whole)
    rows = table.rows()
    notes = list(met.notes)
    if table.hidden.any():
        notes.append(
            "a TPU records a collective until its result is awaited: those that had ended before "
            "have no bandwidth"
        )
    expected = {row.group_size for row in rows if row.wait_us is not None and row.group_size}
    if expected and max(expected) > met.recorded:
        notes.append(
            f"{met.recorded} of {max(expected)} devices were recorded: waits for the others count "
            "as time in which bytes move"
        )
    return Collectives(
        0 if whole else profile.steps.count,
        model,
        hardware.link_bandwidth if hardware else None,
        hardware.link if hardware else "",
        rows,
        met.stragglers,
        met.alignment_us,
        tuple(notes),
    )


def known_gpu(model: str) -> Gpu | None:
    """The GPU of that name; None if it is not in the catalogue."""
    try:
        return gpu(model) if model else None
    except BadInput:
        return None


def known_chip(model: str) -> Gpu | Tpu | None:
    """The GPU or TPU of that name; None if it is not in the catalogue."""
    return known_gpu(model) or known_tpu(model)


def bus_factor(kind: str, size: int) -> float:
    """Bytes that one link carries per byte of payload, with `size` participants."""
    if kind == "all-reduce":
        return 2 * (size - 1) / size
    if kind in ("all-gather", "reduce-scatter", "all-to-all", "ragged-all-to-all"):
        return (size - 1) / size
    return 1.0


def algorithm(kernel: str) -> str:
    """What the name of an NCCL kernel reveals about the algorithm.

    NCCL runs all algorithms and protocols of a collective with few kernels: RING_LL serves
    everything but trees, and for all-gathers everything (`best_kernel` in src/device/generate.py of
    github.com/NVIDIA/nccl).  Only the other names are exact.
    """
    found = _NCCL.search(kernel)
    if found is None:
        return ""
    name, protocol = found["algorithm"].lower().replace("_", " "), found["protocol"]
    if protocol != "LL" or name not in ("ring", "tree"):
        return f"{name} {protocol.lower()}"
    if name == "tree":
        return "tree"
    return "" if found["what"] in ("AllGather", "Broadcast") else NOT_TREE


def stragglers(matched: MatchedCollectives) -> tuple[Straggler, ...]:
    """Every device that took part in matched collectives."""
    profile = matched.profile
    step_of = profile.steps.of_events(profile) if len(matched) else np.empty(0, np.int32)
    found = []
    for index, device in enumerate(profile.devices):
        seen = matched.rows[:, index] >= 0
        if not seen.any():
            continue
        steps = len(distinct(step_of[matched.rows[seen, index]]))
        last = matched.last == index
        found.append(
            Straggler(
                device.name,
                profile.hosts[device.host].name,
                int(seen.sum()),
                int(last.sum()),
                float(matched.caused[last].sum()) / 1e6 / steps,
                float(np.nansum(matched.waits[:, index])) / 1e6 / steps,
            )
        )
    return tuple(sorted(found, key=lambda one: -one.caused_us))


class _Rows:
    """Builds the rows, one for each instruction that communicates."""

    def __init__(self, profile: Profile, met: Meetings, hardware: Gpu | None, whole: bool) -> None:
        self.profile = profile
        self.hardware = hardware
        self.steps = averaged_over(profile, whole)
        self.exposures = exposures(profile, whole)
        communicates = self.exposures.kind == COMMUNICATION
        self.own = np.flatnonzero(communicates & ~attending(profile)[self.exposures.row])
        self.hidden = hidden_windows(profile)
        self.waits: Array | None = None
        self.moving: Array | None = None
        if len(met.rows):
            self.waits, self.moving = np.full((2, len(profile.events)), np.nan)
            self.waits[met.rows], self.moving[met.rows] = met.wait_ps, met.moving_ps
        self.members = np.zeros(len(profile.events), np.int32)
        """devices that recorded the same collective, if the profile has only some of them"""
        self.members[met.rows] = met.members

    def rows(self) -> tuple[CollectiveRow, ...]:
        from slipstream.profile.grouping import group_labels

        groups, firsts = group_labels(self.profile.events, self.exposures.row[self.own])
        order = np.argsort(groups, kind="stable")
        parts = np.split(order, np.searchsorted(groups[order], np.arange(1, len(firsts))))
        found = [self._row(self.own[part]) for part in parts if len(part)]
        return tuple(sorted(found, key=lambda row: (-row.per_step_us, row.instruction)))

    def _row(self, at: Array) -> CollectiveRow:
        rows = self.exposures.row[at]
        named = label(self.profile, int(rows[0]))
        durations = self.exposures.duration_ps[at]
        stated = self._collective(named.program, named.instruction)
        size = stated.group_size if stated else None
        moving_us = self._moving_us(rows, durations)
        bandwidth = self._bandwidth(stated, rows, moving_us)
        bus = bandwidth * bus_factor(stated.kind, size) if bandwidth and stated and size else None
        kernel = self.profile.events.text("name", int(rows[0]))
        return CollectiveRow(
            program=named.program,
            instruction=named.instruction,
            kind=stated.kind if stated else named.category,
            bytes=stated.bytes if stated else None,
            group_size=size,
            groups=len(stated.replica_groups) or 1 if stated else None,
            count=len(rows),
            per_step_us=float(durations.sum()) / 1e6 / self.steps,
            exposed_us=float(self.exposures.exposed_ps[at].sum()) / 1e6 / self.steps,
            median_us=float(median(durations)) / 1e6,
            moving_us=moving_us,
            bandwidth=bandwidth,
            bus_bandwidth=bus,
            link_share=bus / self.hardware.link_bandwidth if bus and self.hardware else None,
            members_recorded=self._members(rows),
            wait_us=self._wait_us(rows),
            algorithm=algorithm(kernel),
            kernel=kernel if kernel != named.instruction else "",
            phase=named.phase,
            scope=named.scope,
            source=named.source,
            description=named.description,
            per_step_count=len(rows) / self.steps,
        )

    def _members(self, rows: Array) -> int:
        own = len(distinct(self.profile.event_devices[rows]))
        return max(own, int(self.members[rows].max()))

    def _moving_us(self, rows: Array, durations: Array) -> float:
        """Median duration on the last device to arrive; on any device, if unknown."""
        if self.moving is not None:
            moving = self.moving[rows]
            durations = np.where(np.isfinite(moving), moving, durations)
        ended = ~self.hidden[rows]
        durations = durations[ended] if ended.any() else durations
        return float(median(durations)) / 1e6

    def _bandwidth(self, stated: Collective | None, rows: Array, us: float) -> float | None:
        """Bytes per second; None where that can't be told.

        Several kernels may share the bytes of one execution, and some events only wait for them.
        """
        if stated is None or not stated.bytes or not us or self._kernels_each(rows) != 1:
            return None
        if self.hidden[rows].all():
            return None
        return stated.bytes / us * 1e6

    def _wait_us(self, rows: Array) -> float | None:
        """Wait of these events, mean per step; None if none of them was matched."""
        waits = self.waits[rows] if self.waits is not None else np.empty(0)
        if not np.isfinite(waits).any():
            return None
        return float(np.nanmean(waits)) / 1e6 * len(rows) / self.steps

    def _collective(self, program: str, instruction: str) -> Collective | None:
        found = found_instruction(self.profile, program, instruction)
        return collective_of(*found) if found is not None else None

    def _kernels_each(self, rows: Array) -> float | None:
        """Events per execution of an instruction; None if unknown."""
        events = self.profile.events
        name, instruction = (events.text(c, int(rows[0])) for c in ("program", "instruction"))
        found = found_instruction(self.profile, name, instruction)
        if found is None:
            return None
        program, one = found
        if one.is_done:
            return None
        start = program.starter(one.name) or one
        times = program.executions(start.name)
        device = self.profile.event_devices[rows].astype(np.int64)
        runs = len(distinct(device << 32 | events.cells("execution", rows)))
        return len(rows) / (runs * times) if times else None

"""Skew between devices: match each collective across devices, and see which arrives last.

    device 0   ██████████████████      waits until device 1 arrives
    device 1           ██████████      arrives last: bytes move during all of its time
               └─ wait ┘└─ move ─┘     they end together, which aligns their clocks

All participants of an all-gather, all-reduce, reduce-scatter or all-to-all end at about the same
time, so the median difference between their ends is the offset between two hosts' clocks.
nsys-jax (github.com/NVIDIA/JAX-Toolbox) aligns clocks in the same way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.analyses.labels import collective_of, found_instruction
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION, kinds
from slipstream.profile.timeline.windows import attending, hidden_windows

TOGETHER = frozenset(
    ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "ragged-all-to-all")
)
"""kinds of collective that end at the same time on all participants"""


@dataclass(frozen=True)
class MatchedCollectives:
    """Collectives that several devices recorded: one row per collective, one column per device."""

    profile: Profile
    rows: Array
    """row of the event on each device; -1 if not recorded"""
    skipped: tuple[str, ...] = ()
    """sentences: what could not be matched, and why"""

    def __len__(self) -> int:
        return len(self.rows)

    @cached_property
    def hosts(self) -> Array:
        """Host of each device."""
        return np.array([device.host for device in self.profile.devices], np.int64)

    def _column(self, name: str) -> Array:
        """A column of the events as floats; NaN where a device recorded none."""
        values = self.profile.events.cells(name, np.maximum(self.rows, 0))
        return np.where(self.rows >= 0, values, np.nan)

    @cached_property
    def origin_ps(self) -> int:
        """Times count from here, so that floats hold picoseconds over hours."""
        seen = self.rows[self.rows >= 0]
        return int(self.profile.events.cells("start_ps", seen).min()) if len(seen) else 0

    @cached_property
    def raw_starts(self) -> Array:
        return self._column("start_ps") - self.origin_ps

    @cached_property
    def durations(self) -> Array:
        return self._column("duration_ps")

    @cached_property
    def offsets_ps(self) -> Array:
        """How far each host's clock is ahead of the first matched host's; NaN if unknown."""
        ends = self.raw_starts + self.durations
        found = np.full(len(self.profile.hosts), np.nan)
        seen = np.flatnonzero((self.rows >= 0).any(axis=0))
        if not len(seen):
            return found
        first = int(self.hosts[seen[0]])
        found[first] = 0.0
        reference = _mean(ends[:, self.hosts == first])
        for host in distinct(self.hosts[seen]).tolist():
            away = _mean(ends[:, self.hosts == host]) - reference
            away = away[np.isfinite(away)]
            if host != first and len(away):
                found[host] = float(np.median(away))
        return found

    @cached_property
    def starts(self) -> Array:
        """Starts on aligned clocks."""
        return self.raw_starts - self.offsets_ps[self.hosts]

    @cached_property
    def ends(self) -> Array:
        return self.starts + self.durations

    @cached_property
    def waits(self) -> Array:
        """How long each device waited for the last recorded one to arrive."""
        if not len(self):
            return self.durations
        late = np.nanmax(self.starts, axis=1)[:, None] - self.starts
        waits: Array = np.clip(late, 0.0, self.durations)
        return waits

    @cached_property
    def last(self) -> Array:
        """The device that arrived last."""
        return np.nanargmax(self.starts, axis=1) if len(self) else np.empty(0, np.int64)

    @cached_property
    def caused(self) -> Array:
        """How much later the last device arrived than the second to last."""
        ordered = np.sort(self.starts, axis=1)
        count = np.isfinite(ordered).sum(axis=1)
        at = np.arange(len(ordered))
        later: Array = ordered[at, count - 1] - ordered[at, count - 2]
        return later

    @cached_property
    def end_spreads(self) -> Array:
        """How far apart each collective's ends are on aligned clocks."""
        spreads: Array = np.nanmax(self.ends, axis=1) - np.nanmin(self.ends, axis=1)
        return spreads

    @cached_property
    def spread_ps(self) -> float | None:
        """The median of `end_spreads`: the uncertainty of the alignment."""
        return float(np.median(self.end_spreads)) if len(self) else None


def _mean(columns: Array) -> Array:
    """The mean of each row over its finite values; NaN where there are none."""
    known = np.isfinite(columns)
    count = known.sum(axis=1)
    sums = np.where(known, columns, 0.0).sum(axis=1)
    return np.where(count > 0, sums / np.maximum(count, 1), np.nan)


def match_collectives(profile: Profile) -> MatchedCollectives:
    """Collectives of the steps, matched across devices."""
    return match_rows(profile, *candidates(profile))


def match_rows(profile: Profile, rows: Array, notes: Sequence[str] = ()) -> MatchedCollectives:
    """These rows of the events matched across devices; `notes` say what is not among them."""
    if len(profile.devices) < 2 or not len(profile.events):
        return MatchedCollectives(profile, np.empty((0, len(profile.devices)), np.int64))
    skipped = list(notes)
    shifts = _shifts(profile, rows, skipped)
    rows = rows[np.isin(profile.events.cells("program", rows), list(shifts))]
    matched = MatchedCollectives(profile, _matched(profile, rows, shifts))
    # Hosts that share no collective with the first one can't be aligned with it.
    aligned = np.isfinite(matched.starts).sum(axis=1) > 1
    if not aligned.all():
        first = profile.hosts[int(np.flatnonzero(matched.offsets_ps == 0)[0])].name
        skipped.append(
            f"{int((~aligned).sum())} collectives ran on hosts that share none with {first}, so "
            "their clocks can't be aligned"
        )
    return MatchedCollectives(profile, matched.rows[aligned], tuple(skipped))


def candidates(profile: Profile) -> tuple[Array, list[str]]:
    """Events in the steps of collectives whose participants are known and end together.

    Also sentences on those whose participants are unknown.
    """
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    if not len(events):
        return np.empty(0, np.int64), []
    # A window of a TPU ends when the core gets to its done, not when the collective ends.
    moves = ~attending(profile) & ~hidden_windows(profile)
    rows = np.flatnonzero((kinds(profile) == COMMUNICATION) & moves)
    rows = rows[profile.steps.of_events(profile)[rows] < len(profile.steps)]
    groups, firsts = group_pairs(events.cells("program", rows), events.cells("instruction", rows))
    fits = np.zeros(len(firsts), bool)
    apart = 0
    for group, first in enumerate(firsts.tolist()):
        row = int(rows[first])
        names = (events.text(column, row) for column in ("program", "instruction"))
        found = found_instruction(profile, *names)
        collective = collective_of(*found) if found is not None else None
        if collective is None or collective.kind not in TOGETHER:
            continue
        fits[group] = len(collective.replica_groups) < 2
        apart += not fits[group]
    skipped = [
        f"{apart} collectives run in several groups, and the recording does not say which device "
        "is in which, so their waits are unknown"
    ]
    return rows[fits[groups]], skipped if apart else []


def _shifts(profile: Profile, rows: Array, skipped: list[str]) -> dict[int, Array]:
    """For each program, what to add to each device's execution numbers to make them agree."""
    runs = profile.runs
    found: dict[int, Array] = {}
    for program in distinct(profile.events.cells("program", rows)).tolist():
        counts = np.bincount(runs.device[runs.program == program], minlength=len(profile.devices))
        name = profile.events.texts[program]
        if len(distinct(counts[counts > 0])) == 1:
            found[program] = np.zeros(len(counts), np.int64)
        elif any(warning.code == "clock-skew" for warning in profile.warnings):
            skipped.append(
                f"{name} ran {counts.min()} to {counts.max()} times on different devices, whose "
                "clocks differ, so its executions can't be matched"
            )
        else:
            found[program] = _by_time(profile, program, counts)
    return found


def _by_time(profile: Profile, program: int, counts: Array) -> Array:
    """Match executions that ran at the same time."""
    runs = profile.runs
    ends = [runs.end_ps[(runs.program == program) & (runs.device == d)] for d in range(len(counts))]
    fullest = ends[int(counts.argmax())]
    shifts = np.zeros(len(counts), np.int64)
    for device, own in enumerate(ends):
        if len(own):
            tries = range(len(fullest) - len(own) + 1)
            apart = [np.abs(fullest[t : t + len(own)] - own).sum() for t in tries]
            shifts[device] = int(np.argmin(apart))
    return shifts


def _matched(profile: Profile, rows: Array, shifts: dict[int, Array]) -> Array:
    """One row for each collective that two or more devices recorded."""
    events = profile.events
    device = profile.event_devices[rows].astype(np.int64)
    program = events.cells("program", rows).astype(np.int64)
    execution = events.cells("execution", rows).astype(np.int64)
    for text, shift in shifts.items():
        execution = np.where(program == text, execution + shift[device], execution)
    instruction = events.cells("instruction", rows).astype(np.int64)
    start = events.cells("start_ps", rows)
    key = np.stack((device, program, instruction, execution))
    order = np.lexsort((start, *key[::-1]))
    key, rows = key[:, order], rows[order]
    new = np.concatenate(([True], (np.diff(key, axis=1) != 0).any(axis=0)))[: len(rows)]
    begins = np.maximum.accumulate(np.where(new, np.arange(len(rows)), 0))
    # The n-th time that an execution runs an instruction is the same collective on all devices.
    iteration = np.arange(len(rows)) - begins
    # Slices of TPUs run the same program, and its collectives stay within a slice.
    within = _slices(profile)[key[0]]
    place = _numbered(*key[1:], iteration, within)
    found = np.full((int(place.max()) + 1 if len(place) else 0, len(profile.devices)), -1, np.int64)
    found[place, key[0]] = rows
    several: Array = found[(found >= 0).sum(axis=1) > 1]
    return several


def _numbered(*columns: Array) -> Array:
    """A number for each distinct row, in the order of the rows.

    `numpy.unique` over several columns takes several times as long, and as much memory.
    """
    place = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        used, code = np.unique(column, return_inverse=True)
        place = np.unique(place * len(used) + code.ravel(), return_inverse=True)[1].ravel()
    return place


def _slices(profile: Profile) -> Array:
    """The slice of each device, as Megascale reports it; 0 if it reports none."""
    transfers = profile.transfers
    found = np.zeros(len(profile.hosts), np.int64)
    hosts = np.array([lane.host for lane in profile.lanes], np.int64)
    known = np.flatnonzero(transfers["has_ids"])
    own = hosts[transfers["lane"][known]] if len(known) else known
    for host in distinct(own).tolist():
        found[host] = np.bincount(transfers["destination_slice"][known[own == host]]).argmax()
    return found[[device.host for device in profile.devices]]

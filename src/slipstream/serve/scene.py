"""What the viewer shows: lanes of one or more profiles on one time axis.

Several profiles are shown one below another, aligned at the start of their first steps:

    a · GPU:0   ████ step 0 ████ step 1 ████
    b · GPU:0   ███ step 0 ███ step 1 ███
                ↑ both start here
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile
from slipstream.serve.labels import EventNames, Names
from slipstream.serve.tiles import Pyramid, pyramid
from slipstream.serve.tracks import tracks_of
from slipstream.units import PS_PER_US

KINDS = ("compute", "communication", "copy", "host")
STRUCTURE_KINDS = ("forward", "backward", "remat", "optimizer", "structure")
"""kinds of spans above the streams; they follow KINDS"""
HOST = 3
MAX_EXPANDED = 8
"""devices of a profile whose lanes are expanded at first"""
FAR_PS = 1 << 61
"""the farthest time of a view, 26 days: sums of such times don't wrap"""


@dataclass(frozen=True, eq=False)
class Layer:
    """One table of one profile, prepared for drawing."""

    member: Member
    table: Table
    names: Names
    pyramid: Pyramid
    is_host: bool
    is_structure: bool = False
    """spans of a device's structure, whose lanes are levels and not lanes of the profile"""


@dataclass(frozen=True, eq=False)
class Member:
    """One of the profiles shown."""

    name: str
    profile: Profile
    shift_ps: int
    """added to its times to align profiles"""

    @cached_property
    def layers(self) -> tuple[Layer, ...]:
        profile = self.profile
        host = np.full(len(profile.host_events), HOST, np.uint8)
        made = []
        for table, kind, is_host in (
            (profile.events, profile.event_kinds, False),
            (profile.host_events, host, True),
        ):
            if len(table):
                names = Names(table) if is_host else EventNames(profile)
                tracks = tracks_of(table, profile.lanes, np.ascontiguousarray(kind, np.uint8))
                made.append(Layer(self, table, names, pyramid(tracks), is_host))
        return tuple(made)


@dataclass(frozen=True, eq=False)
class SceneLane:
    """One lane as the viewer draws it."""

    layer: Layer
    lane: int
    """of the profile"""
    tracks: Array
    group: str
    collapsed: bool
    level: str = ""
    """of a lane of structure: `phase`"""

    @property
    def title(self) -> str:
        if self.level:
            return self.level
        return self.layer.member.profile.lanes[self.lane].name or f"lane {self.lane}"

    @property
    def name(self) -> str:
        """The title without what a profiler adds in parentheses, which the colours show."""
        return self.title if self.layer.is_host else self.title.partition("(")[0] or self.title


class Scene:
    """All lanes of some profiles; the viewer's times are microseconds since the first event."""

    def __init__(self, members: Sequence[Member], generation: int = 1) -> None:
        self.members = tuple(members)
        self.generation = generation
        """number of the reading, from 1"""
        self.layers = tuple(layer for member in members for layer in member.layers)
        self.lanes = tuple(lane for member in members for lane in self._lanes(member))
        spans = [_span(layer) for layer in self.layers] or [(0, PS_PER_US)]
        self.start_ps = min(start for start, _ in spans)
        self.end_ps = max(end for _, end in spans)

    @property
    def span_us(self) -> float:
        return (self.end_ps - self.start_ps) / PS_PER_US

    def us(self, layer: Layer, times_ps: Array) -> Array:
        """Times of a layer in the viewer's microseconds."""
        shift_ps = layer.member.shift_ps - self.start_ps
        # Sums of 64 bits wrap, so that differences are right wherever the clock's zero is.
        return (times_ps + ((shift_ps + (1 << 63)) % (1 << 64) - (1 << 63))) / PS_PER_US

    def ps(self, layer: Layer, us: float) -> int:
        """A time of the viewer in a layer's picoseconds."""
        ps = round(us * PS_PER_US) + self.start_ps - layer.member.shift_ps
        return min(max(ps, -FAR_PS), FAR_PS)

    @property
    def ids(self) -> dict[tuple[int, int], int]:
        """The viewer's number of a lane of a layer."""
        return {(id(lane.layer), lane.lane): number for number, lane in enumerate(self.all_lanes)}

    def id_of(self, layer: Layer, lane: int) -> int:
        return self.ids[id(layer), lane]

    @cached_property
    def structure_lanes(self) -> tuple[SceneLane, ...]:
        """Lanes above the streams, numbered after all others; making them parses the programs."""
        from slipstream.serve.structure import structure_lanes

        found: list[SceneLane] = []
        for member in self.members:
            groups: dict[int, tuple[str, bool]] = {}
            for lane in self.lanes:
                if lane.layer.member is member and not lane.layer.is_host:
                    device = int(member.profile.device_of_lane[lane.lane])
                    groups.setdefault(device, (lane.group, lane.collapsed))
            found += structure_lanes(member, groups)
        return tuple(found)

    @property
    def all_lanes(self) -> tuple[SceneLane, ...]:
        """The lanes that are known by now."""
        made: tuple[SceneLane, ...] = self.__dict__.get("structure_lanes", ())
        return self.lanes + made

    @property
    def all_layers(self) -> tuple[Layer, ...]:
        """The layers that are known by now, each once."""
        made = self.__dict__.get("structure_lanes", ())
        return self.layers + tuple({id(lane.layer): lane.layer for lane in made}.values())

    def _lanes(self, member: Member) -> Iterator[SceneLane]:
        """The lanes of devices in order, then the threads of hosts."""
        profile, found = member.profile, []
        for layer in member.layers:
            tracks = layer.pyramid.tracks
            for lane in sorted(set(tracks.lane.tolist())):
                place = len(profile.devices) if layer.is_host else profile.device_of_lane[lane]
                found.append((layer.is_host, int(place), layer, lane))
        found.sort(key=lambda one: one[:2])
        has_devices = any(not one[0] for one in found)
        for is_host, place, layer, lane in found:
            own = np.flatnonzero(layer.pyramid.tracks.lane == lane)
            collapsed = has_devices and (is_host or place >= MAX_EXPANDED)
            yield SceneLane(layer, lane, own, self._group(member, lane, is_host), collapsed)

    def _group(self, member: Member, lane: int, is_host: bool) -> str:
        profile = member.profile
        about = profile.lanes[lane]
        parts = [member.name] if len(self.members) > 1 else []
        if len(profile.hosts) > 1 or is_host:
            parts.append(profile.hosts[about.host].name or f"host {about.host}")
        if is_host or about.device is None:
            parts.append("threads")
        else:
            device = profile.devices[about.device]
            parts.append(f"{device.name} · {device.model}" if device.model else device.name)
        return " · ".join(parts)

    def steps(self, from_us: float, to_us: float, most: int) -> list[list[float]]:
        """[profile, number, start, end] of steps in a window, of each profile's first device.

        A profile with more than `most` of them there has none.
        """
        found: list[list[float]] = []
        for number, member in enumerate(self.members):
            if not member.layers or not len(member.profile.steps):
                continue
            steps, layer = member.profile.steps, member.layers[0]
            own = steps.device == steps.device.min()
            start, end = (self.us(layer, c[own]) for c in (steps.start_ps, steps.end_ps))
            seen = np.flatnonzero((end > from_us) & (start < to_us))
            if len(seen) > most or steps.basis == "recording":
                continue
            columns = (steps.number[own][seen], start[seen], end[seen])
            rows = zip(*(c.tolist() for c in columns), strict=True)
            found += [[number, *row] for row in rows]
        return found

    def typical_step(self) -> tuple[float, float] | None:
        """Start and end of a step of median length on all devices, of the first with steps."""
        for member in self.members:
            steps = member.profile.steps
            if not member.layers or not len(steps) or steps.basis == "recording":
                continue
            rows = steps.number == steps.typical
            times = np.array([steps.start_ps[rows].min(), steps.end_ps[rows].max()])
            start, end = self.us(member.layers[0], times).tolist()
            return start, end
        return None


def members_of(names: Sequence[str], profiles: Sequence[Profile], aligned: bool) -> list[Member]:
    """Profiles to be shown together; aligned ones start their first steps together.

    Their hosts are on one clock, on which collectives end together.
    """
    shifts = [0] * len(profiles)
    if aligned and any(len(profile.hosts) > 1 for profile in profiles):
        from slipstream.analyses.clocks import on_one_clock

        profiles = [on_one_clock(profile) for profile in profiles]
    if aligned and len(profiles) > 1:
        firsts = [_first_step_ps(profile) for profile in profiles]
        shifts = [firsts[0] - first for first in firsts]
    return [
        Member(name, profile, shift)
        for name, profile, shift in zip(_distinct(names), profiles, shifts, strict=True)
    ]


def _first_step_ps(profile: Profile) -> int:
    """The start of the first step; without steps, of the first event."""
    if len(profile.steps):
        return int(profile.steps.start_ps.min())
    starts = [int(t["start_ps"].min()) for t in (profile.events, profile.host_events) if len(t)]
    return min(starts, default=0)


def _distinct(names: Sequence[str]) -> list[str]:
    """The last part of each path, or as many parts as it takes to tell them apart."""
    names = [re.sub(r"(\.xplane\.pb|\.sqlite|\.nsys-rep|\.zip)?(\.gz)?/?$", "", n) for n in names]
    for depth in range(1, 12):
        short = ["/".join(name.split("/")[-depth:]) for name in names]
        if len(set(short)) == len(names):
            return short
    return [f"{number}: {name}" for number, name in enumerate(names, 1)]


def _span(layer: Layer) -> tuple[int, int]:
    """First start and last end, from the first and last slice of each track."""
    tracks = layer.pyramid.tracks
    firsts, lasts = tracks.bounds[:-1], tracks.bounds[1:] - 1
    start = int(tracks.start_ps[firsts].min())
    end = int((tracks.start_ps[lasts] + tracks.duration_ps[lasts]).max())
    return start + layer.member.shift_ps, end + layer.member.shift_ps

"""One step in full detail, for the timeline of a page.

It is the step of median length, on all devices that recorded it. A step with
very many events is thinned: neighbouring events too short to be seen become one block.

lane      ▏▏▏▏▏▏▏ ██████ ▏▏▏▏        seven, one and four events
thinned   ▓▓▓▓▓▓▓ ██████ ▓▓▓▓        7 slices · 1 · 4 slices
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.analyses.structure import LEVELS, PHASE, Level, Structure, structure
from slipstream.profile.events import Array
from slipstream.profile.grouping import group_pairs
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.names import PHASES
from slipstream.profile.timeline.kinds import kinds

KINDS = ("compute", "communication", "copy", "host")
STRUCTURE_KINDS = ("forward", "backward", "remat", "optimizer", "structure")
"""kinds of spans above the streams; they follow KINDS"""
MAX_SPANS = 12_000
"""spans of structure of all devices; the finest levels are left out of larger steps"""
HOST = 3
MAX_SLICES = 40_000
MAX_HOST_SLICES = 6_000
MAX_THREADS = 8
MAX_DEVICES = 8
FINEST = 1 / 8000
"""share of the step; in a thinned step, shorter slices are merged"""

OpKey = tuple[str, str]
"""program and instruction; for events without an instruction, program and kernel"""


@dataclass(frozen=True)
class LaneSlices:
    """One lane: slices in order of start; times are ns since the start of the step."""

    lane: int
    start: Array
    duration: Array
    label: Array
    kind: Array
    count: Array
    """number of events in a slice"""
    row: Array
    """the event of a slice; if it has several, the longest"""


@dataclass(frozen=True)
class StepWindow:
    """The step that is shown."""

    number: int
    devices: tuple[int, ...]
    left_out: int
    """number of devices of the step that are not shown"""
    rows: Array
    """rows of the steps table, one for each device"""
    lengths_us: tuple[float, ...]
    """of the step on each of its devices, also those that are not shown"""
    start_ps: int
    end_ps: int

    @property
    def span_us(self) -> float:
        """From the first start of the step to its last end, on the devices shown."""
        return (self.end_ps - self.start_ps) / 1e6


def window(profile: Profile) -> StepWindow | None:
    """The step of median length, on all devices that recorded it."""
    steps = profile.steps
    number = steps.typical
    if number is None:
        return None
    rows = np.flatnonzero(steps.number == number)
    rows = rows[np.argsort(steps.device[rows], kind="stable")]
    shown = rows[:MAX_DEVICES]
    return StepWindow(
        number,
        tuple(steps.device[shown].tolist()),
        len(rows) - len(shown),
        shown,
        tuple(((steps.end_ps - steps.start_ps)[rows] / 1e6).tolist()),
        int(steps.start_ps[shown].min()),
        int(steps.end_ps[shown].max()),
    )


class StepView:
    """The slices of a step, and their labels."""

    def __init__(self, profile: Profile, shown: StepWindow) -> None:
        self.profile = profile
        self.shown = shown
        self.labels: list[tuple[str, int, OpKey | None]] = []
        """(kernel or host event, kind, op) of each label"""
        lanes = self._device_lanes()
        self.events = sum(len(lane.start) for lane in lanes)
        span = (shown.end_ps - shown.start_ps) / 1e3
        lanes, self.grain_ns = _thinned(lanes, MAX_SLICES, span)
        self.lanes = lanes
        self.host_lanes = self._host_lanes()

    def _device_lanes(self) -> list[LaneSlices]:
        events = self.profile.events
        inside = np.isin(self.profile.steps.of_events(self.profile), self.shown.rows)
        rows = np.flatnonzero(inside)
        kind = kinds(self.profile)[rows]
        label = self._labelled(rows, kind)
        start, duration = (events.cells(c, rows) for c in ("start_ps", "duration_ps"))
        lane = events.cells("lane", rows)
        # Of events that start together, the longest comes first: it may contain the others.
        order = np.lexsort((-duration, start, lane))
        found = []
        for part in np.split(order, np.flatnonzero(np.diff(lane[order])) + 1):
            if len(part):
                begin = (start[part] - self.shown.start_ps) // 1000
                wide = duration[part] // 1000
                ones = np.ones(len(part), np.int64)
                number = int(lane[part[0]])
                columns = (begin, wide, label[part], kind[part], ones, rows[part])
                found.append(LaneSlices(number, *columns))
        return found

    def _labelled(self, rows: Array, kind: Array) -> Array:
        """The label of each event: its program, instruction and kernel."""
        events = self.profile.events
        cells = (events.cells(c, rows) for c in ("program", "instruction", "name"))
        program, instruction, name = cells
        groups, _ = group_pairs(program, instruction)
        groups, firsts = group_pairs(groups, name)
        for first in firsts.tolist():
            texts = (events.texts[int(c[first])] for c in (program, instruction, name))
            of, label, kernel = texts
            self.labels.append((kernel, int(kind[first]), (of, label or kernel)))
        return groups

    def _host_lanes(self) -> list[LaneSlices]:
        """The longest events of the busiest host threads in the step."""
        table, shown = self.profile.host_events, self.shown
        if not len(table):
            return []
        start, duration = table["start_ps"], table["duration_ps"]
        seen = (start < shown.end_ps) & (start + duration > shown.start_ps) & (duration > 0)
        rows = np.flatnonzero(seen & ~table["is_step"])
        busy = np.bincount(table["lane"][rows], duration[rows], len(self.profile.lanes))
        chosen = np.argsort(-busy, kind="stable")[:MAX_THREADS]
        rows = rows[np.isin(table["lane"][rows], chosen)]
        if len(rows) > MAX_HOST_SLICES:
            rows = rows[np.argsort(-duration[rows], kind="stable")[:MAX_HOST_SLICES]]
        names, place = np.unique(table["name"][rows], return_inverse=True)
        label = place + len(self.labels)
        self.labels += [(table.texts[i], HOST, None) for i in names.tolist()]
        begin = np.maximum(start[rows], shown.start_ps)
        end = np.minimum(start[rows] + duration[rows], shown.end_ps)
        found = []
        for lane in np.unique(table["lane"][rows]).tolist():
            own = np.flatnonzero(table["lane"][rows] == lane)
            own = own[np.lexsort((-(end - begin)[own], begin[own]))]
            ones = np.ones(len(own), np.int64)
            when = (begin[own] - shown.start_ps) // 1000
            wide = (end - begin)[own] // 1000
            found.append(LaneSlices(lane, when, wide, label[own], ones * HOST, ones, rows[own]))
        return found

    def data(self, ops: Mapping[OpKey, int], partners: Mapping[OpKey, str]) -> dict[str, Any]:
        """The data from which `report.js` builds the timeline."""
        shown = self.shown
        links = Links(self, partners)
        end_ns = (shown.end_ps - shown.start_ps) // 1000
        return {
            "end_ns": end_ns,
            "step": [0, end_ns, shown.number],
            "kinds": [*KINDS, *STRUCTURE_KINDS],
            "structure": self._structure(),
            "labels": [
                [name, kind, ops.get(key, -1) if key is not None else -1]
                for name, kind, key in self.labels
            ],
            "lanes": [self._lane(lane, links) for lane in (*self.lanes, *self.host_lanes)],
        }  # fmt: skip

    def _structure(self) -> list[dict[str, Any]]:
        """Spans above the streams of each device: module, phase, loop turn, scope, source line."""
        inside = np.isin(self.profile.steps.of_events(self.profile), self.shown.rows)
        rows = np.flatnonzero(inside)
        groups = {
            self.profile.lanes[lane.lane].device: self._group(lane.lane) for lane in self.lanes
        }
        made = [structure(self.profile, device, rows) for device in self.shown.devices]
        left, found = MAX_SPANS, []
        for one in made:
            for level in one.levels:
                if len(level) <= left and one.device in groups:
                    left -= len(level)
                    found.append(self._level(one, level, groups[one.device]))
        return found

    def _level(self, of: Structure, level: Level, group: str) -> dict[str, Any]:
        used, text = np.unique(level.text, return_inverse=True)
        base = len(KINDS)
        plain = np.full(len(level), base + STRUCTURE_KINDS.index("structure"))
        kind = base + np.minimum(level.phase, len(PHASES) - 2) if level.name == PHASE else plain
        kind = level.kind if level.kind is not None else kind
        start = (level.start_ps - self.shown.start_ps) // 1000
        return {
            "level": LEVELS.index(level.name),
            "name": level.name,
            "depth": level.depth,
            "group": group,
            "starts": np.diff(start, prepend=0).tolist(),
            "durations": (level.duration_ps // 1000).tolist(),
            "texts": [[of.texts[i], of.descriptions[i]] for i in used.tolist()],
            "text": text.ravel().tolist(),
            "kind": int(plain[0]) if kind is plain else kind.tolist(),
        }

    def _group(self, lane: int) -> str:
        """The name of the group of lanes that a lane belongs to."""
        about = self.profile.lanes[lane]
        host = self.profile.hosts[about.host].name
        several = len(self.profile.hosts) > 1
        if about.device is None:
            return f"Host threads · {host}" if several else "Host threads"
        device = self.profile.devices[about.device]
        return f"{device.name} · {host}" if several else device.name

    def _lane(self, lane: LaneSlices, links: Links) -> dict[str, Any]:
        about = self.profile.lanes[lane.lane]
        many = np.flatnonzero(lane.count > 1)
        return {
            "id": lane.lane,
            "name": about.name,
            "group": self._group(lane.lane),
            "kind": "lane" if about.device is None else "stream",
            "collapsed": about.device is None,
            "starts": np.diff(lane.start, prepend=0).tolist(),
            "durations": lane.duration.tolist(),
            "labels": lane.label.tolist(),
            "counts": np.stack((many, lane.count[many]), axis=1).tolist(),
            "partners": links.of(lane),
        }


class Links:
    """Links from one end of an asynchronous operation to the other, or to what waits for it."""

    def __init__(self, view: StepView, partners: Mapping[OpKey, str]) -> None:
        self.view = view
        self.places: dict[tuple[int, OpKey], list[tuple[int, int]]] = {}
        """(start, lane) of the events of an op on a device"""
        self.after = partners
        programs = view.profile.programs
        self.ends: dict[OpKey, tuple[str, bool]] = {}
        for _, _, key in view.labels:
            if key is None or key[0] not in programs or key[1] not in programs[key[0]]:
                continue
            program = programs[key[0]]
            start = program.starter(key[1])
            other = program.partner(start.name if start is not None else key[1])
            if other is not None:
                self.ends[key] = (other.name, program.instruction(key[1]).is_done)
        wanted = {(key[0], name) for key, (name, _) in self.ends.items()}
        wanted |= {(key[0], name) for key, name in partners.items()}
        for lane in view.lanes:
            device = int(view.profile.device_of_lane[lane.lane])
            keys = [view.labels[label][2] for label in lane.label.tolist()]
            for key, start, count in zip(keys, lane.start.tolist(), lane.count, strict=True):
                if key in wanted and key is not None and count == 1:
                    self.places.setdefault((device, key), []).append((start, lane.lane))
        for places in self.places.values():
            places.sort()

    def of(self, lane: LaneSlices) -> list[list[int]]:
        """[slice, lane of its partner, start of its partner] for the slices that have one."""
        about = self.view.profile.lanes[lane.lane]
        if about.device is None or not (self.ends or self.after):
            return []
        found = []
        for at, (label, start) in enumerate(
            zip(lane.label.tolist(), lane.start.tolist(), strict=True)
        ):
            key = self.view.labels[label][2]
            place = self._partner(about.device, key, start) if key is not None else None
            if place is not None and lane.count[at] == 1:
                found.append([at, place[1], place[0]])
        return found

    def _partner(self, device: int, key: OpKey, start: int) -> tuple[int, int] | None:
        other, is_done = self.ends.get(key, ("", False))
        places = self.places.get((device, (key[0], other)), [])
        if is_done:
            at = bisect_left(places, (start + 1,)) - 1
            return places[at] if at >= 0 else None
        if not places and key in self.after:
            places = self.places.get((device, (key[0], self.after[key])), [])
        at = bisect_left(places, (start,))
        return places[at] if at < len(places) else None


def _thinned(lanes: list[LaneSlices], most: int, span_ns: float) -> tuple[list[LaneSlices], float]:
    """At most about `most` slices, and the length below which slices were merged (0: none)."""
    if sum(len(lane.start) for lane in lanes) <= most:
        return lanes, 0.0
    grain = span_ns * FINEST
    while True:
        found = [_thin(lane, grain) for lane in lanes]
        if sum(len(lane.start) for lane in found) <= most or grain > span_ns:
            return found, grain
        grain *= 2


def _thin(lane: LaneSlices, grain: float) -> LaneSlices:
    """Merge neighbouring slices of one kind that are shorter than the grain."""
    small = lane.duration < grain
    stretch = (lane.start // grain).astype(np.int64)
    same = (np.diff(stretch) == 0) & (np.diff(lane.kind.astype(np.int64)) == 0)
    firsts = np.flatnonzero(np.concatenate(([True], ~(same & small[1:] & small[:-1]))))
    block = np.repeat(np.arange(len(firsts)), np.diff(firsts, append=len(small)))
    longest = np.lexsort((-lane.duration, block))[firsts]
    end = np.maximum.reduceat(lane.start + lane.duration, firsts)
    return LaneSlices(
        lane.lane,
        lane.start[firsts],
        end - lane.start[firsts],
        lane.label[longest],
        lane.kind[firsts],
        np.add.reduceat(lane.count, firsts),
        lane.row[longest],
    )

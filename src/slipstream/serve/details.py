"""The details of one slice: description, source, cost, slack, and what waits for it."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from slipstream.analyses.labels import bytes_of, found_instruction
from slipstream.analyses.slack import SlackRow, slack
from slipstream.profile.events import median
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.profile.timeline.nesting import self_durations
from slipstream.serve.labels import EventNames
from slipstream.serve.scene import KINDS, Layer, Member, Scene, SceneLane
from slipstream.units import format_bytes, format_time

_CHUNK = 1 << 16
_MAX_CHUNKS = 64
"""how far to search for a partner: about four million events of a lane"""

DetailRows = list[tuple[str, str]]


def detail(scene: Scene, lane_id: int, start_us: float, depth: int) -> dict[str, Any] | None:
    """The details of the slice that starts there; None if there is none."""
    lanes = scene.all_lanes
    if not 0 <= lane_id < len(lanes):
        return None
    lane = lanes[lane_id]
    place = _place(scene, lane, start_us, depth)
    if place is None:
        return None
    row = int(lane.layer.pyramid.tracks.rows(np.array([place]))[0])
    if isinstance(lane.layer.names, EventNames):
        return _Event(scene, lane, place, row, lane.layer.names).detail()
    if lane.level:
        return _span_detail(lane, place)
    return _host_detail(lane.layer, row)


def _place(scene: Scene, lane: SceneLane, start_us: float, depth: int) -> int | None:
    """The place of the slice that starts at a time, if there is one."""
    tracks = lane.layer.pyramid.tracks
    track = tracks.track(lane.lane, depth)
    if track is None:
        return None
    low, high = int(tracks.bounds[track]), int(tracks.bounds[track + 1])
    starts = tracks.start_ps[low:high]
    wanted = scene.ps(lane.layer, start_us)
    at = int(np.searchsorted(starts, wanted))
    near = [i for i in (at - 1, at) if 0 <= i < len(starts)]
    best = min(near, key=lambda i: abs(int(starts[i]) - wanted))
    # The page counts in floating-point microseconds.
    return low + best if abs(int(starts[best]) - wanted) <= 1000 else None


def _span_detail(lane: SceneLane, place: int) -> dict[str, Any]:
    """A span of structure; where its time went is in the summary of its range."""
    names = lane.layer.names
    group = int(names.groups[place])
    said = names.description(group)
    rows = [(lane.level, said)] if said else []
    return {"title": said or names.text(group), "rows": rows, "source": "", "partner": None}


def _host_detail(layer: Layer, row: int) -> dict[str, Any]:
    table = layer.table
    rows: DetailRows = [("kind", "host")]
    if table["is_step"][row]:
        rows.append(("step", str(int(table["step"][row]))))
    if table["correlation"][row]:
        rows.append(("launch", str(int(table["correlation"][row]))))
    return {"title": table.text("name", row), "rows": rows, "source": "", "partner": None}


_SlackRows = dict[tuple[str, str], SlackRow]
_slacks: WeakKeyDictionary[Member, dict[int, _SlackRows]] = WeakKeyDictionary()


def _slack_rows(member: Member, device: int) -> _SlackRows:
    """The slack of each instruction in the median step of a device."""
    known = _slacks.setdefault(member, {})
    if device not in known:
        rows = slack(member.profile, device=device).rows
        known[device] = {(row.program, row.instruction): row for row in rows}
    return known[device]


class _Event:
    """One device event and its details."""

    def __init__(
        self, scene: Scene, lane: SceneLane, place: int, row: int, names: EventNames
    ) -> None:
        self.scene, self.lane, self.layer = scene, lane, lane.layer
        self.place, self.row, self.names = place, row, names
        self.profile: Profile = lane.layer.member.profile
        self.group = int(names.groups[row])
        self.words = names.label(self.group)
        self.kind = KINDS[int(self.profile.event_kinds[row])]
        events = self.profile.events
        self.program, self.instruction, self.kernel, self.launch = (
            events.text(column, row) for column in ("program", "instruction", "name", "details")
        )
        self.found = found_instruction(self.profile, self.program, self.instruction)
        self.duration_ps = int(events["duration_ps"][row])
        self.device = int(self.profile.device_of_lane[lane.lane])

    def detail(self) -> dict[str, Any]:
        waits = self._slack()
        phase = self.words.phase if self.words.phase != "other" else ""
        said = [
            ("instruction", self.instruction),
            ("kind", self.kind),
            ("phase", phase),
            ("scope", self.words.scope),
            *self._cost(),
            *self._bytes(),
            *waits[0],
            ("program", self.program),
            ("kernel", self.kernel if self.kernel != self.instruction else ""),
            ("launch", self.launch),
            ("step", self._step()),
        ]
        return {
            "title": self.words.description or self.instruction or self.kernel,
            "rows": [(label, value) for label, value in said if value],
            "source": self.words.source,
            "partner": self._partner(waits[1]),
        }

    def _cost(self) -> DetailRows:
        """Time and number of the instruction's events in an execution of its program."""
        if not self.instruction:
            return []
        profile = self.profile
        alike = self.names.named(self.program, self.instruction)
        rows = np.flatnonzero(alike[self.names.groups])
        device = profile.event_devices[rows].astype(np.int64)
        # An execution that was cut off may lack some of its events, hence medians.
        _, run, events = np.unique(
            device << 32 | profile.events.cells("execution", rows),
            return_inverse=True,
            return_counts=True,
        )
        each = float(median(np.bincount(run.ravel(), self_durations(profile)[rows])))
        usual = int(np.sort(events)[len(events) // 2])
        often = f" in {usual:,} events" if usual > 1 else ""
        executions = "1 execution" if len(events) == 1 else f"median of {len(events):,} executions"
        return [("per execution", f"{format_time(each)}{often} ({executions})")]

    def _bytes(self) -> DetailRows:
        size = bytes_of(*self.found) if self.found is not None else None
        if not size or self.kind == "compute":
            return []
        speed = size / max(self.duration_ps, 1) * 1e12
        return [("bytes", f"{format_bytes(size)} at {format_bytes(speed)}/s")]

    def _slack(self) -> tuple[DetailRows, str]:
        """Slack of a collective or copy in its device's median step, and the op that needs it."""
        if self.kind == "compute" or self.found is None or not len(self.profile.steps):
            return [], ""
        rows = _slack_rows(self.layer.member, self.device)
        row = rows.get((self.program, self.instruction))
        if row is None:
            return [], ""
        limit = f"{row.limit} ({row.limit_source})" if row.limit_source else row.limit
        slack_text = "none" if row.is_zero else format_time(row.slack_us * 1e6)
        said = [
            ("slack", f"{slack_text}; needed by {limit}"),
            ("exposed", f"{format_time(row.exposed_us * 1e6)} of {format_time(row.total_us * 1e6)} "
             "in the median step"),
        ]  # fmt: skip
        return said, row.limit

    def _step(self) -> str:
        steps = self.profile.steps
        start = int(self.profile.events["start_ps"][self.row])
        inside = (steps.device == self.device) & (steps.start_ps <= start) & (start < steps.end_ps)
        found = np.flatnonzero(inside)
        return str(int(steps.number[found[0]])) if len(found) else ""

    # ---- partners -----------------------------------------------------------------------------

    def _partner(self, limit: str) -> dict[str, Any] | None:
        """The other end of an asynchronous operation; otherwise, what waits for it."""
        if self.found is None:
            return None
        program, instruction = self.found
        other = _other_end(program, instruction.name)
        found = self._nearest(other, before=instruction.is_done) if other else None
        if found is None and limit:
            found = self._nearest(limit, before=False)
        return found

    def _nearest(self, instruction: str, before: bool) -> dict[str, Any] | None:
        """The nearest event of an instruction on the same device, after this one or before it."""
        wanted = self.names.named(self.program, instruction)
        if not wanted.any():
            return None
        tracks, of_lane = self.layer.pyramid.tracks, self.profile.device_of_lane
        start, best = int(tracks.start_ps[self.place]), None
        for track in range(len(tracks)):
            if of_lane[tracks.lane[track]] != of_lane[self.lane.lane]:
                continue
            at = self._scan(track, start, wanted, before)
            if at is not None:
                apart = abs(int(tracks.start_ps[at]) - start)
                best = min(best, (apart, at, track)) if best else (apart, at, track)
        if best is None:
            return None
        _, at, track = best
        return {
            "lane": self.scene.id_of(self.layer, int(tracks.lane[track])),
            "start_us": float(self.scene.us(self.layer, tracks.start_ps[at : at + 1])[0]),
            "duration_us": int(tracks.duration_ps[at]) / 1e6,
            "depth": int(tracks.depth[track]),
            "name": instruction,
        }

    def _scan(self, track: int, start: int, wanted: Any, before: bool) -> int | None:
        tracks = self.layer.pyramid.tracks
        low, high = int(tracks.bounds[track]), int(tracks.bounds[track + 1])
        at = low + int(np.searchsorted(tracks.start_ps[low:high], start))
        for _ in range(_MAX_CHUNKS):
            begin, end = (max(low, at - _CHUNK), at) if before else (at, min(high, at + _CHUNK))
            if begin >= end:
                return None
            places = np.arange(begin, end)
            hits = np.flatnonzero(wanted[self.names.groups[tracks.rows(places)]])
            hits = hits[places[hits] != self.place]
            if len(hits):
                return int(places[hits[-1 if before else 0]])
            at = begin if before else end
        return None


def _other_end(program: Program, name: str) -> str:
    """The partner of a start, a done, or of what a start wraps."""
    starter = program.starter(name)
    partner = program.partner(starter.name if starter is not None else name)
    return partner.name if partner is not None else ""

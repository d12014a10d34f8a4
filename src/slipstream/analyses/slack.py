"""Slack: how much later each collective and copy could run without delaying the step.

compute        ███████████████    ████████████
all-gather.1      █████                │            needed by the second kernel:
                       └──── slack ────┘            could end (and start) that much later
all-gather.2                ███████████             its user waits for it: no slack, so it is on
                                                    the critical path

Slack is measured in one recorded step of one device.  Compute kernels stay where they are; a
collective or copy may move until the first instruction that needs its result (by the program's
dependencies), until the next one on its stream must begin, or until the step ends.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.def_use import DefUse
from slipstream.analyses.exposures import exposures
from slipstream.analyses.labels import Label, bytes_of, found_instruction, label
from slipstream.errors import BadInput
from slipstream.inline import Inline
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.profile.events import Array, median
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, kinds
from slipstream.profile.timeline.windows import hidden_windows

ZERO_US = 5.0
"""less slack than a kernel launch takes counts as none"""
LATENCY_US = 20.0
"""a waiting kernel begins at most this much later: such a gap without compute is not slack"""
STEP_START, STEP_END = "the start of the step", "the end of the step"


@dataclass(frozen=True)
class SlackRow:
    """One collective or copy of the step; inside loops, its execution with the least slack."""

    program: str
    instruction: str
    kind: str
    """`communication` or `copy`"""
    count: int
    """executions in the step"""
    bytes: int | None
    slack_us: float
    """how much later it could start and end: the least of its executions"""
    median_slack_us: float
    """the median of its executions"""
    start_us: float
    """from the start of the step; this and the following are of the execution with least slack"""
    end_us: float
    latest_end_us: float
    limit: str
    """what limits it: an instruction that needs it or follows on its stream, or the step's end"""
    limit_source: str
    limit_description: str
    earlier_us: float
    """how much earlier it could have started"""
    after: str
    """what had to end first: an instruction that it depends on, or the last one on its stream"""
    after_source: str
    after_description: str
    exposed_us: float
    """time in which the device does not compute, summed over its executions"""
    total_us: float
    """duration, summed over its executions"""
    phase: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""

    @property
    def is_zero(self) -> bool:
        return self.slack_us < ZERO_US


@dataclass(frozen=True)
class Slack(Inline):
    """Slack of every collective and copy in one step of one device."""

    device: str
    host: str
    step: int
    wall_us: float
    program: str
    rows: tuple[SlackRow, ...]
    """those without slack first, by exposed time; then the others by slack"""
    notes: tuple[str, ...] = ()


def slack(profile: Profile, step: int | None = None, device: int = 0) -> Slack:
    """Slack in one step of one device: the given step, or the one of median length."""
    chosen = _choose(profile, step, device)
    if chosen is None:
        return Slack("", "", 0, 0.0, "", (), ("the recording has no steps",))
    timeline = _Timeline(profile, chosen)
    rows = timeline.rows()
    where = profile.devices[int(profile.steps.device[chosen])]
    wall = int(profile.steps.end_ps[chosen] - profile.steps.start_ps[chosen]) / 1e6
    return Slack(
        where.name,
        profile.hosts[where.host].name,
        int(profile.steps.number[chosen]),
        wall,
        timeline.program_name,
        rows,
        timeline.notes,
    )


def _choose(profile: Profile, step: int | None, device: int) -> int | None:
    steps = profile.steps
    if profile.devices and not 0 <= device < len(profile.devices):
        names = ", ".join(f"{i} ({one.name})" for i, one in enumerate(profile.devices[:16]))
        more = ", …" if len(profile.devices) > 16 else ""
        raise BadInput(f"device {device} is not in this profile; its devices are: {names}{more}")
    own = np.flatnonzero(steps.device == device)
    if not len(own):
        return None
    if step is not None:
        found = own[steps.number[own] == step]
        if not len(found):
            numbers = steps.number[own]
            raise BadInput(
                f"step {step} is not in this profile (it has steps {numbers.min()} to "
                f"{numbers.max()}); see: slipstream summary"
            )
        return int(found[0])
    typical = own[steps.number[own] == steps.typical]
    if len(typical):
        return int(typical[0])
    wall = (steps.end_ps - steps.start_ps)[own]
    return int(own[np.argsort(wall, kind="stable")[(len(own) - 1) // 2]])


class _Timeline:
    """The events of one step in launch order, which is schedule order."""

    def __init__(self, profile: Profile, chosen: int) -> None:
        self.profile = profile
        events = profile.events
        rows = np.flatnonzero(profile.steps.of_events(profile) == chosen)
        order = np.lexsort((events.cells("start_ps", rows), events.cells("correlation", rows)))
        self.events = rows = rows[order]
        self.begin = int(profile.steps.start_ps[chosen])
        self.start = events.cells("start_ps", rows) - self.begin
        self.end = self.start + events.cells("duration_ps", rows)
        self.kind = kinds(profile)[rows]
        self.lane = events.cells("lane", rows)
        self.name = events.cells("instruction", rows)
        self.program_text = _most(events.cells("program", rows))
        self.program_name = events.texts[self.program_text] if len(rows) else ""
        self.finish = int(self.end.max()) if len(rows) else 0
        self.notes: tuple[str, ...] = ()
        self.places: dict[str, list[int]] = {}
        self.def_use: DefUse | None = None
        if self.program_name in profile.programs:
            self._index()
        else:
            self.notes = (
                "the profile does not contain the program, so only streams and the end of the step "
                "limit how much later work could run",
            )

    def _index(self) -> None:
        own = np.flatnonzero(
            (self.profile.events.cells("program", self.events) == self.program_text)
            & (self.name > 0)
        )
        order = own[np.argsort(self.name[own], kind="stable")]
        names, firsts = np.unique(self.name[order], return_index=True)
        parts = np.split(order, firsts[1:]) if len(names) else []
        texts = self.profile.events.texts
        self.places = {texts[int(n)]: part.tolist() for n, part in zip(names, parts, strict=True)}
        program = self.profile.programs[self.program_name]
        self.def_use = DefUse(program, self.places.keys())

    def rows(self) -> tuple[SlackRow, ...]:
        hidden = hidden_windows(self.profile)[self.events]
        if hidden.any():
            count = len({self._text(place) for place in np.flatnonzero(hidden).tolist()})
            self.notes += (_unknown(count),)
        movable = np.flatnonzero((self.kind != COMPUTE) & ~self._waits() & ~hidden)
        limits = _Limits(*self._latest(movable), *self._earliest(movable))
        exposed = self._exposed()
        groups: dict[str, list[int]] = {}
        for place in movable.tolist():
            groups.setdefault(self._text(place), []).append(place)
        found = []
        for name, members in groups.items():
            at = np.array(members)
            found.append(self._row(name, at, limits, float(exposed[at].sum()) / 1e6))
        found.sort(
            key=lambda row: (
                not row.is_zero,
                -row.exposed_us if row.is_zero else row.slack_us,
                row.start_us,
            )
        )
        return tuple(found)

    def _waits(self) -> Array:
        """Operations of a TPU that only start or await what its asynchronous lanes show."""
        beside = np.array([lane.is_beside for lane in self.profile.lanes], bool)
        found = np.zeros(len(self.start), bool)
        if not beside.any() or self.program_name not in self.profile.programs:
            return found
        program = self.profile.programs[self.program_name]
        shown = {self._text(place) for place in np.flatnonzero(beside[self.lane]).tolist()}
        for name, places in self.places.items():
            one = program.instruction(name)
            start = program.partner(name) if one.is_done else one
            if start is not None and (start.name in shown or is_slice_transfer(start)):
                found[places] = ~beside[self.lane[places]]
        return found

    def _slack(self, at: Array, latest: Array) -> Array:
        """Time between ends and latest ends; 0 if it is only the latency of the waiting kernel."""
        room = latest[at] - self.end[at]
        computes = self.kind == COMPUTE
        busy = IntervalUnion.of(self.start[computes], (self.end - self.start)[computes])
        waits = (busy.covered(self.end[at], latest[at]) == 0) & (room < LATENCY_US * 1e6)
        return np.where(waits, 0, room)

    def _text(self, place: int) -> str:
        events = self.profile.events
        named = events.texts[self.name[place]]
        return named or events.text("name", int(self.events[place]))

    def _next_on_lane(self) -> Array:
        order = np.lexsort((np.arange(len(self.start)), self.start, self.lane))
        following = np.full(len(self.start), -1, np.int64)
        same = self.lane[order][1:] == self.lane[order][:-1]
        # Operations on an asynchronous lane of a TPU run beside each other.
        roles = np.array([not lane.is_beside for lane in self.profile.lanes], bool)
        same &= roles[self.lane[order][1:]]
        following[order[:-1][same]] = order[1:][same]
        return following

    def _latest(self, movable: Array) -> tuple[Array, dict[int, int]]:
        """Latest ends, and the event that limits each; -1 for the end of the step."""
        latest = np.full(len(self.start), self.finish, np.int64)
        limit: dict[int, int] = {}
        following = self._next_on_lane()
        moving = np.zeros(len(self.start), bool)
        moving[movable] = True
        # From the last to the first by start: whatever limits an event starts after it, so its
        # own latest end is known by then.
        for place in movable[np.argsort(self.start[movable], kind="stable")][::-1].tolist():
            best, by = self.finish, -1
            for other in (int(following[place]), *self._users(place)):
                if other < 0:
                    continue
                # Compute and waits stay where they are; anything else may itself move.
                moves = latest[other] - self.end[other] if moving[other] else 0
                if self.start[other] + moves < best:
                    best, by = int(self.start[other] + moves), other
            latest[place] = max(best, int(self.end[place]))
            limit[place] = by
        return latest, limit

    def _users(self, place: int) -> list[int]:
        """The next event of each instruction that needs the result."""
        if self.def_use is None or self._text(place) not in self.places:
            return []
        return self._neighbours(place, self.def_use.users(self._text(place)).instructions, 1)

    def _neighbours(self, place: int, names: frozenset[str], side: int) -> list[int]:
        """The nearest event of each instruction launched after (side 1) or before (-1) this one."""
        found = []
        for name in names:
            places = self.places[name]
            at = bisect_right(places, place) if side > 0 else bisect_left(places, place) - 1
            if 0 <= at < len(places):
                found.append(places[at])
        return found

    def _earliest(self, movable: Array) -> tuple[Array, dict[int, int]]:
        """Earliest starts, and the event that limits each, if there is one."""
        producers: dict[str, set[str]] = {}
        if self.def_use is not None:
            for producer in self.places:
                for user in self.def_use.users(producer).instructions:
                    producers.setdefault(user, set()).add(producer)
        following = self._next_on_lane()
        before = np.full(len(self.start), -1, np.int64)
        some = following >= 0
        before[following[some]] = np.flatnonzero(some)
        earliest = np.zeros(len(self.start), np.int64)
        after: dict[int, int] = {}
        for place in movable.tolist():
            names = frozenset(producers.get(self._text(place), ()))
            needed = self._neighbours(place, names, -1)
            for other in (int(before[place]), *needed):
                if other >= 0 and self.end[other] > earliest[place]:
                    earliest[place], after[place] = int(self.end[other]), other
        return np.minimum(earliest, self.start), after

    def _exposed(self) -> Array:
        step = self.profile.with_events(self.profile.events.take(self.events))
        found = exposures(step, whole=True)
        times = np.zeros(len(self.events), np.int64)
        np.add.at(times, found.row, found.exposed_ps)
        return times

    def _row(self, name: str, at: Array, limits: _Limits, exposed_us: float) -> SlackRow:
        room = self._slack(at, limits.latest)
        worst = int(at[int(room.argmin())])
        named = label(self.profile, int(self.events[worst]))
        found = found_instruction(self.profile, named.program, named.instruction)
        limit = self._limit(limits.limit.get(worst, -1), STEP_END)
        after = self._limit(limits.after.get(worst, -1), STEP_START)
        return SlackRow(
            program=named.program,
            instruction=name,
            kind="communication" if self.kind[worst] == COMMUNICATION else "copy",
            count=len(at),
            bytes=bytes_of(*found) if found is not None else None,
            slack_us=float(room.min()) / 1e6,
            median_slack_us=float(median(room)) / 1e6,
            start_us=float(self.start[worst]) / 1e6,
            end_us=float(self.end[worst]) / 1e6,
            latest_end_us=float(limits.latest[worst]) / 1e6,
            limit=limit.instruction,
            limit_source=limit.source,
            limit_description=limit.description,
            earlier_us=float(self.start[worst] - limits.earliest[worst]) / 1e6,
            after=after.instruction,
            after_source=after.source,
            after_description=after.description,
            exposed_us=exposed_us,
            total_us=float((self.end[at] - self.start[at]).sum()) / 1e6,
            phase=named.phase,
            scope=named.scope,
            source=named.source,
            description=named.description,
        )

    def _limit(self, place: int, none: str) -> Label:
        """The event that limits another; `none` if there is none."""
        return Label("", none) if place < 0 else label(self.profile, int(self.events[place]))


@dataclass(frozen=True)
class _Limits:
    """Within what each event of the step could move, by its place in launch order."""

    latest: Array
    """latest end"""
    limit: dict[int, int]
    """the event that limits it; -1 for the end of the step"""
    earliest: Array
    """earliest start"""
    after: dict[int, int]
    """the event that had to end before it"""


def _unknown(count: int) -> str:
    each = "1 collective or copy" if count == 1 else f"{count} collectives and copies"
    return (
        f"{each} had ended before the step needed the result: a TPU does not record when, so their "
        "slack is unknown"
    )


def _most(values: Array) -> int:
    """The most frequent text, but not the empty one, which is number 0."""
    counts = np.bincount(values, minlength=1)
    counts[0] = 0
    return int(counts.argmax())

"""How much later each collective and copy could run without delaying the step.

compute        ███████████████    ████████████
all-gather.1      █████                │            needed by the second kernel:
                       └──── slack ────┘            could end (and start) that much later
all-gather.2                ███████████             its user waits for it: no slack

One step of one device as it was recorded.  Kernels that compute stay where they are; a collective
or copy may move until the first that needs its result (found through the program's dependencies),
until the next on its own stream must begin, or until the step ends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.def_use import DefUse
from slipstream.analyses.exposures import exposures
from slipstream.analyses.labels import bytes_of, found_instruction, label
from slipstream.errors import BadInput
from slipstream.profile.events import Array, median
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, kinds

ZERO_US = 5.0
"""less slack than a kernel's launch takes is none"""
LATENCY_US = 20.0
"""what waits begins this much later at the most: time without compute up to it is no slack"""
STEP_END = "the end of the step"


@dataclass(frozen=True)
class SlackRow:
    """One collective or copy of the step; with loops, its execution with the least slack."""

    program: str
    instruction: str
    kind: str
    """`communication` or `copy`"""
    count: int
    """executions in the step"""
    bytes: int | None
    slack_us: float
    """how much later it could start and end, at the least"""
    median_slack_us: float
    start_us: float
    """since the step began; of the execution with the least slack, like what follows"""
    end_us: float
    latest_end_us: float
    limit: str
    """what can't wait longer: the instruction that needs it or follows on its stream, or the end"""
    limit_source: str
    limit_description: str
    earlier_us: float
    """how much earlier it could have begun, had it been scheduled so"""
    after: str
    """what had to end before: an instruction whose result it takes, or the last on its stream"""
    after_source: str
    after_description: str
    exposed_us: float
    """time of all its executions in which the device does not compute"""
    total_us: float
    phase: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""

    @property
    def is_zero(self) -> bool:
        return self.slack_us < ZERO_US


@dataclass(frozen=True)
class Slack:
    """Slack of every collective and copy in one step of one device."""

    device: str
    host: str
    step: int
    wall_us: float
    program: str
    rows: tuple[SlackRow, ...]
    """without slack first, the most exposed of them first; then by slack"""
    notes: tuple[str, ...] = ()


def slack(profile: Profile, step: int | None = None, device: int = 0) -> Slack:
    """Slack in one step of one device: the given step, or the one of median length."""
    chosen = _choose(profile, step, device)
    if chosen is None:
        return Slack("", "", 0, 0.0, "", (), ("the recording has no steps",))
    timeline = _Timeline(profile, chosen)
    where = profile.devices[int(profile.steps.device[chosen])]
    wall = int(profile.steps.end_ps[chosen] - profile.steps.start_ps[chosen]) / 1e6
    return Slack(
        where.name,
        profile.hosts[where.host].name,
        int(profile.steps.number[chosen]),
        wall,
        timeline.program_name,
        timeline.rows(),
        timeline.notes,
    )


def _choose(profile: Profile, step: int | None, device: int) -> int | None:
    steps = profile.steps
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
    wall = (steps.end_ps - steps.start_ps)[own]
    return int(own[np.argsort(wall, kind="stable")[(len(own) - 1) // 2]])


class _Timeline:
    """The events of one step in launch order, which is the order of the program's schedule."""

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
        self.places: dict[str, Array] = {}
        self.values: DefUse | None = None
        if self.program_name in profile.programs:
            self._index()
        else:
            self.notes = (
                "the profile has no copy of the program: only streams and the step's end limit "
                "what could run later",
            )

    def _index(self) -> None:
        own = np.flatnonzero(
            (self.profile.events.cells("program", self.events) == self.program_text)
            & (self.name > 0)
        )
        order = own[np.argsort(self.name[own], kind="stable")]
        names, firsts = np.unique(self.name[order], return_index=True)
        parts = np.split(order, firsts[1:])
        texts = self.profile.events.texts
        self.places = {texts[int(n)]: part for n, part in zip(names, parts, strict=True)}
        program = self.profile.programs[self.program_name]
        self.values = DefUse(program, self.places.keys())

    def rows(self) -> tuple[SlackRow, ...]:
        asides = np.flatnonzero(self.kind != COMPUTE)
        latest, limit = self._latest(asides)
        earliest, after = self._earliest(asides)
        exposed = self._exposed()
        groups: dict[str, list[int]] = {}
        for place in asides.tolist():
            groups.setdefault(self._text(place), []).append(place)
        found = []
        for name, members in groups.items():
            at = np.array(members)
            room = self._room(at, latest)
            worst = int(at[int(room.argmin())])
            found.append(
                self._row(name, at, worst, room, latest, limit, earliest, after, exposed[at].sum())
            )
        found.sort(
            key=lambda row: (
                not row.is_zero,
                -row.exposed_us if row.is_zero else row.slack_us,
                row.start_us,
            )
        )
        return tuple(found)

    def _room(self, at: Array, latest: Array) -> Array:
        """Time between ends and latest ends; none where it is the wait's own latency."""
        room = latest[at] - self.end[at]
        computes = self.kind == COMPUTE
        busy = IntervalUnion.of(self.start[computes], (self.end - self.start)[computes])
        waits = (busy.covered(self.end[at], latest[at]) == 0) & (room < LATENCY_US * 1e6)
        return np.where(waits, 0, room)

    def _text(self, place: int) -> str:
        events, row = self.profile.events, int(self.events[place])
        return events.text("instruction", row) or events.text("name", row)

    def _next_on_lane(self) -> Array:
        order = np.lexsort((np.arange(len(self.start)), self.start, self.lane))
        following = np.full(len(self.start), -1, np.int64)
        same = self.lane[order][1:] == self.lane[order][:-1]
        following[order[:-1][same]] = order[1:][same]
        return following

    def _latest(self, asides: Array) -> tuple[Array, dict[int, int]]:
        """Latest ends, and what limits each: a place, or -1 for the end of the step."""
        latest = np.full(len(self.start), self.finish, np.int64)
        limit: dict[int, int] = {}
        following = self._next_on_lane()
        # Whatever an event waits for was launched before it, except on other streams' queues:
        # by start, everything that may limit an event is settled before it.
        for place in asides[np.argsort(self.start[asides], kind="stable")][::-1].tolist():
            best, by = self.finish, -1
            for other in (int(following[place]), *self._users(place)):
                if other < 0:
                    continue
                # What computes stays; what doesn't may itself move.
                moves = 0 if self.kind[other] == COMPUTE else latest[other] - self.end[other]
                if self.start[other] + moves < best:
                    best, by = int(self.start[other] + moves), other
            latest[place] = max(best, int(self.end[place]))
            limit[place] = by
        return latest, limit

    def _users(self, place: int) -> list[int]:
        """The first event of each instruction that needs the result, launched after it."""
        if self.values is None or self._text(place) not in self.places:
            return []
        return self._neighbours(place, self.values.users(self._text(place)).instructions, 1)

    def _neighbours(self, place: int, names: frozenset[str], side: int) -> list[int]:
        """The nearest event of each instruction, launched after (1) or before (-1) this one."""
        found = []
        for name in names:
            places = self.places[name]
            at = int(np.searchsorted(places, place, "right" if side > 0 else "left"))
            at += 0 if side > 0 else -1
            if 0 <= at < len(places):
                found.append(int(places[at]))
        return found

    def _earliest(self, asides: Array) -> tuple[Array, dict[int, int]]:
        """When each could have begun, and after what: a place, or -1 for the step's begin."""
        makers: dict[str, set[str]] = {}
        if self.values is not None:
            for maker in self.places:
                for user in self.values.users(maker).instructions:
                    makers.setdefault(user, set()).add(maker)
        following = self._next_on_lane()
        before = np.full(len(self.start), -1, np.int64)
        some = following >= 0
        before[following[some]] = np.flatnonzero(some)
        earliest = np.zeros(len(self.start), np.int64)
        after: dict[int, int] = {}
        for place in asides.tolist():
            names = frozenset(makers.get(self._text(place), ()))
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

    def _row(
        self,
        name: str,
        at: Array,
        worst: int,
        room: Array,
        latest: Array,
        limit: dict[int, int],
        earliest: Array,
        after: dict[int, int],
        exposed_ps: int,
    ) -> SlackRow:
        named = label(self.profile, int(self.events[worst]))
        found = found_instruction(self.profile, named.program, named.instruction)
        return SlackRow(
            named.program,
            name,
            "communication" if self.kind[worst] == COMMUNICATION else "copy",
            len(at),
            bytes_of(*found) if found is not None else None,
            float(room.min()) / 1e6,
            float(median(room)) / 1e6,
            float(self.start[worst]) / 1e6,
            float(self.end[worst]) / 1e6,
            float(latest[worst]) / 1e6,
            *self._said(worst, limit.get(worst, -1), STEP_END),
            float(self.start[worst] - earliest[worst]) / 1e6,
            *self._said(worst, after.get(worst, -1), "the start of the step"),
            float(exposed_ps) / 1e6,
            float((self.end[at] - self.start[at]).sum()) / 1e6,
            named.phase,
            named.scope,
            named.source,
            named.description,
        )

    def _said(self, place: int, other: int, none: str) -> tuple[str, str, str]:
        """(name, source, description) of what limits an event."""
        if other < 0:
            return none, "", ""
        named = label(self.profile, int(self.events[other]))
        return named.instruction, named.source, named.description


def _most(values: Array) -> int:
    """The most frequent value."""
    return int(np.bincount(values).argmax()) if len(values) else 0

"""Ops with what they took in every single step: what a comparison needs besides the means.

compute     ████ a ████        ████ b ████         a and b cost the step all of their time
collective      ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                 it costs what is exposed, and no more
                         ░░░░░░░
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.ops import UNATTRIBUTED, Op, ops
from slipstream.profile.events import Array, distinct
from slipstream.profile.intervals import Union
from slipstream.profile.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.profile.nesting import own_intervals
from slipstream.profile.profile import Profile

KINDS = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}


@dataclass(frozen=True)
class Sighting:
    """One op, its time and its cost in each step of one device (the mean of the devices)."""

    op: Op
    kind: str
    """`compute`, `communication` or `copy`"""
    device_us: tuple[float, ...]
    """device time in each step"""
    cost_us: tuple[float, ...]
    """of that, what the step pays: all of compute's, the exposed part of the rest"""
    executions: float
    """how often it runs in one step of one device"""
    is_inline: bool
    """whether it runs on a stream that mostly computes"""

    @property
    def us(self) -> float:
        """Device time in the median step."""
        return float(np.median(self.device_us))

    @property
    def cost(self) -> float:
        """What the median step pays."""
        return float(np.median(self.cost_us))


def sightings(profile: Profile) -> tuple[Sighting, ...]:
    """Every op of the steps (of the whole recording, where there are none), longest first."""
    found = ops(profile)
    seen = _Times(profile)
    rows = max(len(profile.steps), 1)
    return tuple(
        Sighting(op, *seen.of(_key(op)), op.count / rows, seen.is_inline(_key(op)))
        for op in found.ops
        if op.count
    )


def step_walls(profile: Profile) -> tuple[float, ...]:
    """How long each step took, in µs: the median of the devices."""
    steps = profile.steps
    walls = (steps.end_ps - steps.start_ps) / 1e6
    numbers = distinct(steps.number).tolist()
    return tuple(float(np.median(walls[steps.number == number])) for number in numbers)


def exposed(device: Array, kind: Array, start: Array, duration: Array) -> Array:
    """How much of each stretch of communication or copying nothing hides; all of compute's."""
    bare = duration.copy()
    for one in distinct(device[kind != COMPUTE]).tolist():
        own = device == one
        for moving, hiding in ((COMMUNICATION, kind == COMPUTE), (COPY, kind != COPY)):
            rows = np.flatnonzero(own & (kind == moving))
            if len(rows):
                hides = own & hiding
                union = Union.of(start[hides], duration[hides])
                bare[rows] -= union.covered(start[rows], start[rows] + duration[rows])
    return bare


class _Times:
    """Time, cost, kind and stream of each op, by program and label."""

    def __init__(self, profile: Profile) -> None:
        from slipstream.profile.grouping import group_pairs

        events = profile.events
        instruction = events["instruction"]
        label = np.where(instruction, instruction, -events["name"])
        groups, firsts = group_pairs(events["program"], label)
        owner, start, duration = own_intervals(profile)
        kind = kinds(profile)[owner]
        self.groups, self.count = groups[owner], len(firsts)
        self.columns, self.weights = _columns(profile)
        self.inside = self._inside(profile)[owner]
        self.device = self._table(duration)
        self.cost = self._table(exposed(profile.event_devices[owner], kind, start, duration))
        by_kind = [self._sums(duration * (kind == one)) for one in KINDS]
        self.kind = np.stack(by_kind).argmax(axis=0)
        lanes = events["lane"][owner]
        computing = np.bincount(lanes, duration * (kind == COMPUTE), len(profile.lanes))
        moving = np.bincount(lanes, duration * (kind != COMPUTE), len(profile.lanes))
        inline = self._sums(duration * (computing > moving)[lanes])
        self.inline = 2 * inline > self._sums(duration)
        self.rows = {_event_key(profile, row): i for i, row in enumerate(firsts.tolist())}

    def of(self, key: tuple[str, str]) -> tuple[str, tuple[float, ...], tuple[float, ...]]:
        row = self.rows[key]
        kind = KINDS[int(self.kind[row])]
        return kind, tuple(self.device[row].tolist()), tuple(self.cost[row].tolist())

    def is_inline(self, key: tuple[str, str]) -> bool:
        return bool(self.inline[self.rows[key]])

    def _inside(self, profile: Profile) -> Array:
        """The column of each event; one past the last for events in no step."""
        step_of = np.append(self.columns, len(self.weights))
        return step_of[profile.steps.rows_of(profile)]

    def _table(self, values: Array) -> Array:
        width = len(self.weights) + 1
        cells = self.groups * np.int64(width) + self.inside
        table = np.bincount(cells, values, self.count * width).reshape(self.count, width)
        return table[:, :-1] / (self.weights * 1e6)

    def _sums(self, values: Array) -> Array:
        return np.bincount(self.groups, values, self.count)


def _key(op: Op) -> tuple[str, str]:
    """An unattributed op is known by its kernel, which its description says."""
    is_known = op.instruction != UNATTRIBUTED
    return op.program, op.instruction if is_known else op.description


def _columns(profile: Profile) -> tuple[Array, Array]:
    """(which column each row of the steps goes to, how many devices a column is the mean of)."""
    number = profile.steps.number
    values = distinct(number)
    columns = np.searchsorted(values, number)
    return columns, np.bincount(columns, minlength=len(values)).astype(np.float64)


def _event_key(profile: Profile, row: int) -> tuple[str, str]:
    program, instruction, name = (
        profile.events.text(column, row) for column in ("program", "instruction", "name")
    )
    return program, instruction or f"kernel {name}"

"""Samples of every op: its time and cost in each single step.

compute     ████ a ████        ████ b ████         a and b cost the step all of their time
collective      ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒                 it only costs its exposed time
                         ░░░░░░░
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.analyses.exposures import exposures
from slipstream.analyses.ops import UNATTRIBUTED, Op, ops
from slipstream.profile.events import Array, distinct, median
from slipstream.profile.grouping import group_labels, group_table
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY

KINDS = {COMPUTE: "compute", COMMUNICATION: "communication", COPY: "copy"}


@dataclass(frozen=True, eq=False)
class StepSamples:
    """One op, with its time and cost in each step (mean over devices)."""

    op: Op
    kind: str
    """`compute`, `communication` or `copy`"""
    device_us: Array
    """device time in each step"""
    cost_us: Array
    """its cost to the step: all device time of compute, the exposed part of the rest"""
    executions: float
    """how often it runs in one step of one device"""
    is_inline: bool
    """whether it runs on a stream that mostly computes"""

    @cached_property
    def us(self) -> float:
        """Device time in the median step."""
        return float(median(self.device_us))

    @cached_property
    def cost(self) -> float:
        """Cost in the median step."""
        return float(median(self.cost_us))


def step_samples(profile: Profile) -> tuple[StepSamples, ...]:
    """Every op of the steps (of the whole recording, if there are none), longest first.

    Ops that take no time, as some of a TPU, are left out.
    """
    found = ops(profile)
    seen = _Times(profile)
    rows = max(len(profile.steps), 1)
    return tuple(
        StepSamples(op, *seen.of(_key(op)), op.count / rows, seen.is_inline(_key(op)))
        for op in found.ops
        if op.count and _key(op) in seen.rows
    )


def step_walls(profile: Profile) -> tuple[float, ...]:
    """Duration of each step in µs, median over devices."""
    steps = profile.steps
    order = np.argsort(steps.number, kind="stable")
    number, walls = steps.number[order], (steps.end_ps - steps.start_ps)[order] / 1e6
    firsts = np.flatnonzero(np.diff(number, prepend=number[:1] - 1))
    if len(firsts) == len(walls):
        return tuple(walls.tolist())
    return tuple(float(median(part)) for part in np.split(walls, firsts[1:]))


class _Times:
    """Time, cost, kind and stream of each op, by program and label."""

    def __init__(self, profile: Profile) -> None:
        seen = profile.segments
        self.groups, firsts = group_labels(profile.events, seen.row)
        self.count = len(firsts)
        self.columns, self.weights = _columns(profile)
        self.inside = self._inside(profile)[seen.row]
        self.device = self._table(seen.duration_ps)
        bare = seen.duration_ps.copy()
        bare[np.flatnonzero(seen.kind)] = exposures(profile, whole=True).exposed_ps
        self.cost = self._table(bare)
        self.kind = self._by(seen.kind, len(KINDS), seen.duration_ps).argmax(axis=1)
        self.inline = self._inline(profile)
        self.rows = {_event_key(profile, row): i for i, row in enumerate(seen.row[firsts].tolist())}

    def of(self, key: tuple[str, str]) -> tuple[str, Array, Array]:
        row = self.rows[key]
        return KINDS[int(self.kind[row])], self.device[row], self.cost[row]

    def is_inline(self, key: tuple[str, str]) -> bool:
        return bool(self.inline[self.rows[key]])

    def _inside(self, profile: Profile) -> Array:
        """The column of each event; one past the last for events outside the steps."""
        step_of = np.append(self.columns, len(self.weights))
        return step_of[profile.steps.of_events(profile)]

    def _table(self, values: Array) -> Array:
        width = len(self.weights) + 1
        return self._by(self.inside, width, values)[:, :-1] / (self.weights * 1e6)

    def _by(self, columns: Array, width: int, values: Array) -> Array:
        return group_table(self.groups, columns, values, (self.count, width))

    def _inline(self, profile: Profile) -> Array:
        """Whether most of each op's time is on streams that mostly compute."""
        seen = profile.segments
        lanes = profile.events.cells("lane", seen.row)
        shape = (len(profile.lanes), len(KINDS))
        by_lane = group_table(lanes, seen.kind, seen.duration_ps, shape)
        computes = 2 * by_lane[:, COMPUTE] > by_lane.sum(axis=1)
        times = self._by(lanes, len(profile.lanes), seen.duration_ps)
        inline: Array = 2 * times[:, computes].sum(axis=1) > times.sum(axis=1)
        return inline


def _key(op: Op) -> tuple[str, str]:
    """Program and instruction; an unattributed op is identified by its description."""
    is_known = op.instruction != UNATTRIBUTED
    return op.program, op.instruction if is_known else op.description


def _columns(profile: Profile) -> tuple[Array, Array]:
    """(column of each row of the steps, number of devices in each column)."""
    number = profile.steps.number
    values = distinct(number)
    columns = np.searchsorted(values, number)
    return columns, np.bincount(columns, minlength=len(values)).astype(np.float64)


def _event_key(profile: Profile, row: int) -> tuple[str, str]:
    program, instruction, name = (
        profile.events.text(column, row) for column in ("program", "instruction", "name")
    )
    return program, instruction or f"kernel {name}"

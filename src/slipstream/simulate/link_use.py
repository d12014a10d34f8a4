"""What the links of a GPU carry in a simulated step, and in which window each is fullest.

    gather 1   ██████████
    gather 2      ████            window: from the start of one operation to the end of another
               └────────┘         carried in it: all of the operations that lie within it

An operation that lies within a window has moved all its bytes there. No window may hold more than
its link carries in that time; if none does, some rates of the operations exist that never overload
the link.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.machines.links import link_names, program_loads
from slipstream.machines.machine import Machine
from slipstream.profile.events import Array
from slipstream.profile.program import Program
from slipstream.simulate.engine import Simulation

PS_PER_US = 1_000_000


@dataclass(frozen=True)
class Window:
    """A stretch of time, and the share of it that a link needs for what lies within."""

    start_ps: int
    end_ps: int
    full: float
    """1: the link is busy all the time; more is impossible"""


@dataclass(frozen=True)
class LinkUse:
    """One link in one step."""

    link: str
    bytes: float
    us: float
    """how long it is busy, if operations run at the rates they reach alone"""
    fullest: Window


def link_use(step: Simulation, program: Program, machine: Machine) -> tuple[LinkUse, ...]:
    """The links that a simulated step uses, the busiest first."""
    loads = program_loads(machine, program, step.estimates)
    by_label = {_label(program, name): found for name, found in loads.items()}
    events = step.profile.events
    start, duration = events["start_ps"], events["duration_ps"]
    labels = [by_label.get(text, ()) for text in events.texts]
    found = []
    for link, name in enumerate(link_names(machine)):
        us = np.array([sum(x.us for x in each if x.link == link) for each in labels])
        moved = np.array([sum(x.bytes for x in each if x.link == link) for each in labels])
        rows = np.flatnonzero(us[events["instruction"]])
        if len(rows):
            texts = events["instruction"][rows]
            window = fullest_window(
                start[rows], start[rows] + duration[rows], us[texts] * PS_PER_US
            )
            total = float(us[texts].sum())
            found.append(LinkUse(name, float(moved[texts].sum()), total, window))
    return tuple(sorted(found, key=lambda use: -use.us))


def fullest_window(start_ps: Array, end_ps: Array, busy_ps: Array) -> Window:
    """The window that needs the largest share of a link; `busy_ps` is the need of each operation.

    At least one operation must be given.
    """
    order = np.argsort(start_ps, kind="stable")
    start, end, busy = start_ps[order], end_ps[order], busy_ps[order]
    found = Window(int(start[0]), int(end[0]), 0.0)
    for first, last in _overlapping(start, end):
        for at in range(first, last):
            # Operations that start here or later, the first to end first.
            rank = at + np.argsort(end[at:last], kind="stable")
            lengths = np.maximum(end[rank] - start[at], 1)
            full = np.cumsum(busy[rank]) / lengths
            best = int(full.argmax())
            if full[best] > found.full:
                found = Window(int(start[at]), int(end[rank[best]]), float(full[best]))
    return found


def _overlapping(start: Array, end: Array) -> Iterator[tuple[int, int]]:
    """Runs of operations without a time between them at which none is in flight."""
    first = 0
    reached = np.maximum.accumulate(end)
    for at in range(1, len(start) + 1):
        if at == len(start) or start[at] >= reached[at - 1]:
            yield first, at
            first = at


def _label(program: Program, name: str) -> str:
    """As the timeline names it: a start by the operation that it wraps."""
    instruction = program.instruction(name)
    inner = program.wrapped(name) if instruction.is_start else None
    return (inner or instruction).name

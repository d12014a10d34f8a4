"""Arrows between slices: from a launch to its kernel, from an asynchronous start to its end.

    host     ██ launch
              ╲
    stream     ╲ ███ all-gather-start ████
                                          ╲
    stream    ████ fusion.1 ███            ╲ ██ fusion.2, which needs the result

An asynchronous operation ends in its done event if one was recorded (on TPU and CPU). On a GPU
the done is a wait of the stream, which is not recorded, so the arrow ends in the first op that
needs the result.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.def_use import DefUse
from slipstream.profile.attribution.executions import launch_keys, used_texts
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program


@dataclass(frozen=True)
class Arrows:
    """Arrows from one row to another."""

    start: Array
    end: Array

    def __len__(self) -> int:
        return len(self.start)


def launch_arrows(profile: Profile) -> Arrows:
    """From the host event (a row of `host_events`) to the first device event it launched."""
    events, calls = profile.events, profile.host_events
    hosts = np.array([lane.host for lane in profile.lanes], np.int64)
    parts = [_NONE]
    for host in range(len(profile.hosts)):
        own = calls["correlation"] > 0
        own[own] = hosts[calls["lane"][own]] == host
        call = _latest_of_each(np.flatnonzero(own), calls["correlation"], calls["start_ps"])
        rows = np.flatnonzero(events["correlation"] > 0)
        rows = rows[hosts[events["lane"][rows]] == host]
        order = np.lexsort((events["start_ps"][rows], events["correlation"][rows]))
        rows = rows[order]
        launched = events["correlation"][rows]
        first = rows[np.flatnonzero(np.diff(launched, prepend=-1))]
        launched = events["correlation"][first]
        place = np.searchsorted(launched, calls["correlation"][call])
        place = np.minimum(place, max(len(first) - 1, 0))
        if not len(first):
            continue
        is_own = launched[place] == calls["correlation"][call]
        # The clocks of host and device may differ; an arrow never goes back in time.
        is_own &= calls["start_ps"][call] <= events["start_ps"][first[place]]
        parts.append(Arrows(call[is_own], first[place][is_own]))
    return _joined(parts)


def _latest_of_each(rows: Array, numbers: Array, starts: Array) -> Array:
    """Of rows with the same number, the last to start: the innermost of nested calls."""
    order = rows[np.lexsort((starts[rows], numbers[rows]))]
    return order[np.flatnonzero(np.diff(numbers[order], append=-1))]


def async_arrows(profile: Profile) -> Arrows:
    """From an asynchronous operation to its done event, or to the first op that needs it."""
    events = profile.events
    names = {events.texts[i]: i for i in used_texts(events, "program")}
    parts = [_NONE]
    order: _Order | None = None
    for name in names:
        if name in profile.programs:
            order = order or _Order(profile)
            parts += _of_program(profile.programs[name], order, names[name])
    return _joined(parts)


class _Order:
    """Events in launch order, device by device, and where each instruction's events are."""

    def __init__(self, profile: Profile) -> None:
        events = profile.events
        keys = (events["start_ps"], launch_keys(events), profile.event_devices)
        self.rows = np.lexsort(keys)
        self.device = profile.event_devices[self.rows]
        self.program, self.label, self.execution, self.start = (
            events[column][self.rows]
            for column in ("program", "instruction", "execution", "start_ps")
        )
        self.texts = events.texts

    def places(self, program: int) -> dict[str, Array]:
        own = np.flatnonzero((self.program == program) & (self.label > 0))
        own = own[np.argsort(self.label[own], kind="stable")]
        if not len(own):
            return {}
        begins = np.flatnonzero(np.diff(self.label[own], prepend=-1))
        parts = np.split(own, begins[1:])
        return {self.texts[int(self.label[part[0]])]: part for part in parts}

    def arrows(self, starts: Array, ends: Array) -> Arrows:
        """To the next of `ends` after each of `starts`, in the same execution."""
        ends = np.sort(ends)
        place = np.searchsorted(ends, starts, "right")
        inside = place < len(ends)
        starts, target = starts[inside], ends[place[inside]]
        fits = (self.device[starts] == self.device[target]) & (
            self.execution[starts] == self.execution[target]
        )
        fits &= self.start[starts] <= self.start[target]
        # If an operation has several kernels, the arrow starts at the last.
        fits &= np.diff(target, append=-1) != 0
        return Arrows(self.rows[starts[fits]], self.rows[target[fits]])


def _of_program(program: Program, order: _Order, text: int) -> list[Arrows]:
    places = order.places(text)
    values = DefUse(program, places.keys())
    found = []
    for name, rows in places.items():
        ends = _ends(program, values, name, places)
        if ends:
            found.append(order.arrows(rows, np.concatenate([places[end] for end in ends])))
    return found


def _ends(program: Program, values: DefUse, name: str, places: dict[str, Array]) -> list[str]:
    """Instructions whose slices end an asynchronous operation; empty for other operations."""
    if name not in program:
        return []
    begin = program.starter(name)
    if begin is None:
        begin = program.instruction(name)
        if not begin.is_start:
            return []
    done = program.partner(begin.name)
    if done is not None and done.name in places:
        return [done.name]
    return sorted(values.users(name).instructions)


def _joined(parts: list[Arrows]) -> Arrows:
    return Arrows(
        np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts])
    )


_NONE = Arrows(np.empty(0, np.int64), np.empty(0, np.int64))

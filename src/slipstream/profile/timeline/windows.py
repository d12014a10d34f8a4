"""Asynchronous operations as a TPU records them: from their start to the end of their done.

    XLA Ops         start ▌  fusion ███████████  done ▌          it had ended before: hidden
    Async XLA Ops         ├──────────────────────────┤

    XLA Ops         start ▌  fusion ████  done ███████           the core waited until it ended
    Async XLA Ops         ├──────────────────────────┤

Only a done that waits shows when the operation ended. A recording doesn't say when a hidden one
did: its own time, its bandwidth and its slack are unknown.
"""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile

WAITED_PS = 1_000_000
"""a done that takes longer has waited: it takes some nanoseconds if there is nothing to wait for"""


def hidden_windows(profile: Profile) -> Array:
    """Whether each event is the window of an operation that had ended before its done."""
    hidden = np.zeros(len(profile.events), bool)
    lanes = np.array([lane.role == "windows" for lane in profile.lanes], bool)
    if lanes.any():
        pairs = _Pairs(profile, lanes)
        for start, done in pairs.found:
            hidden[pairs.of(start)] = pairs.arrived(start, done)
    return hidden


def attending(profile: Profile) -> Array:
    """Whether each event only starts or awaits an operation that has an event of its own.

    On a TPU, the cores' lane shows the start and the done, and another lane the operation.
    """
    beside = np.array([lane.is_beside for lane in profile.lanes], bool)
    if not beside.any():
        return np.zeros(len(profile.events), bool)
    pairs = _Pairs(profile, beside)
    ends = [done for _, done in pairs.found]
    return np.isin(pairs.keys, [*pairs.starts, *ends]) & ~pairs.shown


class _Pairs:
    """Asynchronous operations on some lanes, and the dones that await them.

    Instructions are (program, instruction) as one number.
    """

    def __init__(self, profile: Profile, lanes: Array) -> None:
        self.profile = profile
        events = profile.events
        self.shown = lanes[events["lane"]]
        self.keys = events["program"].astype(np.int64) << 32 | events["instruction"]
        self.order = np.argsort(self.keys, kind="stable")
        self.ordered = self.keys[self.order]
        self.starts: list[int] = np.unique(self.keys[self.shown]).tolist()
        index = {text: number for number, text in enumerate(events.texts)}
        self.found: list[tuple[int, int]] = []
        for key in self.starts:
            name, start = events.texts[key >> 32], events.texts[key & 0xFFFFFFFF]
            program = profile.programs.get(name)
            done = program.partner(start) if program is not None and start in program else None
            if done is not None and done.name in index:
                self.found.append((key, key >> 32 << 32 | index[done.name]))

    def of(self, start: int) -> Array:
        """The windows of an operation."""
        rows = self._rows(start)
        return rows[self.shown[rows]]

    def arrived(self, start: int, done: int) -> Array:
        """Whether the done that ends each window took no time."""
        events, devices = self.profile.events, self.profile.event_devices
        windows, dones = self.of(start), self._rows(done)
        found = np.zeros(len(windows), bool)
        for device in np.unique(devices[windows]).tolist():
            at = np.flatnonzero(devices[windows] == device)
            own = dones[devices[dones] == device]
            if not len(own):
                continue
            length = events.cells("duration_ps", own)
            ends = events.cells("start_ps", own) + length
            order = np.argsort(ends, kind="stable")
            rows = windows[at]
            until = events.cells("start_ps", rows) + events.cells("duration_ps", rows)
            middles = (ends[order][1:] + ends[order][:-1]) // 2
            found[at] = length[order][np.searchsorted(middles, until)] < WAITED_PS
        return found

    def _rows(self, key: int) -> Array:
        first, last = np.searchsorted(self.ordered, [key, key + 1])
        rows: Array = self.order[first:last]
        return rows

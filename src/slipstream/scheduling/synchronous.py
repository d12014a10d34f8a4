"""Collectives that XLA makes synchronous: nothing is launched between their start and their done.

    start f   start g   tuple   done f   kernel   done g
    └──── f: synchronous ────────────┘
              └──── g: asynchronous ──────────────────┘

XLA runs such a collective where its start is, as a kernel on the compute stream. Waits and starts
of other collectives between the two don't count; sends, receives and copies do.

What launches something parts a sequence into stretches, and a pair is synchronous if both lie in
one stretch. So a change to part of a sequence matters to no pair outside the stretches it touches.
"""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import Array
from slipstream.scheduling.tasks import LIGHT, Tasks

_NOT_MADE = ("send", "recv")
"""operations that XLA leaves asynchronous"""


class Stretches:
    """Finds the synchronous collectives in sequences of one computation."""

    def __init__(self, tasks: Tasks) -> None:
        self._start_of = tasks.start_of
        instructions = tasks.computation.instructions
        starts = {one for one in tasks.collectives if instructions[one].opcode not in _NOT_MADE}
        self.starts = frozenset(starts & set(tasks.start_of.values()))
        """of the collectives that XLA may make synchronous"""
        is_end = [tasks.start_of.get(task, task) in self.starts for task in range(len(tasks))]
        self._is_end = np.array(is_end, bool)
        """starts and dones of these"""
        self.parts = (np.array(tasks.kinds) != LIGHT) & ~self._is_end
        """whether each task ends a stretch"""

    def pairs(self, sequence: Array) -> tuple[list[int], list[int]]:
        """The places of starts, and of their dones, in whole stretches of a sequence."""
        stretches = np.cumsum(self.parts[sequence])
        places = np.flatnonzero(self._is_end[sequence])
        ends = zip(
            places.tolist(), sequence[places].tolist(), stretches[places].tolist(), strict=True
        )
        begun: dict[int, tuple[int, int]] = {}
        starts: list[int] = []
        dones: list[int] = []
        for place, task, stretch in ends:
            start = self._start_of.get(task)
            if start is None:
                begun[task] = (place, stretch)
            elif start in begun and begun[start][1] == stretch:
                starts.append(begun[start][0])
                dones.append(place)
        return starts, dones

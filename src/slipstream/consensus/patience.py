"""How long ranks wait for each other: stated here, and nowhere else.

A step of the job waits only in `Consensus.decide` and `Consensus.wait_for_all`, and `StepWaits`
says for how long. Everything else is waited for in the background, while the job goes on.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Patience:
    """The longest waits of one rank, for one program."""

    step_s: float = 20.0
    """for which its steps wait in vain, in all; then all ranks keep the original program"""
    meeting_s: float = 1.0
    """of it, at one meeting that can be put off"""
    background_s: float = 600.0
    """for all ranks to join, or to send their costs: no step waits meanwhile"""
    compile_s: float = 3600.0
    """for all ranks to compile: no step waits meanwhile"""


class StepWaits:
    """The waits of one rank's steps for other ranks."""

    def __init__(self, patience: Patience) -> None:
        self._patience = patience
        self._in_vain_s = 0.0
        self.longest_s = 0.0
        """for one decision, whether it came or not"""

    @property
    def left_s(self) -> float:
        return max(self._patience.step_s - self._in_vain_s, 0.0)

    @property
    def for_meeting_s(self) -> float:
        """For a decision that can be put off to a later meeting."""
        return min(self._patience.meeting_s, self.left_s)

    @property
    def for_messages_s(self) -> float:
        """For the other ranks' messages: less than they wait for what is decided by them."""
        return self.left_s / 2

    def in_vain(self, seconds: float) -> None:
        """Nothing came for so long."""
        self._in_vain_s += seconds

    @contextmanager
    def measured(self) -> Iterator[None]:
        began_s = time.monotonic()
        try:
            yield
        finally:
            self.longest_s = max(self.longest_s, time.monotonic() - began_s)

"""Instructions inside CUDA graphs that nothing in a recording tells apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array, Table, Texts
from slipstream.profile.profile import ProfileWarning

_LEAST_DOUBT = 0.001
"""share of device time from which on doubts are worth a warning"""

Pairs = frozenset[frozenset[str]]


@dataclass(frozen=True)
class Doubts:
    """Which instructions can't be told apart, as pairs."""

    undecided: Pairs = frozenset()
    """they may have each other's time"""
    interchangeable: Pairs = frozenset()
    """they compute the same, so that only their sum is certain"""

    def __or__(self, other: Doubts) -> Doubts:
        return Doubts(
            self.undecided | other.undecided, self.interchangeable | other.interchangeable
        )

    def warnings(
        self, program: str, events: Table, instruction: Array, texts: Texts
    ) -> Iterator[ProfileWarning]:
        """Says which instructions they are, and how much time they have."""
        for pairs, what in (
            (self.undecided, "each may have been given another's time"),
            (self.interchangeable, "they compute the same, so only their sum is certain"),
        ):
            names = sorted(frozenset[str]().union(*pairs))
            share = _share(events, instruction, [texts.index(name) for name in names])
            if share >= _LEAST_DOUBT:
                some = f"{', '.join(names[:4])}{', …' if len(names) > 4 else ''}"
                yield ProfileWarning(
                    "graph-order",
                    f"{program}: {len(names)} instructions ({share:.1%} of device time) can't be "
                    "told apart inside CUDA graphs, which ran in another order than the "
                    f"schedule's: {some}; {what}. To tell them apart, record without command "
                    "buffers (xla_gpu_enable_command_buffer='')",
                )


def _share(events: Table, instruction: Array, labels: list[int]) -> float:
    """The share of device time that some instructions have."""
    if not labels:
        return 0.0
    duration = events["duration_ps"]
    return int(duration[np.isin(instruction, labels)].sum()) / max(int(duration.sum()), 1)

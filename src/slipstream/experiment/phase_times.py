"""How long each phase of an experiment took, on this rank and on all of them.

Only `join`, `capture`, `compare` and `check` happen in steps of the job, which go on meanwhile; the
other phases happen in a thread beside them.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from slipstream.consensus.consensus import Consensus

PHASES: Mapping[str, str] = {
    "join": "until all ranks take part",
    "capture": "the recorded steps",
    "extract": "costs from this rank's recording",
    "merge": "until the costs of all ranks are merged, with the wait for the slowest rank",
    "compile": "all variants",
    "vote": "until all ranks have compiled the same programs",
    "compare": "the rounds",
    "check": "the recorded steps of the best program",
}
WAIT = "longest step wait"
"""the longest that a step of the job waited for other ranks"""
GATHERING_S = 5.0
"""for the other ranks' times, once a comparison is over; no step waits meanwhile"""


class PhaseTimes:
    """The seconds of each phase on one rank."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._began_s: dict[str, float] = {}

    def begin(self, phase: str) -> None:
        self._began_s[phase] = time.monotonic()

    def end(self, phase: str) -> None:
        """End a phase; one that never began took no time."""
        began_s = self._began_s.pop(phase, None)
        if began_s is not None:
            took_s = time.monotonic() - began_s
            self.seconds[phase] = self.seconds.get(phase, 0.0) + took_s

    def end_all(self) -> None:
        for phase in list(self._began_s):
            self.end(phase)

    @contextmanager
    def measured(self, phase: str) -> Iterator[None]:
        self.begin(phase)
        try:
            yield
        finally:
            self.end(phase)


def send_times(consensus: Consensus, times: PhaseTimes) -> None:
    """Tell the leader how long each phase took here."""
    consensus.publish("times", {**times.seconds, WAIT: consensus.waits.longest_s})


def times_of_ranks(consensus: Consensus, *, is_over: bool) -> dict[str, Any]:
    """Seconds by phase, for the receipt: of all ranks on the leader, else of this rank.

    The others have sent theirs only if the comparison is over on all ranks.
    """
    if consensus.is_leader and is_over:
        received = consensus.from_all("times", GATHERING_S) or consensus.received("times")
    else:
        own = consensus.from_rank(consensus.rank, "times")
        received = {consensus.rank: own} if own is not None else {}
    return {
        "count": len(consensus.ranks),
        "reported": len(received),
        "seconds": {
            phase: summary
            for phase in (*PHASES, WAIT)
            if (summary := _summary({r: s[phase] for r, s in received.items() if phase in s}))
        },
    }


def _summary(seconds: Mapping[int, float]) -> dict[str, Any] | None:
    if not seconds:
        return None
    slowest, rank = max((seconds, rank) for rank, seconds in seconds.items())
    return {
        "median": round(statistics.median(seconds.values()), 4),
        "slowest": round(slowest, 4),
        "rank": rank,
    }

"""Programs compiled anew beside the job, and this rank's vote once they are there."""

from __future__ import annotations

import logging
import threading

from slipstream.loop.council import Council, Words
from slipstream.loop.ending import Ending, in_background
from slipstream.loop.plan import Outcome, Plan
from slipstream.loop.preparing import Preparation
from slipstream.loop.votes import vote_of
from slipstream.loop.watched import Watched

log = logging.getLogger("slipstream")


class Workshop:
    """One thread, for one program."""

    def __init__(self, prepare: Preparation, watched: Watched, plan: Plan, outcome: Outcome):
        self._prepare = prepare
        self._watched = watched
        self._plan = plan
        self._outcome = outcome
        self._worker: threading.Thread | None = None

    def begin(self, council: Council) -> None:
        self._worker = in_background(lambda: self._work(council), "slipstream")

    def join(self, timeout_s: float) -> None:
        """Wait for compiles in the background: Python must not end under them."""
        if self._worker is not None:
            self._worker.join(timeout_s)

    def _work(self, council: Council) -> None:
        try:
            self._prepare(self._watched, self._plan, self._outcome)
            words: Words = vote_of(self._outcome.arms, self._outcome.costs_bytes)
        except Ending as error:
            words = {"problem": str(error)}
        except Exception as error:
            # Whatever it is: the other ranks wait for a vote, and nobody for this thread.
            log.warning("slipstream: %s is not compiled anew", self._watched.name, exc_info=True)
            words = {"problem": f"{type(error).__name__}: {error}"}
        council.vote(words)

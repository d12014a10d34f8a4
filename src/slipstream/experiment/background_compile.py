"""Programs compiled anew beside the job, and this rank's vote once they are there."""

from __future__ import annotations

import logging
import threading

from slipstream.consensus.consensus import Consensus, Message
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import Preparation
from slipstream.experiment.votes import vote_of
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.shutdown import ShuttingDown, run_in_background

log = logging.getLogger("slipstream")


class BackgroundCompile:
    """One thread, for one program."""

    def __init__(
        self,
        prepare: Preparation,
        watched: CompiledProgram,
        plan: ExperimentPlan,
        outcome: ExperimentOutcome,
    ):
        self._prepare = prepare
        self._watched = watched
        self._plan = plan
        self._outcome = outcome
        self._worker: threading.Thread | None = None

    def begin(self, consensus: Consensus) -> None:
        self._worker = run_in_background(lambda: self._work(consensus), "slipstream")

    def join(self, timeout_s: float) -> None:
        """Wait for compiles in the background: Python must not end under them."""
        if self._worker is not None:
            self._worker.join(timeout_s)

    def _work(self, consensus: Consensus) -> None:
        try:
            self._prepare(self._watched, self._plan, self._outcome)
            words: Message = vote_of(self._outcome.arms, self._outcome.costs_bytes)
        except ShuttingDown as error:
            words = {"problem": str(error)}
        except Exception as error:
            # Whatever it is: the other ranks wait for a vote, and nobody for this thread.
            log.warning("slipstream: %s is not compiled anew", self._watched.name, exc_info=True)
            words = {"problem": f"{type(error).__name__}: {error}"}
        consensus.vote(words)

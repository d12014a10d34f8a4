"""An arm that failed while it ran a step of the job: may another program take that step?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.consensus.consensus import Consensus
from slipstream.jaxhooks.compiled_program import CompiledProgram

NO_MEMORY = "RESOURCE_EXHAUSTED"
FAILED_S = 30.0
"""how long a rank on which an arm failed waits to hear that it failed on all"""


class StepFailure:
    """What went wrong, and what is left of the step."""

    def __init__(self, error: Exception, watched: CompiledProgram, consensus: Consensus) -> None:
        words = str(error).strip().splitlines() or [type(error).__name__]
        self.why = words[0]
        self._watched = watched
        self._consensus = consensus

    def is_shared(self) -> bool:
        """Whether it failed on all ranks: else the others are inside this arm's collectives."""
        if self._consensus.is_alone:
            return True
        topic = f"failed-{self._watched.calls}"
        self._consensus.publish(topic, {"why": self.why})
        return self._consensus.wait_for_all(topic, FAILED_S) is not None

    def is_repeatable(self, arguments: Sequence[Any]) -> bool:
        """Whether the step can be done again as if it had not begun.

        Memory is had before anything runs. What fails later may have written over arguments that
        it was given for good, even if JAX does not count them as deleted, or called the host.
        """
        if any(getattr(value, "is_deleted", bool)() for value in arguments):
            return False
        return NO_MEMORY in self.why or self._watched.is_repeatable

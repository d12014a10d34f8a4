"""The profiles that a loop takes of its program: before, and of what was found; one at a time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.experiment.plan import ExperimentOutcome
from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession


class Recordings:
    """Those of one loop; `on_failure` hears the name of one that there won't be, and why."""

    def __init__(
        self, outcome: ExperimentOutcome, options: Any, on_failure: Callable[[str, str], None]
    ) -> None:
        self._outcome = outcome
        self._options = options
        self._on_failure = on_failure
        self._name = ""
        self._session: ProfilerSession | None = None

    def begin(self, name: str, folder: Path) -> None:
        session = ProfilerSession(folder / "profiles" / name, self._options)
        try:
            session.start()
        except ProfilerFailed as problem:
            self._on_failure(name, str(problem))
            return
        self._name, self._session = name, session

    def end(self) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self._outcome.profiles[self._name] = session.stop()
        except ProfilerFailed as problem:
            self._on_failure(self._name, str(problem))

    def give_way(self) -> None:
        """The job wants the profiler for itself; JAX allows one session in a process."""
        if self.abandon():
            self._on_failure(self._name, "the job's own profiler session began")

    def abandon(self) -> bool:
        """Give up what is under way, if anything is."""
        session, self._session = self._session, None
        if session is None:
            return False
        session.abandon()
        return True

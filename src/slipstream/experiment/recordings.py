"""One profile at a time: begin, end, or give way to the job's own profiler session."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from slipstream.jaxhooks.jax_types import ProfilerOptions
from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession

TRIES = 4
"""attempts to record, some calls apart: the job may use the profiler itself"""


def calls_before_retry(steps: int, failures: int) -> int:
    """How many calls to wait after so many failures, for a recording of so many steps."""
    return 5 * steps * failures


class ProfileRecorder:
    """Records profiles of a job; failures go to `on_failure`, and are never raised."""

    def __init__(
        self,
        options: ProfilerOptions,
        on_failure: Callable[[str], None],
        session_type: type[ProfilerSession] | None = None,
    ) -> None:
        self._options = options
        self._on_failure = on_failure
        self._session_type = session_type or ProfilerSession
        self._session: ProfilerSession | None = None

    @property
    def is_recording(self) -> bool:
        return self._session is not None

    def begin(self, folder: Path) -> bool:
        """Start recording into a folder; False where the profiler did not start."""
        session = self._session_type(folder, self._options)
        try:
            session.start()
        except ProfilerFailed as problem:
            self._on_failure(str(problem))
            return False
        self._session = session
        return True

    def end(self) -> Path | None:
        """Save the recording and return its folder; None where there is none."""
        session, self._session = self._session, None
        if session is None:
            return None
        try:
            return session.stop()
        except ProfilerFailed as problem:
            self._on_failure(str(problem))
            return None

    def give_way(self) -> None:
        """Stop for the job's own profiler session: JAX allows one in a process."""
        if self.abandon():
            self._on_failure("the job's own profiler session began")

    def abandon(self) -> bool:
        """Discard the recording; return whether there was one."""
        session, self._session = self._session, None
        if session is None:
            return False
        session.abandon()
        return True

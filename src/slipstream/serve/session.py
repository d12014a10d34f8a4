"""The profiles being shown: read at the start, and again when their files change."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slipstream.errors import BadInput, SlipstreamError
from slipstream.profile.profile import Profile
from slipstream.sources.files import find_recordings
from slipstream.sources.load import load

if TYPE_CHECKING:
    from slipstream.serve.scene import Scene

POLL_S = 1.0
POLL_FACTOR = 20
"""the pause between two polls is at least this many times as long as a poll takes"""
QUIET_S = 1.0
"""how long to wait after the first view before preparing for searches"""
Progress = Callable[[int, int], None]
Stamp = tuple[tuple[str, int, int], ...]
"""(file, size, modification time) of every recording"""


@dataclass(frozen=True)
class SessionState:
    """What the page is told: the current reading, the progress of the next, and errors."""

    generation: int = 0
    """number of completed readings"""
    done_bytes: int = 0
    total_bytes: int = 0
    error: str = ""
    is_over: bool = False


class ViewerSession:
    """The scene of some profiles, which one thread reads and reloads."""

    def __init__(
        self,
        paths: Sequence[str],
        run: str | None = None,
        dumps: str | None = None,
        aligned: bool = True,
        progress: Progress | None = None,
    ) -> None:
        self.paths = tuple(paths)
        self.state = SessionState()
        self.failure: SlipstreamError | None = None
        self._scene: Scene | None = None
        self._options = (run, dumps, aligned)
        self._progress = progress
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._known: Stamp = ()

    # ---- for the server -----------------------------------------------------------------------

    def scene(self, timeout_s: float | None = None) -> Scene:
        """The scene; waits until it has been read once."""
        with self._changed:
            self._changed.wait_for(lambda: self._scene or self.state.is_over, timeout_s)
        if self._scene is None:
            raise self.failure or BadInput("the profile has not been read yet; try again")
        return self._scene

    def wait(self, seen: SessionState, timeout_s: float) -> SessionState:
        """Wait until the state differs from the one seen, and return it."""
        with self._changed:
            self._changed.wait_for(lambda: self.state != seen, timeout_s)
            return self.state

    # ---- reading ------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all profiles; raises if one can't be read."""
        from slipstream.serve.scene import Scene, members_of

        run, dumps, aligned = self._options
        # Taken before reading, so that files that change meanwhile are read again.
        self._known = self._stamps()
        profiles: list[Profile] = []
        for path in self.paths:
            profiles.append(load(path, run=run, progress=self._report, dumps=dumps))
        scene = Scene(members_of(self.paths, profiles, aligned))
        with self._changed:
            self._scene = scene
            self.state = SessionState(self.state.generation + 1)
            self._changed.notify_all()

    def first_read(self) -> None:
        """Read for the first time; a failure is raised, and kept for waiting requests."""
        try:
            self.read()
        except SlipstreamError as failure:
            self.failure = failure
            self._tell(replace(self.state, error=str(failure), is_over=True))
            raise

    def warm_up(self) -> None:
        """Prepare the first search while nobody waits for it."""
        if self._stop.wait(QUIET_S):
            return
        for layer in self.scene().layers:
            _ = layer.names.searched

    def watch(self, poll_s: float = POLL_S) -> None:
        """Read again whenever a recording changes or a new run appears, until `close`."""
        before, pause = self._known, poll_s
        while not self._stop.wait(pause):
            began = time.monotonic()
            now = self._stamps()
            # Large folders are polled less often.
            pause = max(poll_s, POLL_FACTOR * (time.monotonic() - began))
            # A file is read only once two polls found it unchanged.
            if now != self._known and now == before and now:
                self._read_again()
            before = now

    def close(self) -> None:
        """Stop watching, and wake all waiting requests."""
        self._stop.set()
        self._tell(replace(self.state, is_over=True))

    def _read_again(self) -> None:
        try:
            self.read()
        except SlipstreamError as failure:
            # The scene stays; the next change may fix the error.
            self._tell(replace(self.state, error=str(failure)))

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        if self._progress is not None:
            self._progress(done_bytes, total_bytes)
        self._tell(replace(self.state, done_bytes=done_bytes, total_bytes=total_bytes, error=""))

    def _tell(self, state: SessionState) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def _stamps(self) -> Stamp:
        run = self._options[0]
        found = []
        for path in self.paths:
            try:
                files = find_recordings(Path(path), run)
                stats = [file.stat() for file in files]
            except (SlipstreamError, OSError):
                continue
            for file, about in zip(files, stats, strict=True):
                found.append((str(file), about.st_size, about.st_mtime_ns))
        return tuple(found)

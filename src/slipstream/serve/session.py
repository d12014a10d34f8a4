"""The profiles being shown: read at the start, and again when their files change.

    files      a a a a │ b . . . b b b b b b b b b b │ gone          │ b b b b b
    polls      a   a   │ b   .   b   b   b           │ –     –       │ b     b
    reading    a       │             b…b=b           │       fails   │       b
    shown      a a a a │ a a a a a a a a a b b b b b │ b, marked old │ b b b b b

A reading counts only if the files are the same before and after it.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slipstream.errors import BadInput, SlipstreamError
from slipstream.profile.profile import Profile
from slipstream.remote.paths import any_path
from slipstream.sources.files import find_recordings
from slipstream.sources.load import load
from slipstream.sources.mapped_file import file_stamp

if TYPE_CHECKING:
    from slipstream.serve.scene import Scene

POLL_S = 1.0
POLL_FACTOR = 20
"""the pause between two polls is at least this many times as long as a poll takes"""
QUIET_S = 1.0
"""how long to wait after the first view before preparing for searches"""
ATTEMPTS = 3
"""how often files that change while they are read are read at once again"""
Progress = Callable[[int, int], None]
Stamp = tuple[tuple[str | int, ...], ...]
"""of every recording its `file_stamp`; of a path without recordings, why it has none"""


@dataclass(frozen=True)
class SessionState:
    """What the page is told: the current reading, the progress of the next, and errors."""

    generation: int = 0
    """number of completed readings"""
    done_bytes: int = 0
    total_bytes: int = 0
    error: str = ""
    """why the files as they are now are not shown"""
    read_at: str = ""
    """time of day at which the files were read that are shown"""
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
        self.failure: Exception | None = None
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
        """Read all profiles; raises if one can't be read, or does not stay the same meanwhile."""
        for _ in range(ATTEMPTS):
            # If reading fails, only another change is a reason to try again.
            self._known = self._stamps()
            scene = self._read_scene()
            if self._stamps() == self._known:
                self._show(scene)
                return
        self._known = ()
        raise BadInput(
            f"{', '.join(self.paths)} changed while it was read, {ATTEMPTS} times; is it still "
            "being written? It is read again as soon as it stays the same"
        )

    def first_read(self) -> None:
        """Read for the first time; a failure is raised, and kept for waiting requests."""
        try:
            self.read()
        except Exception as failure:
            self.failure = failure
            self._tell(replace(self.state, error=self._said(failure), is_over=True))
            raise

    def warm_up(self) -> None:
        """Prepare the first search while nobody waits for it."""
        if self._stop.wait(QUIET_S):
            return
        for layer in self.scene().layers:
            _ = layer.names.searched

    def watch(self, poll_s: float = POLL_S) -> None:
        """Read again whenever a recording changes or a new run appears, until `close`."""
        before, pause, took_before = self._known, poll_s, 0.0
        while not self._stop.wait(pause):
            began = time.monotonic()
            now = self._stamps()
            took = time.monotonic() - began
            # Large folders are polled less often. One poll that is held up does not make them so.
            pause, took_before = max(poll_s, POLL_FACTOR * min(took, took_before)), took
            # A file is read only once two polls found it unchanged.
            if now != self._known and now == before:
                self._read_again()
            before = now

    def close(self) -> None:
        """Stop watching, and wake all waiting requests."""
        self._stop.set()
        self._tell(replace(self.state, is_over=True))

    def _read_again(self) -> None:
        try:
            self.read()
            # Parts of a scene refer to each other: else a large one might stay for long.
            gc.collect()
        except Exception as failure:
            # Any exception: it would end the server, and the page with it. The scene stays, and
            # the next change may fix the error.
            self._tell(replace(self.state, error=self._said(failure)))

    def _read_scene(self) -> Scene:
        from slipstream.serve.scene import Scene, members_of

        run, dumps, aligned = self._options
        profiles: list[Profile] = []
        for path in self.paths:
            profiles.append(load(path, run=run, progress=self._report, dumps=dumps))
        return Scene(members_of(self.paths, profiles, aligned), self.state.generation + 1)

    def _show(self, scene: Scene) -> None:
        with self._changed:
            self._scene = scene
            read_at = time.strftime("%H:%M:%S")
            self.state = SessionState(scene.generation, read_at=read_at)
            self._changed.notify_all()

    def _said(self, failure: Exception) -> str:
        """What the page is told; exceptions that are not ours do not name the file."""
        if isinstance(failure, SlipstreamError):
            return str(failure)
        return (
            f"{', '.join(self.paths)} could not be read ({type(failure).__name__}: {failure}); "
            "record it again, or see the details with: slipstream summary PATH"
        )

    def _report(self, done_bytes: int, total_bytes: int) -> None:
        if self._progress is not None:
            self._progress(done_bytes, total_bytes)
        self._tell(replace(self.state, done_bytes=done_bytes, total_bytes=total_bytes))

    def _tell(self, state: SessionState) -> None:
        with self._changed:
            self.state = state
            self._changed.notify_all()

    def _stamps(self) -> Stamp:
        run = self._options[0]
        found: list[tuple[str | int, ...]] = []
        for path in self.paths:
            try:
                found += [file_stamp(file) for file in find_recordings(any_path(path), run)]
            except (SlipstreamError, OSError) as why:
                found.append((path, str(why)))
        return tuple(found)

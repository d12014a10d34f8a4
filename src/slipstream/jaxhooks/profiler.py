"""Sessions of JAX's profiler: one at a time, and an empty recording is an error.

JAX names a recording after the second in which it ended, and overwrites an older one of the same
name, which may be in use. So each is recorded in its own folder, and moved once it is complete.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.profile.profile import Profile

log = logging.getLogger("slipstream")

_SESSION_LOCK = threading.Lock()
"""held while a session of ours runs: JAX allows one session per process"""

LIKELY_CAUSES = (
    "another profiler held CUPTI: DCGM (pause it with `dcgmi profile --pause`), Nsight Systems "
    "(don't run under nsys), or a second JAX profiler session"
)


class ProfilerFailed(Exception):
    """The profiler did not start, did not stop, or recorded nothing of the device."""


class ProfilerSession:
    """Records into `folder` between `start` and `stop`; other files in there stay as they are."""

    def __init__(self, folder: Path, options: Any = None) -> None:
        self.folder = folder
        self.options = options
        self._work = folder
        """where JAX records"""
        self.recording: Path | None = None
        """the folder of its files, once complete; earlier recordings may be next to it"""
        self._is_running = False

    def start(self) -> None:
        import jax

        if not _SESSION_LOCK.acquire(blocking=False):
            raise ProfilerFailed("another capture of Slipstream is running in this process")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=".recording-", dir=self.folder))
            options = {} if self.options is None else {"profiler_options": self.options}
            jax.profiler.start_trace(str(self._work), **options)
        except Exception as error:
            # JAX raises many types, even AssertionError: each means that there is no session.
            self._clear()
            _SESSION_LOCK.release()
            raise ProfilerFailed(_why_not_started(error)) from error
        self._is_running = True

    def stop(self) -> Path:
        """The folder with the complete recording; ProfilerFailed if there is none."""
        try:
            self._end()
            self.recording = _moved(self._work, self.folder)
        except OSError as error:
            raise ProfilerFailed(f"the recording could not be saved: {error}") from error
        finally:
            self._clear()
        if self.recording is None:
            raise ProfilerFailed(f"the profiler wrote no recording into {self.folder}")
        return self.folder

    def _end(self) -> None:
        import jax

        self._is_running = False
        try:
            jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        except Exception as error:
            raise ProfilerFailed(f"the profiler did not save its recording: {error}") from error
        finally:
            _SESSION_LOCK.release()

    def abandon(self) -> None:
        """Stop the session and discard its recording."""
        if self._is_running:
            try:
                self._end()
            except ProfilerFailed:
                log.warning("slipstream: an abandoned capture could not be stopped")
            self._clear()

    def _clear(self) -> None:
        if self._work != self.folder:
            shutil.rmtree(self._work, ignore_errors=True)


def _moved(work: Path, folder: Path) -> Path | None:
    """Move the recording to where JAX would have put it, or next to one that is already there."""
    run = next((file.parent for file in work.glob("**/*.xplane.pb")), None)
    if run is None:
        return None
    first = target = folder / run.relative_to(work)
    target.parent.mkdir(parents=True, exist_ok=True)
    number = 1
    while True:
        try:
            os.rename(run, target)
            return target
        except OSError:
            if not target.exists():
                raise
        number += 1
        target = first.with_name(f"{first.name}_{number}")


class ExternalSession(ProfilerSession):
    """Another tool records this process: there is nothing to start or stop."""

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> Path:
        self._is_running = False
        return self.folder

    def _end(self) -> None:
        self._is_running = False


def check_recorded(profile: Profile) -> None:
    """Raise ProfilerFailed if the recording shows no device work."""
    empty = [w for w in profile.warnings if w.code in ("empty-device-trace", "no-device")]
    if empty or not len(profile.events):
        raise ProfilerFailed(f"the recording shows no device work; most likely {LIKELY_CAUSES}")


def _why_not_started(error: Exception) -> str:
    text = str(error)
    # A second session is a plain RuntimeError of JAX: only its text tells it from others.
    if "ALREADY_EXISTS" in text or "already" in text or "one profile" in text:
        return "a profiler session is already open in this process, so none was started"
    return f"the profiler did not start: {text.splitlines()[0] if text else type(error).__name__}"


def before_every_session(stop_ours: Callable[[], None]) -> None:
    """Call `stop_ours` before any session starts, so that the job's own sessions come first."""
    start = private_api.START_TRACE.get()

    def start_trace(*arguments: Any, **named: Any) -> Any:
        stop_ours()
        return start(*arguments, **named)

    start_trace.__doc__, start_trace.__name__ = start.__doc__, "start_trace"
    public: Any = import_module("jax.profiler")
    public.start_trace = start_trace
    private_api.START_TRACE.replace(start_trace)

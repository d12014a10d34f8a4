"""One session of JAX's profiler: never two at once, and never an empty one unnoticed.

JAX names a recording after the second it ended in, and writes over one that has the same name,
which somebody may be reading. So each is made in a folder of its own, and moved when it is whole.
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

_RUNNING = threading.Lock()
"""held while a session of ours runs; JAX allows one in a process, whoever began it"""

CULPRITS = (
    "another profiler held CUPTI: DCGM (pause it with `dcgmi profile --pause`), Nsight Systems "
    "(don't run under nsys), or a second JAX profiler session"
)


class ProfilerFailed(Exception):
    """The profiler did not start, did not stop, or recorded nothing of the device."""


class ProfilerSession:
    """Records into `folder` between `start` and `stop`; what else is in there stays as it is."""

    def __init__(self, folder: Path, options: Any = None) -> None:
        self.folder = folder
        self.options = options
        self._work = folder
        """where the recording is made"""
        self.recording: Path | None = None
        """the folder of its files, once it is whole; others of before may lie beside it"""
        self._is_running = False

    @property
    def is_running(self) -> bool:
        return self._is_running

    def start(self) -> None:
        import jax

        if not _RUNNING.acquire(blocking=False):
            raise ProfilerFailed("another capture of Slipstream is running in this process")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._work = Path(tempfile.mkdtemp(prefix=".recording-", dir=self.folder))
            options = {} if self.options is None else {"profiler_options": self.options}
            jax.profiler.start_trace(str(self._work), **options)
        except Exception as error:
            # JAX raises what it likes, down to assertions: any of it means no session.
            self._clear()
            _RUNNING.release()
            raise ProfilerFailed(_why_not_started(error)) from error
        self._is_running = True

    def stop(self) -> Path:
        """The folder with the recording, which is whole; ProfilerFailed if there is none."""
        try:
            self._end()
            self.recording = _moved(self._work, self.folder)
        except OSError as error:
            raise ProfilerFailed(f"the recording could not be kept: {error}") from error
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
            _RUNNING.release()

    def abandon(self) -> None:
        """Stop, and keep nothing."""
        if self._is_running:
            try:
                self._end()
            except ProfilerFailed:
                log.warning("slipstream: a capture that was given up could not be stopped")
            self._clear()

    def _clear(self) -> None:
        if self._work != self.folder:
            shutil.rmtree(self._work, ignore_errors=True)


def _moved(work: Path, folder: Path) -> Path | None:
    """The recording where JAX would have put it, or beside another that is there already."""
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
    """Somebody else records this process: nothing is to be started or stopped."""

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> Path:
        self._is_running = False
        return self.folder

    def _end(self) -> None:
        self._is_running = False


def check_recorded(profile: Profile) -> None:
    """ProfilerFailed where the devices left no trace."""
    empty = [w for w in profile.warnings if w.code in ("empty-device-trace", "no-device")]
    if empty or not len(profile.events):
        raise ProfilerFailed(f"the recording shows no work of the device; most likely {CULPRITS}")


def _why_not_started(error: Exception) -> str:
    text = str(error)
    if "ALREADY_EXISTS" in text or "already" in text or "one profile" in text:
        return "a profiler session is open already in this process, so none was begun"
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

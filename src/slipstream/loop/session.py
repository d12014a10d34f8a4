"""One session of JAX's profiler: never two at once, and never an empty one unnoticed."""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from slipstream.profile.profile import Profile

log = logging.getLogger("slipstream")

_RUNNING = threading.Lock()
"""held while a session of ours runs; JAX allows one in a process, whoever began it"""

CULPRITS = (
    "another profiler held CUPTI: DCGM (pause it with `dcgmi profile --pause`), Nsight Systems "
    "(don't run under nsys), or a second JAX profiler session"
)


class SessionFailed(Exception):
    """The profiler did not start, did not stop, or recorded nothing of the device."""


class Session:
    """Records into `folder` between `start` and `stop`."""

    def __init__(self, folder: Path, options: Any = None) -> None:
        self.folder = folder
        self.options = options
        self._is_running = False

    @property
    def is_running(self) -> bool:
        return self._is_running

    def start(self) -> None:
        import jax

        if not _RUNNING.acquire(blocking=False):
            raise SessionFailed("another capture of Slipstream is running in this process")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            options = {} if self.options is None else {"profiler_options": self.options}
            jax.profiler.start_trace(str(self.folder), **options)
        except Exception as error:
            _RUNNING.release()
            raise SessionFailed(_why_not_started(error)) from error
        self._is_running = True

    def stop(self) -> Path:
        """The folder with the recording, which is whole; SessionFailed if there is none."""
        import jax

        self._is_running = False
        try:
            jax.profiler.stop_trace()  # type: ignore[no-untyped-call]
        except Exception as error:
            self._clear()
            raise SessionFailed(f"the profiler did not save its recording: {error}") from error
        finally:
            _RUNNING.release()
        if not list(self.folder.glob("**/*.xplane.pb")):
            raise SessionFailed(f"the profiler wrote no recording into {self.folder}")
        return self.folder

    def abandon(self) -> None:
        """Stop, and keep nothing."""
        if self._is_running:
            try:
                self.stop()
            except SessionFailed:
                log.warning("slipstream: a capture that was given up could not be stopped")
            self._clear()

    def _clear(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


class Outside(Session):
    """Somebody else records this process: nothing is to be started or stopped."""

    def start(self) -> None:
        self._is_running = True

    def stop(self) -> Path:
        self._is_running = False
        return self.folder

    def _clear(self) -> None:
        pass


def check_recorded(profile: Profile) -> None:
    """SessionFailed where the devices left no trace."""
    empty = [w for w in profile.warnings if w.code in ("empty-device-trace", "no-device")]
    if empty or not len(profile.events):
        raise SessionFailed(f"the recording shows no work of the device; most likely {CULPRITS}")


def _why_not_started(error: Exception) -> str:
    text = str(error)
    if "ALREADY_EXISTS" in text or "already" in text or "one profile" in text:
        return "a profiler session is open already in this process, so none was begun"
    return f"the profiler did not start: {text.splitlines()[0] if text else type(error).__name__}"


def open_sessions() -> Sequence[str]:
    """What holds the profiler in this process, as far as one can see."""
    return ["a capture of Slipstream"] if _RUNNING.locked() else []

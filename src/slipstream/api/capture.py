"""`capture`: a few steps of a job recorded with JAX's profiler, whatever becomes of the recording.

    with slipstream.capture("logs") as step_done:
        for step, batch in enumerate(data):
            state = train(state, batch)
            step_done(step)

Every process saves into a folder of its own; process 0 says where. What goes wrong is a warning in
the log, never an exception in the job.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from slipstream.api.uploads import Upload, is_remote
from slipstream.errors import BadInput, SlipstreamError
from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession, check_recorded
from slipstream.jaxhooks.shutdown import at_shutdown, run_in_background

log = logging.getLogger("slipstream")

PERFETTO_FILE = "trace.pftrace"

Item = TypeVar("Item")


def capture(
    dir: str | Path = "profiles",
    start: int = 5,
    steps: int = 3,
    *,
    perfetto: bool = False,
    options: Any = None,
    profiler: bool = True,
    start_step: int | None = None,
    num_steps: int | None = None,
    perfetto_link: bool | None = None,
    announce: Callable[[str], None] = print,
) -> Capture:
    """Record `steps` steps of a job, beginning with step `start`.

    `dir` is a folder, or a URL that fsspec knows (gs://, s3://, memory://). `options` are JAX's
    `ProfileOptions`. `profiler=False` records nothing; `start_step`, `num_steps` and
    `perfetto_link` are the names that Levanter has for `start`, `steps` and `perfetto`.
    """
    first = start if start_step is None else start_step
    count = steps if num_steps is None else num_steps
    if first < 0 or count < 1:
        raise BadInput(
            f"capture got start={first} and steps={count}; expected a start of 0 or more, and at "
            "least one step: capture('logs', start=5, steps=3)"
        )
    draws = perfetto if perfetto_link is None else perfetto_link
    return Capture(str(dir), first, count, draws, options, profiler, announce)


class Capture:
    """Called once a step; a context manager; and around an iterable of batches with `over`."""

    def __init__(
        self,
        dir: str,
        start: int,
        steps: int,
        perfetto: bool,
        options: Any,
        is_on: bool,
        announce: Callable[[str], None],
    ) -> None:
        self.folder: Path | None = None
        """where this process saved its recording, once it has"""
        self.problem: str | None = None
        """what went wrong, in a sentence"""
        self._dir = dir if is_remote(dir) else os.path.abspath(dir)  # the job may change its folder
        self._start = start
        self._steps = steps
        self._perfetto = perfetto
        self._options = options
        self._announce = announce
        self._is_over = not is_on
        self._lock = threading.RLock()
        self._calls = 0
        self._first: int | None = None
        self._session: ProfilerSession | None = None
        self._after: threading.Thread | None = None

    def __call__(self, step: int | None = None, wait_for: Any = None) -> None:
        """A step is done, or about to begin: call it at the same place of each step.

        `wait_for`, the step's result, makes the recording hold all of its work.
        """
        with self._lock:
            number = self._calls if step is None else int(step)
            self._calls += 1
            if self._is_over:
                return
            if self._first is None and number >= self._start:
                _finish_work(wait_for)
                self._begin(number)
            elif self._first is not None and number >= self._first + self._steps:
                _finish_work(wait_for)
                self.close()

    def __enter__(self) -> Capture:
        with self._lock:
            if self._start == 0 and not self._is_over and self._first is None:
                self._begin(0)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            _finish_work(None)
        was_on = not self._is_over
        self.close()
        if was_on and self._first is None:
            self._warn(
                f"nothing was recorded: the block ended after {self._calls} steps, and recording "
                f"begins with step {self._start}; call what capture() returns once a step, "
                "or begin at once with start=0"
            )
        self.wait()

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, one a step, with the steps counted."""
        with self:
            for number, item in enumerate(items):
                self(number)
                yield item

    def close(self) -> None:
        """End the recording if it runs, and save it."""
        self._close(in_background=True)

    def _close(self, in_background: bool) -> None:
        with self._lock:
            session, self._session = self._session, None
            self._is_over = self._is_over or self._first is not None
            if session is None:
                return
            try:
                folder = session.stop()
            except ProfilerFailed as problem:
                self._warn(str(problem))
                return
            self.folder = folder
            # Older recordings may lie in the same folder.
            recording = session.recording or folder
            if in_background:
                self._after = run_in_background(
                    lambda: self._look_after(folder, recording), "slipstream-capture"
                )
            else:
                self._look_after(folder, None)

    def wait(self, timeout_s: float | None = None) -> None:
        """Until the recording was checked, drawn and uploaded."""
        if self._after is not None:
            self._after.join(timeout_s)

    def _begin(self, number: int) -> None:
        self._first = number
        try:
            session = ProfilerSession(self._own_folder(), self._options)
            session.start()
        except (ProfilerFailed, OSError) as problem:
            self._is_over = True
            self._warn(str(problem))
            return
        self._session = session
        at_shutdown(self._end)

    def _end(self) -> None:
        """The job is over while recording: what there is, is saved."""
        # Python starts no threads any more, and reading a recording needs some.
        self._close(in_background=False)

    def _own_folder(self) -> Path:
        local = tempfile.mkdtemp(prefix="slipstream-") if is_remote(self._dir) else self._dir
        return Path(local) / _own_name()

    def _look_after(self, folder: Path, unchecked: Path | None) -> None:
        """Beside the job: is anything in it, where does it go, how is it looked at?"""
        try:
            if unchecked is not None:
                self._check(unchecked, folder)
            place = str(folder)
            if is_remote(self._dir):
                place = Upload(self._dir).copy(folder, _own_name())
            if _process() == 0:
                self._announce(self._sentence(place))
        except (OSError, SlipstreamError, ProfilerFailed) as problem:
            self._warn(f"{problem} (the recording is in {folder})")
        except Exception as problem:
            log.debug("slipstream: a capture failed", exc_info=True)
            self._warn(f"{type(problem).__name__}: {problem} (the recording is in {folder})")

    def _check(self, recording: Path, folder: Path) -> None:
        from slipstream.sources.load import load

        profile = load(recording)
        try:
            check_recorded(profile)
        except ProfilerFailed as problem:
            self._warn(str(problem))
        if self._perfetto:
            from slipstream.outputs.perfetto.trace import write_perfetto

            write_perfetto(profile, folder / PERFETTO_FILE)

    def _sentence(self, place: str) -> str:
        count = _process_count()
        whose = "" if count == 1 else f", and of the other {count - 1} processes beside it"
        text = f"slipstream: recorded {place}{whose}; see: slipstream summary {place}"
        if (self.folder or Path()).joinpath(PERFETTO_FILE).exists():
            text += f"\nslipstream: drop {place}/{PERFETTO_FILE} onto https://ui.perfetto.dev"
        return text

    def _warn(self, problem: str) -> None:
        self.problem = problem
        log.warning("slipstream: capture: %s", problem)


def _finish_work(result: Any) -> None:
    """What the devices still work on belongs to the steps before."""
    import jax

    try:
        if result is not None:
            jax.block_until_ready(result)  # type: ignore[no-untyped-call]
        for device in jax.local_devices():
            finish = getattr(device, "synchronize_all_activity", None)
            if finish is not None:
                finish()
    except Exception:
        # Whatever it is, the job will meet it itself.
        log.debug("slipstream: waiting for the devices failed", exc_info=True)


def _own_name() -> str:
    """The folder of this process; none where there is only one."""
    return "" if _process_count() == 1 else f"process{_process()}"


def _process() -> int:
    import jax

    return int(jax.process_index())


def _process_count() -> int:
    import jax

    return int(jax.process_count())

"""`capture`: record a few steps of a job with JAX's profiler.

    with slipstream.capture("logs") as step_done:
        for step, batch in enumerate(data):
            state = train(state, batch)
            step_done(step)

Every process saves to its own folder, and process 0 says where. A failure is a warning in the log,
never an exception in the job.
"""

from __future__ import annotations

import logging
import os
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from slipstream.errors import BadInput, SlipstreamError
from slipstream.jaxhooks.jax_types import ProfilerOptions, Results
from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession, check_recorded
from slipstream.jaxhooks.shutdown import at_shutdown, run_in_background
from slipstream.remote.paths import RemotePath, any_path, is_remote

log = logging.getLogger("slipstream")

PERFETTO_FILE = "trace.pftrace"

Item = TypeVar("Item")


def capture(
    dir: str | Path = "profiles",
    start: int = 5,
    steps: int = 3,
    *,
    perfetto: bool = False,
    options: ProfilerOptions = None,
    profiler: bool = True,
    start_step: int | None = None,
    num_steps: int | None = None,
    perfetto_link: bool | None = None,
    announce: Callable[[str], None] = print,
) -> Capture:
    """Record `steps` steps of a job, starting with step `start`.

    `dir` is a folder, or a URL that fsspec supports (gs://, s3://, memory://). `options` are JAX's
    `ProfileOptions`. `profiler=False` records nothing; `start_step`, `num_steps` and
    `perfetto_link` are Levanter's names for `start`, `steps` and `perfetto`.
    """
    first = start if start_step is None else start_step
    count = steps if num_steps is None else num_steps
    if first < 0 or count < 1:
        raise BadInput(
            f"capture got start={first} and steps={count}; expected start >= 0 and "
            "steps >= 1: capture('logs', start=5, steps=3)"
        )
    draws = perfetto if perfetto_link is None else perfetto_link
    return Capture(str(dir), first, count, draws, options, profiler, announce)


class Capture:
    """A recording: call it once a step, use it as a context manager, or wrap batches in `over`."""

    def __init__(
        self,
        dir: str,
        start: int,
        steps: int,
        perfetto: bool,
        options: ProfilerOptions,
        is_on: bool,
        announce: Callable[[str], None],
    ) -> None:
        self.folder: Path | None = None
        """where this process saved its recording; None before that"""
        self.problem: str | None = None
        """what went wrong, in a sentence"""
        self._dir = (
            dir if is_remote(dir) else os.path.abspath(any_path(dir))
        )  # the job may change its folder
        self._start = start
        self._steps = steps
        self._perfetto = perfetto
        self._options = options
        self._announce = announce
        self._is_over = not is_on
        self._lock = threading.RLock()
        self._calls = 0
        self._has_warned = False
        """whether a call that can't be understood was reported"""
        self._first: int | None = None
        self._session: ProfilerSession | None = None
        self._after: threading.Thread | None = None

    def __call__(
        self,
        step: Any = None,
        wait_for: Results = None,
        *more: object,
        force: bool = False,
        **named: object,
    ) -> None:
        """Count a step. Call it at the same place in each step, before or after its work.

        `step` is a number (of Python, numpy or JAX), an object with a `.step` such as Levanter's
        `StepInfo`, or nothing: then calls are counted. Pass the step's result as `wait_for` so that
        the recording holds all of its work. With `force`, as Levanter calls its hooks once more
        after the last step, the recording ends. Nothing is raised, whatever is passed.
        """
        with self._lock, self._guarded():
            calls, self._calls = self._calls, self._calls + 1
            if self._is_over:
                return
            if force:
                self._finish(wait_for, calls)
                return
            number = self._number(step, calls)
            if more or named:
                self._warn_once(
                    f"{len(more) + len(named)} of the arguments were ignored; expected a step, and "
                    "the step's result as wait_for"
                )
            if self._first is None and number >= self._start:
                _finish_work(wait_for)
                self._begin(number)
            elif self._first is not None and number >= self._first + self._steps:
                _finish_work(wait_for)
                self.close()

    def _number(self, step: Any, calls: int) -> int:
        """The number of a step; the number of the call if the step can't be understood."""
        if step is None:
            return calls
        number = step_number(step)
        if number is not None:
            return number
        self._warn_once(
            f"{_shown(step)} that it was called with is no step number and has none as .step, so "
            "calls are counted instead"
        )
        return calls

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Whatever fails here: the capture ends, and the training goes on."""
        try:
            yield
        except Exception as problem:
            self._is_over = True
            log.debug("slipstream: a capture failed", exc_info=True)
            self._warn(f"{type(problem).__name__}: {problem}")

    def __enter__(self) -> Capture:
        with self._lock, self._guarded():
            if self._start == 0 and not self._is_over and self._first is None:
                self._begin(0)
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if not self._is_over:
            with self._lock, self._guarded():
                # After an exception the devices may never finish.
                self._finish(None, self._calls, waits=kind is None)
        self.wait()

    def _finish(self, result: Results, calls: int, waits: bool = True) -> None:
        """No more steps follow: save the recording, or say why there is none."""
        if waits:
            _finish_work(result)
        self.close()
        if self._first is None:
            self._warn(
                f"nothing was recorded: there were {calls} steps, and recording starts with step "
                f"{self._start}; call the object that capture() returns once a step, or record "
                "from the beginning with start=0"
            )

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Iterate over the items, counting each as a step."""
        with self:
            for number, item in enumerate(items):
                self(number)
                yield item

    def close(self) -> None:
        """Stop recording, if it has started, and save the recording."""
        self._close(in_background=True)

    def _close(self, in_background: bool) -> None:
        with self._lock, self._guarded():
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
            # The folder may hold older recordings.
            recording = session.recording or folder
            if in_background:
                self._after = run_in_background(
                    lambda: self._look_after(folder, recording), "slipstream-capture"
                )
            else:
                self._look_after(folder, None)

    def skip(self, why: str) -> None:
        """Record nothing, and warn of the reason."""
        self._is_over = True
        self._warn(why)

    def wait(self, timeout_s: float | None = None) -> None:
        """Wait until the recording is checked, converted and uploaded."""
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
        """The job ended during the recording: save what there is."""
        # Python starts no threads during shutdown, and reading a recording needs some.
        self._close(in_background=False)

    def _own_folder(self) -> Path:
        local = tempfile.mkdtemp(prefix="slipstream-") if is_remote(self._dir) else self._dir
        return Path(local) / _own_name()

    def _look_after(self, folder: Path, unchecked: Path | None) -> None:
        """In a thread: check the recording, upload it, and say how to view it."""
        try:
            if unchecked is not None:
                self._check(unchecked, folder)
            place = str(folder)
            if is_remote(self._dir):
                place = upload_folder(folder, self._dir, _own_name())
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
        whose = "" if count == 1 else f" (the other {count - 1} processes saved theirs beside it)"
        text = f"slipstream: recorded {place}{whose}; see: slipstream summary {place}"
        if (self.folder or Path()).joinpath(PERFETTO_FILE).exists():
            text += f"\nslipstream: drop {place}/{PERFETTO_FILE} onto https://ui.perfetto.dev"
        return text

    def _warn_once(self, problem: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            self._warn(problem)

    def _warn(self, problem: str) -> None:
        self.problem = problem
        log.warning("slipstream: capture: %s", problem)


def step_number(step: Any) -> int | None:
    """The number that a hook was called with, or the `.step` of what it was called with.

    None if there is no number in it. An array of equal numbers, one for each device, is one number.
    """
    try:
        if hasattr(step, "dtype"):
            return _array_number(step)
        if isinstance(step, (int, float)):
            return None if isinstance(step, bool) else int(step)
        inner = getattr(step, "step", None)
        if inner is not None and not callable(inner):
            return _array_number(inner) if hasattr(inner, "dtype") else _index(inner)
        return _index(step)
    except Exception:
        # Whatever it is: a property that raises, an array that was donated, a tracer.
        log.debug("slipstream: capture: a step's number can't be read", exc_info=True)
        return None


def _index(value: Any) -> int | None:
    return None if isinstance(value, (bool, str, bytes)) else int(value)


def _array_number(array: Any) -> int | None:
    import numpy as np

    if not getattr(array, "is_fully_addressable", True):
        array = array.addressable_data(0)
    values = np.asarray(array)
    is_number = values.dtype.kind in "iuf" and values.size > 0
    first = values.reshape(-1)[0] if is_number else None
    return int(first) if first is not None and bool((values == first).all()) else None


def _shown(value: object) -> str:
    """A value as a message shows it; of what may be large, such as a training state, its type."""
    kind = type(value).__name__
    return f"{value!r:.60}" if isinstance(value, (bool, float, str, bytes)) else f"the {kind}"


def _finish_work(result: Results) -> None:
    """Wait for the devices: their pending work belongs to earlier steps."""
    try:
        import jax

        if result is not None:
            jax.block_until_ready(result)  # type: ignore[no-untyped-call]
        for device in jax.local_devices():
            finish = getattr(device, "synchronize_all_activity", None)
            if finish is not None:
                finish()
    except Exception:
        # The job will see the error itself.
        log.debug("slipstream: waiting for the devices failed", exc_info=True)


def _own_name() -> str:
    """The folder name of this process; empty where there is only one."""
    return "" if _process_count() == 1 else f"process{_process()}"


def _process() -> int:
    import jax

    return int(jax.process_index())


def _process_count() -> int:
    import jax

    return int(jax.process_count())


def upload_folder(folder: Path, url: str, name: str) -> str:
    """Copy every file of a folder to a bucket, and return its URL there."""
    from slipstream.remote.upload import upload

    target = RemotePath(f"{url}/{name}" if name else url)
    for file in sorted(folder.rglob("*")):
        if file.is_file():
            upload(file, target / file.relative_to(folder).as_posix())
    return str(target)

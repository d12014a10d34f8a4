"""The profile phase inside the job: record some steps of the hot program, and save both."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.experiment.recordings import TRIES, ProfileRecorder, calls_before_retry
from slipstream.experiment.step_timer import wait
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.profiler import ProfilerSession
from slipstream.jaxhooks.shutdown import SHUTDOWN, run_in_background
from slipstream.run.agent.program_dump import content_of, save_program

log = logging.getLogger("slipstream")


class Recorder:
    """Records some calls of the hot program; `on_end` gets the facts, or why there are none."""

    def __init__(
        self,
        program: CompiledProgram,
        folder: Path,
        steps: int,
        policy: str,
        options: Any,
        on_end: Callable[[dict[str, Any] | None, str], None],
        session: type[ProfilerSession] = ProfilerSession,
    ) -> None:
        self.program = program
        self.folder = folder
        self.steps = steps
        self._policy = policy
        self._on_end = on_end
        self._session_type = session
        self._recorder = ProfileRecorder(options, self._retry, session)
        self._calls_left = 1
        """until the capture begins, or ends"""
        self._failures = 0
        self._first = 0
        self.is_over = False

    @property
    def is_recording(self) -> bool:
        return self._recorder.is_recording

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        with self.program.lock:
            result = run()
            self._calls_left -= 1
            if self._calls_left == 0 and not self.is_over:
                wait(result)
                self._end() if self.is_recording else self._begin()
            return result

    def give_way(self) -> None:
        """The job starts a profiler session of its own: stop, and try again later."""
        with self.program.lock:
            self._recorder.give_way()

    def withdraw(self) -> None:
        """Record nothing: another program is to be recorded instead."""
        with self.program.lock:
            self.is_over = True
            self._recorder.abandon()

    def _begin(self) -> None:
        if self._recorder.begin(self.folder / "profiles" / "before"):
            self._calls_left, self._first = self.steps, self.program.calls

    def _retry(self, why: str) -> None:
        self._failures += 1
        if self._failures >= TRIES or self.is_over:
            self.is_over = True
            self._on_end(None, why)
            return
        self._calls_left = calls_before_retry(self.steps, self._failures)

    def _end(self) -> None:
        self.is_over = True
        profile = self._recorder.end()
        if profile is not None:
            # The job doesn't wait for the hashing and saving, unless it ends.
            run_in_background(lambda: self._save(profile), "slipstream-profile")

    def _save(self, profile: Path) -> None:
        try:
            last = self._first + self.steps - 1
            facts = profile_facts(self.program, self.folder, profile, (self._first, last))
            self._compile_with_costs(profile)
            self._on_end(facts, "")
        except Exception as error:
            # Whatever it is: the launcher waits to hear whether there is a profile.
            log.warning("slipstream: the profile could not be saved", exc_info=True)
            self._on_end(None, f"{type(error).__name__}: {error}")

    def _compile_with_costs(self, profile: Path) -> None:
        """Compile once with the costs: XLA logs whether it took them, and this log is ours."""
        facts = job_facts()
        is_ours = self._session_type is ProfilerSession
        if facts["platform"] != "gpu" or facts["processes"] != 1 or not is_ours:
            return
        if SHUTDOWN.is_set():
            return
        from slipstream.costs.files import serialized
        from slipstream.experiment.prepare import costs_of

        try:
            table, _ = costs_of(profile, self._policy, self.program)
            self.program.recompile({}, serialized(table, table.programs[0].fingerprint))
        except Exception:
            # Only a line in a log is lost; the profile is saved.
            log.warning("slipstream: the program was not compiled with its costs", exc_info=True)


def profile_facts(
    program: CompiledProgram, phase: Path, recording: Path, steps: tuple[int, int]
) -> dict[str, Any]:
    """Save the program beside its recording; the facts and files of the profile phase."""
    programs = save_program(program, phase / "programs")
    recordings = sorted(recording.glob("**/*.xplane.pb"))
    return {
        "program": program.name,
        "content": content_of(program),
        "compile_s": program.compile_s,
        "steps": list(steps),
        "bytes": sum(file.stat().st_size for file in recordings),
        "files": [*recordings, *programs.values()],
        **job_facts(),
    }


def job_facts() -> dict[str, Any]:
    """Versions and devices, which must be the same for a profile to be reused."""
    import jax

    jaxlib: Any = import_module("jaxlib")
    return {
        "jax": jax.__version__,
        "jaxlib": jaxlib.__version__,
        "platform": jax.default_backend(),
        "devices": [str(device.device_kind) for device in jax.local_devices()],
        "processes": jax.process_count(),
    }


def profiler_options(attributes: Mapping[str, Any]) -> Any:
    """`jax.profiler.ProfileOptions` with these attributes set; None for JAX's defaults."""
    if not attributes:
        return None
    import jax

    options = jax.profiler.ProfileOptions()
    for name, value in attributes.items():
        setattr(options, name, value)
    return options

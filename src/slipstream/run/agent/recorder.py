"""The profile phase inside the job: record some steps of one program, save it, prove it usable."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from slipstream.experiment.recordings import ProfileRecorder
from slipstream.experiment.step_timer import wait
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.profiler import ProfilerSession
from slipstream.jaxhooks.shutdown import SHUTDOWN, run_in_background
from slipstream.run.agent.program_dump import content_of, save_program

log = logging.getLogger("slipstream")

TRIES = 4
"""how often a profiler that can't be had is asked for again, some calls later"""


class Recorder:
    """Goes around each call of the hot program; `on_end` gets the facts, or why there are none."""

    def __init__(
        self,
        watched: CompiledProgram,
        folder: Path,
        steps: int,
        policy: str,
        options: Any,
        on_end: Callable[[dict[str, Any] | None, str], None],
        session: type[ProfilerSession] = ProfilerSession,
    ) -> None:
        self.watched = watched
        self.folder = folder
        self.steps = steps
        self._policy = policy
        self._on_end = on_end
        self._kind = session
        self._recorder = ProfileRecorder(options, self._again, session)
        self._left = 1
        """calls until something happens: the capture begins, or is over"""
        self._failures = 0
        self._first = 0
        self.is_over = False

    @property
    def is_recording(self) -> bool:
        return self._recorder.is_recording

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        with self.watched.lock:
            result = run()
            self._left -= 1
            if self._left == 0 and not self.is_over:
                wait(result)
                self._end() if self.is_recording else self._begin()
            return result

    def give_way(self) -> None:
        """The job wants the profiler for itself: later, then."""
        with self.watched.lock:
            self._recorder.give_way()

    def _begin(self) -> None:
        if self._recorder.begin(self.folder / "profiles" / "before"):
            self._left, self._first = self.steps, self.watched.calls

    def _again(self, why: str) -> None:
        self._failures += 1
        if self._failures >= TRIES or self.is_over:
            self.is_over = True
            self._on_end(None, why)
            return
        self._left = self.steps * 5 * self._failures

    def _end(self) -> None:
        self.is_over = True
        profile = self._recorder.end()
        if profile is not None:
            # Hashing and saving take a moment, and the job need not wait for it, unless it ends.
            run_in_background(lambda: self._save(profile), "slipstream-profile")

    def _save(self, profile: Path) -> None:
        try:
            facts = self._facts(profile)
            self._prove(profile)
            self._on_end(facts, "")
        except Exception as error:
            # Whatever it is: somebody outside waits for this run to have a profile or not.
            log.warning("slipstream: the profile could not be saved", exc_info=True)
            self._on_end(None, f"{type(error).__name__}: {error}")

    def _prove(self, profile: Path) -> None:
        """Compile with the costs once, where XLA's log is ours to read: does it take them?"""
        facts = job_facts()
        if (
            facts["platform"] != "gpu"
            or facts["processes"] != 1
            or self._kind is not ProfilerSession
        ):
            return
        if SHUTDOWN.is_set():
            return
        from slipstream.costs.files import serialized
        from slipstream.experiment.prepare import costs_of

        try:
            table, _ = costs_of(profile, self._policy, self.watched)
            self.watched.recompile({}, serialized(table, table.programs[0].fingerprint))
        except Exception:
            # Only a line in a log is lost; the profile is there, and what reads it may fail too.
            log.warning("slipstream: the program was not compiled with its costs", exc_info=True)

    def _facts(self, profile: Path) -> dict[str, Any]:
        programs = save_program(self.watched, self.folder / "programs")
        recordings = sorted(profile.glob("**/*.xplane.pb"))
        return {
            "program": self.watched.name,
            "content": content_of(self.watched),
            "compile_s": self.watched.compile_s,
            "steps": [self._first, self._first + self.steps - 1],
            "bytes": sum(file.stat().st_size for file in recordings),
            "files": [*recordings, *programs.values()],
            **job_facts(),
        }


def job_facts() -> dict[str, Any]:
    """What else must be the same for a profile to fit."""
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
    """`jax.profiler.ProfileOptions` with some attributes set; None for JAX's own."""
    if not attributes:
        return None
    import jax

    options = jax.profiler.ProfileOptions()
    for name, value in attributes.items():
        setattr(options, name, value)
    return options

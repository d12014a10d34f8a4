"""Phases 2 and 3: the job runs for a few recorded steps and is ended; then its costs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slipstream.experiment.receipt import bare_receipt
from slipstream.run import nsys
from slipstream.run.agent.request import PROFILE
from slipstream.run.captured_output import CapturedStream
from slipstream.run.context import SIGNALLED, Context, RunResult, agent_problem
from slipstream.run.cost_phase import Costs, make_costs, reused_costs
from slipstream.run.launcher import PATIENCE_S, Job, job_environment, running
from slipstream.run.preflight import Preflight
from slipstream.run.rank import all_ranks_share, more_processes_note
from slipstream.run.run_dir import CACHE, DONE, FAILED, REQUEST, RunDir, done_facts, read_json
from slipstream.units import format_bytes
from slipstream.writing import mark_folder

VERBOSE = {
    "TF_CPP_MIN_LOG_LEVEL": "0",
    "TF_CPP_VMODULE": "gpu_hlo_schedule=1,profile_guided_latency_estimator=1",
}
"""makes XLA log which costs its scheduler found; only in the profile run, whose log is ours"""
LONGEST_GRACE_S = 60.0
"""for the other ranks' captures, once ours is done"""


@dataclass(frozen=True)
class Precomputed:
    """A profile of the hot program, and its costs if there are any."""

    facts: Mapping[str, Any]
    costs: Costs

    def request_fields(self, run_dir: RunDir) -> dict[str, Any]:
        """The fields of the agent's request that describe it."""
        has_costs = self.costs.problem is None
        return {
            "program": self.facts["program"],
            "content": self.facts["content"],
            "devices": tuple(self.facts["devices"]),
            "costs": str(self.costs.file) if has_costs else None,
            "coverage": self.costs.facts.get("coverage", {}),
            "profile": str(nsys.recording_of(run_dir.profile)),
        }


class ProfilePhase:
    """Reuses a profile and its costs, or makes them."""

    def __init__(self, context: Context, preflight: Preflight) -> None:
        self.context = context
        self.preflight = preflight
        self.run_dir = context.run_dir

    def run(self) -> Precomputed | RunResult | None:
        """A profile and its costs; None without a profile; RunResult if the job ended by itself."""
        found = self.reused()
        if found is not None:
            return found
        ended = self._record()
        if ended is not None:
            return ended
        facts = done_facts(self.run_dir.profile)
        if facts is None or not self.context.all_ranks(_is_recorded):
            return None
        note = more_processes_note(self.context.rank, int(facts["processes"]))
        if note is not None:
            # The costs of one rank are not those of all: ranks would compile different programs.
            self.context.warn(note)
            return None
        return self._with_costs(facts)

    def reused(self) -> Precomputed | None:
        """The profile of an earlier run and its costs, if they fit this run."""
        facts = self._reusable()
        if facts is None:
            return None
        self.context.say("profile", f"{captured_text(facts)} · from an earlier run")
        return self._with_costs(facts)

    def _with_costs(self, facts: dict[str, Any]) -> Precomputed:
        self.context.phase_facts["profile"] = facts
        return Precomputed(facts, self._costs())

    def _reusable(self) -> dict[str, Any] | None:
        """The facts of an earlier run's profile, unless something that matters has changed."""
        facts = done_facts(self.run_dir.profile)
        if facts is None or not self.context.all_ranks(_is_recorded):
            return None
        # Whether it is of the same program is for the agent to find out, inside the job.
        if more_processes_note(self.context.rank, int(facts.get("processes", 1))):
            return None
        functions = list(self.context.settings.functions)
        now = (self.preflight.jaxlib, self.preflight.xla_flags, functions)
        is_nsys = facts.get("profiler") == "nsys"
        if self.context.settings.nsys != is_nsys:
            self.context.warn("the profile in the folder was made by another profiler: not used")
            return None
        if now != (facts.get("jaxlib"), facts.get("xla_flags"), facts.get("functions", [])):
            self.context.warn(
                "the profile in the folder was made with other flags, another jaxlib or another "
                "--function: not used"
            )
            return None
        if not all_ranks_share(self.run_dir.folder, self.context.rank, os.environ):
            self.context.warn("the ranks don't share this folder: the profile in it is not used")
            return None
        return facts

    def _record(self) -> RunResult | None:
        """Run the job until some steps are recorded; RunResult if it ended by itself."""
        context, settings = self.context, self.context.settings
        phase = self.run_dir.clear(self.run_dir.profile)
        if context.rank.is_first:
            self.run_dir.remove(self.run_dir.costs)
        request = context.write_request(
            PROFILE,
            phase,
            xla_flags=self.preflight.xla_flags,
            is_recorded_outside=settings.nsys,
        )
        environment = job_environment(os.environ, request, self.preflight.environment)
        command = settings.command
        if settings.nsys:
            mark_folder(self.run_dir.folder / CACHE)
            environment |= nsys.variables(self.run_dir.folder, os.environ)
            command = nsys.under_nsys(command, phase)
        is_verbose = not environment.keys() & VERBOSE.keys()
        environment |= VERBOSE if is_verbose else {}
        context.say("profile…", f"profiling a few steps of the job; log: {phase}/log.txt")
        with (
            CapturedStream(phase / "output.txt") as output,
            CapturedStream(phase / "log.txt") as log,
        ):
            streams = (output.writing, log.writing)
            with running(command, environment, *streams, ends_with_us=True) as job:
                code = self._wait(job, phase)
        if code is None:
            self._report(phase)
            return None
        # The job ended before the capture, or somebody ended it: that was the whole job.
        output.replay(sys.stderr if settings.is_json else sys.stdout)
        log.replay(sys.stderr, is_verbose)
        return RunResult(code, context.finish(bare_receipt(context.why_not(phase, code))))

    def _wait(self, job: Job, phase: Path) -> int | None:
        """The job's exit code if the job ended by itself; None if we ended it."""
        code = job.wait(self._all_recorded())
        if code is None and job.signals.ending:
            # Somebody asked it to end just before the capture was done: give it time to.
            code = job.wait_at_most(PATIENCE_S)
        before = len(job.signals.ending)
        if code is None:
            nsys.end(job, phase) if self.context.settings.nsys else job.stop()
            late = job.signals.ending[before:]
            # A signal for the job arrived while we were ending it: the job is not started again.
            return SIGNALLED + late[-1] if late else None
        return None if done_facts(phase) is not None and not before else code

    def _all_recorded(self) -> Callable[[], bool]:
        """All ranks end their profile runs together: a rank that loses another one fails."""
        began: list[float] = []

        def is_over() -> bool:
            if not _is_over(self.run_dir):
                return False
            began.append(time.monotonic())
            is_out = began[-1] - began[0] > LONGEST_GRACE_S
            return is_out or self.context.all_ranks(_is_over)

        return is_over

    def _report(self, phase: Path) -> None:
        facts = done_facts(phase)
        if facts is not None:
            self.context.say("profile", captured_text(facts))
            return
        failed = read_json(phase / FAILED) or {}
        why = failed.get("why") or agent_problem(phase)
        why = why or "it could not be written; is the disk full?"
        self.context.warn(f"no profile: {why}")

    def _costs(self) -> Costs:
        context = self.context
        found, text = reused_costs(self.run_dir), " · from an earlier run"
        if found is None:
            found, text = make_costs(self.run_dir, context.rank, context.settings.policy), ""
        if found.problem is not None:
            context.warn(f"no costs: {found.problem}")
        else:
            context.say("costs", found.text + text)
        context.phase_facts["costs"] = found.facts
        return found


def _is_recorded(run_dir: RunDir) -> bool:
    return done_facts(run_dir.profile) is not None


def _is_over(run_dir: RunDir) -> bool:
    """Done, failed or not started; an agent that can write none of these removes its request."""
    phase = run_dir.profile
    said = (phase / DONE).exists() or (phase / FAILED).exists() or agent_problem(phase)
    return bool(said) or (phase.exists() and not (phase / REQUEST).exists())


def captured_text(facts: Mapping[str, Any]) -> str:
    first, last = facts["steps"]
    return f"steps {first}–{last} of {facts['program']} captured · {format_bytes(facts['bytes'])}"

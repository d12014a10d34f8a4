"""Slipstream inside a job that `slipstream run` started: finds the hot program, does as ordered.

    sitecustomize ── when the job imports jax ──► start(request) ──► HOOKS tells of every call
                                                                     │ which program is hot?
                       profile: Recorder     compare, loop: Controller     apply: Applier

What goes wrong here is a line in agent.log; the job goes on as it is.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.experiment.compare_outputs import small_results
from slipstream.experiment.controller import Controller
from slipstream.experiment.plan import ExperimentPlan
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.distributed import override_initialize
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.private_api import (
    Feature,
    JaxChanged,
    exclude_from_tracebacks,
    require,
)
from slipstream.jaxhooks.profiler import before_every_session
from slipstream.run.agent.autopgle import (
    RecompiledPrograms,
    facts_of,
    seen_note,
    with_both_programs,
)
from slipstream.run.agent.hot_program import HotProgramChooser, is_work
from slipstream.run.agent.log import log_to
from slipstream.run.agent.modes import Callbacks, Measurement, measurement_for
from slipstream.run.agent.precomputed import Applier
from slipstream.run.agent.program_dump import content_of
from slipstream.run.agent.recorder import Recorder, job_facts
from slipstream.run.agent.request import (
    APPLY,
    AUTO,
    COMPARE,
    LAYOUT,
    LOWER,
    PROFILE,
    TIME,
    Request,
    read_request,
)
from slipstream.run.agent.status import AgentStatus
from slipstream.run.run_dir import CLAIM, Lock

log = logging.getLogger("slipstream")

LONGEST_WAIT_S = 600.0
"""for compiles that still run when the job ends"""
AGAIN = 2
"""calls of a program that an earlier run found to be the hot one"""


def start(path: str) -> Agent:
    """Watch this process from now on."""
    request = read_request(path)
    agent = Agent(request)
    log_to(Path(request.folder) / "agent.log")
    _hide_from_tracebacks()
    try:
        _hook_into_jax(agent)
    except JaxChanged as changed:
        HOOKS.uninstall()
        agent.give_up(str(changed))
        return agent
    os.register_at_fork(after_in_child=agent.leave)
    atexit.register(agent.at_exit)
    return agent


class Agent:
    """One listener for all programs of the process."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status = AgentStatus(request)
        self.folder = self.status.folder
        self.hot: CompiledProgram | None = None
        self.measurement: Measurement | None = None
        self._claim = Lock(self.folder / CLAIM)
        self._chooser = HotProgramChooser(max(request.start - 1, 1))
        self._expected: set[int] = set()
        """programs that the profile fits, once compiled: JAX may compile one twice"""
        self._twins = RecompiledPrograms()
        """with `auto`: what JAX compiled twice"""
        self._auto: dict[str, Any] = {}
        self._firsts: dict[int, dict[str, Any] | None] = {}
        """with `time`: what the first call of each program gave"""
        self._lowered: CompiledProgram | None = None
        self._writer: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.RLock()

    # What HOOKS tells.

    def on_compile(self, program: CompiledProgram) -> None:
        self._chooser.compiled(program)
        if self.hot is not None or self._is_over:
            program.is_settled = True
        elif self.request.mode in (COMPARE, APPLY) and program.name == self.request.program:
            if content_of(program) == self.request.content and self._devices_fit():
                self._expected.add(id(program))
        elif self.request.mode == LOWER:
            self._keep_lowered(program)
        elif self.request.mode == AUTO:
            self._twins.compiled(program)

    def on_call(
        self, program: CompiledProgram, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        if program is self.hot and self.measurement is not None:
            try:
                return self.measurement.on_call(arguments, run)
            finally:
                self._follow_safely()
        if self.hot is None and self.request.mode == AUTO:
            self._twins.called(program)
        result = run()
        if self.hot is None and not self._is_over:
            if self.request.mode == TIME and program.calls == 1 and is_work(program):
                self._firsts[id(program)] = small_results(result)
            self._consider(program)
        return result

    # Which program.

    def _consider(self, program: CompiledProgram) -> None:
        with self._lock:
            if self.hot is not None or self._is_over:
                return
            is_hot = self._chooser.called(program)
            if self._expected:
                # Seen before: nothing is left to find out but that it runs again and again.
                is_hot = id(program) in self._expected and program.calls >= AGAIN
            if self.request.mode == AUTO and self._twins.plain_of(program) is None:
                return
            if is_hot:
                self._take(program)

    def _take(self, program: CompiledProgram) -> None:
        if not self._is_for_us() or not self._claim.take():
            self._say("watched elsewhere", "another process of the job is measured")
            self.leave()
            return
        self.hot = program
        for other in HOOKS.programs:
            other.is_settled = other is not program
        self._say("warming up")
        self.measurement = self._measurement(program)

    def _is_for_us(self) -> bool:
        """All ranks of a job that is timed have the same request; the results are the first's."""
        import jax

        return self.request.mode != TIME or jax.process_index() == 0

    def _measurement(self, program: CompiledProgram) -> Measurement | None:
        mode = self.request.mode
        if mode == LOWER:
            self._is_over = True
            self.status.lowered(program, is_sure=True)
            return None
        if mode == AUTO:
            return self._watch_auto(program)
        fits = id(program) in self._expected
        is_alone = len(program.processes) == 1
        if mode == APPLY and fits and is_alone and self.request.chosen == "original":
            program.is_settled = True
            self._applied(None)
            return None
        ends = Callbacks(self._recorded, self._timed, self._applied)
        return measurement_for(program, self.request, fits, ends)

    def _watch_auto(self, program: CompiledProgram) -> Measurement | None:
        """JAX's second program against its first."""
        plain = self._twins.plain_of(program)
        assert plain is not None
        seen_us = self._twins.seen_us(program, plain)
        self._auto = facts_of(program, seen_us)
        self._twins.let_go()
        if len(program.processes) > 1:
            # Who falls back must not do so alone, and what all have now is JAX's program.
            program.is_settled = self._is_over = True
            why = "with several processes AutoPGLE is watched, not compared"
            self._say("settled", f"{why}: {seen_note(seen_us)}")
            return None
        program.autopgle_executable = program.original
        # No recording of ours: JAX's own sessions, of programs yet to come, would fail beside it.
        plan = ExperimentPlan(
            self.folder, 1, self.request.steps, self.request.rounds, (), is_recorded=True,
            checks=False,
        )  # fmt: skip
        controller = Controller(program, plan, with_both_programs(program.original, plain.original))
        controller.outcome.notes.append(seen_note(seen_us))
        return controller

    def _devices_fit(self) -> bool:
        return tuple(job_facts()["devices"]) == self.request.devices

    # What becomes of it.

    def _follow_safely(self) -> None:
        """What is only written down must not change what runs: other ranks count on that."""
        try:
            self._follow()
        except Exception:
            # Whatever it is: raised from here, it would count as a failure of this rank's step.
            log.warning("slipstream: where it stands is not known outside", exc_info=True)

    def _follow(self) -> None:
        """Say where the loop stands, and write its receipt when it is done."""
        measured = self.measurement
        if isinstance(measured, Recorder):
            self._end_with_launcher()
            if not measured.is_over:
                self._say("capturing" if measured.is_recording else "warming up")
        if not isinstance(measured, Controller) or self._is_over:
            return
        if measured.done.is_set():
            self._is_over = True
            self._writer = threading.Thread(target=self._report, args=(measured,), daemon=True)
            self._writer.start()
        else:
            self._say(measured.state.value)

    def _report(self, controller: Controller, is_whole: bool = True) -> None:
        if not self.status.compared(controller, self._auto, is_whole):
            self._say("failed", "the receipt could not be written; see agent.log")
            return
        self._say("settled" if is_whole else "ended early", controller.outcome.problem or "")

    def _recorded(self, facts: dict[str, Any] | None, why: str) -> None:
        self._is_over = True
        self.status.recorded(facts, why)

    def _timed(self, step_s: float, steps: int) -> None:
        self._is_over = True
        assert self.hot is not None
        self.status.timed(self.hot, step_s, steps, self._firsts.get(id(self.hot)))

    def _applied(self, problem: str | None) -> None:
        self._is_over = True
        self._say("failed" if problem else "applied", problem or self.request.chosen or "")

    def _keep_lowered(self, program: CompiledProgram) -> None:
        """Keep the best candidate so far: a job may be too slow to run on this machine."""
        best = self._lowered
        key = (is_work(program), len(program.stablehlo))
        if best is None or key > (is_work(best), len(best.stablehlo)):
            self._lowered = program
            self.status.lowered(program, is_sure=False)

    def _say(self, state: str, why: str = "") -> None:
        fits = self.hot is not None and id(self.hot) in self._expected
        self.status.say(state, why, fits)

    # The end.

    def give_way(self) -> None:
        """The job begins a profiler session of its own."""
        if isinstance(self.measurement, (Recorder, Controller)):
            self.measurement.give_way()

    def give_up(self, why: str) -> None:
        """Measure nothing in this process, and say why."""
        self._is_over = True
        log.warning("slipstream: %s", why)
        self._say("unsupported", why)
        if self.request.mode == PROFILE:
            self.status.recorded(None, why)  # the launcher waits for it

    def leave(self) -> None:
        """Stop watching: the process runs as if we weren't there."""
        self._is_over = True
        self._claim.release()
        atexit.unregister(self.at_exit)
        HOOKS.remove(self)

    def at_exit(self) -> None:
        """Say how far it came; compiles in the background must end before Python does."""
        try:
            self._end()
        except Exception:  # whatever it is: the job has ended well, and must be seen to
            log.warning("slipstream: the end was not written down", exc_info=True)

    def _end(self) -> None:
        measured = self.measurement
        if isinstance(measured, (Controller, Applier)):
            _refuse_compiles(measured.watched)
            measured.join(LONGEST_WAIT_S)
        if isinstance(measured, Controller) and not self._is_over:
            if not measured.done.is_set():
                why = f"the job ended while it was {self.status.state or 'warming up'}"
                measured.stop(why)
                # A rank that has voted is bound, and stays undecided: this is why.
                measured.outcome.problem = measured.outcome.problem or why
            self._report(measured, is_whole=False)
        elif self._writer is not None:
            self._writer.join(LONGEST_WAIT_S)
        elif self.hot is None and not self._is_over:
            self._say("nothing to measure", self._why_nothing())
        elif isinstance(measured, Recorder) and not self._is_over:
            measured.give_way()
            self._say("ended early", f"the job ended while it was {self.status.state}")

    def _why_nothing(self) -> str:
        busiest = self._chooser.busiest()
        if busiest is None:
            return "the job called no jitted function"
        name, calls = busiest
        times = "once" if calls == 1 else f"{calls} times"
        if self.request.mode == AUTO:
            return (
                f"the job ended before JAX had compiled {name} again and run it a few times: it "
                f"called it {times}; AutoPGLE profiles the first calls (JAX_PGLE_PROFILING_RUNS)"
            )
        return (
            f"the job ended before the capture: it called {name} {times}, and "
            f"{self.request.start} calls come before it, without a compile in between; "
            "shorten it with --capture 1:1"
        )

    def _end_with_launcher(self) -> None:
        """A profile run is nobody's job: it ends when the one who wanted it is gone."""
        if not self.request.launcher:
            return
        try:
            os.kill(self.request.launcher, 0)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)
        except PermissionError:
            pass


def _hook_into_jax(agent: Agent) -> None:
    """JaxChanged, before anything is hooked, if a private part of JAX is not as expected."""
    request = agent.request
    require(
        Feature.WATCHING, Feature.STABLEHLO, Feature.RECOMPILING, Feature.GIVING_WAY,
        *([Feature.LAYOUTS] if request.mode == LAYOUT else []),
    )  # fmt: skip
    if request.mode == LAYOUT:
        override_initialize(request.layout)
    HOOKS.add(agent)
    before_every_session(agent.give_way)


def _hide_from_tracebacks() -> None:
    """What the job's own errors show is the job's: JAX leaves its own frames out, and ours."""
    try:
        exclude_from_tracebacks(Path(__file__).parents[2])
    except JaxChanged as changed:
        log.warning("slipstream: %s", changed)


def _refuse_compiles(watched: CompiledProgram) -> None:
    def recompile(*arguments: object, **named: object) -> Any:
        raise RuntimeError("the job is ending")

    watched.recompile = recompile  # type: ignore[method-assign]

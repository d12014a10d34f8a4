"""Slipstream inside a job that `slipstream run` started: finds the hot program, and measures it.

    sitecustomize ── when the job imports jax ──► start(request) ──► HOOKS reports every call
                                                                     │ which program is hot?
                       profile: Recorder     compare, loop: Controller     apply: Applier

Errors here are logged to agent.log; the job goes on unchanged.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.experiment.compare_outputs import small_results
from slipstream.experiment.controller import Controller
from slipstream.experiment.plan import ExperimentPlan
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.dry_run import DryRun
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.run.agent.autopgle import (
    RecompiledPrograms,
    facts_of,
    seen_note,
    with_both_programs,
)
from slipstream.run.agent.choice import Choice
from slipstream.run.agent.hot_program import is_work
from slipstream.run.agent.modes import Callbacks, Measurement, measurement_for
from slipstream.run.agent.precomputed import Applier
from slipstream.run.agent.program_dump import content_of
from slipstream.run.agent.recorder import Recorder, job_facts
from slipstream.run.agent.request import (
    APPLY,
    AUTO,
    COMPARE,
    LOWER,
    PROFILE,
    TIME,
    Request,
)
from slipstream.run.agent.status import AgentStatus, MeasuredFunction
from slipstream.run.lock import Lock
from slipstream.run.run_dir import CLAIM
from slipstream.run.trackers.tracking import Tracking

log = logging.getLogger("slipstream")

LONGEST_WAIT_S = 600.0
"""for compiles that still run when the job ends"""
QUIET_S, UNSURE_S = 2.0, 6.0
"""without a compile until a program counts as the step of a job that runs dry: one that overwrites
its arguments, and another, which may be an evaluation before the training"""
KNOWN_PROGRAM_CALLS = 2
"""calls before a program counts as hot if an earlier run found it to be"""


class Agent:
    """Listens to all programs of the process; measures the hot ones."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.status = AgentStatus(request)
        self.folder = self.status.folder
        self.hot: CompiledProgram | None = None
        """the program that is measured, or was last"""
        self.measurements: dict[int, Measurement] = {}
        """by the id of their program; they keep it alive"""
        self._claim = Lock(self.folder / CLAIM)
        self._choice = Choice(request)
        self._functions: list[Controller] = []
        """the loops that have ended"""
        self._known = request.known()
        """functions that an earlier run measured, and that have not run here so far"""
        self._expected: dict[int, Request] = {}
        """their programs, by id; JAX may compile one twice"""
        self._recompiled = RecompiledPrograms()
        """with `auto`: the programs that JAX compiled twice"""
        self._auto: dict[str, Any] = {}
        self._first_results: dict[int, dict[str, Any] | None] = {}
        """with `time`: the results of each program's first call"""
        self._lowered: CompiledProgram | None = None
        self._writer: threading.Thread | None = None
        run_folder = Path(request.run_folder) if request.run_folder else None
        self._tracking = Tracking(request.track, self.folder, run_folder)
        self._is_over = False
        self._lock = threading.RLock()

    @property
    def measurement(self) -> Measurement | None:
        """The measurement of the hot program."""
        return self.measurements.get(id(self.hot))

    def run_dry(self, dry: DryRun) -> None:
        """From now on, the job computes nothing."""
        dry.install()
        self._choice.seconds_not_run = lambda program: dry.cpu_seconds(program.original)

    # Called by HOOKS.

    def on_compile(self, program: CompiledProgram) -> None:
        self._choice.chooser.compiled(program)
        if self._is_decided:
            program.is_settled = True
        elif self.request.mode in (COMPARE, APPLY):
            self._expect(program)
        elif self.request.mode == LOWER:
            self._save_candidate(program)
        elif self.request.mode == AUTO:
            self._recompiled.compiled(program)

    def _expect(self, program: CompiledProgram) -> None:
        """Recognise a program that an earlier run measured."""
        named = [known for known in self._known if known.program == program.name]
        content = content_of(program) if named and self._devices_fit() else None
        for known in named:
            if known.content == content:
                self._expected[id(program)] = known

    def on_call(
        self, program: CompiledProgram, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        measurement = self.measurements.get(id(program))
        if measurement is not None:
            try:
                return measurement.on_call(arguments, run)
            finally:
                self._report_state_safely(program)
        if self.hot is None and self.request.mode == AUTO:
            self._recompiled.called(program)
        result = run() if self._is_decided else self._choice.run(program, arguments, run)
        if self.request.mode == TIME and program.calls == 1 and is_work(program):
            self._first_results[id(program)] = small_results(result)
        self._consider(program)
        return result

    # The hot programs.

    @property
    def _is_decided(self) -> bool:
        """Whether no other program will be measured."""
        return self._is_over or (self.hot is not None and not self._choice.is_reconsidered)

    def _consider(self, program: CompiledProgram) -> None:
        with self._lock:
            if self._is_decided:
                return
            if self._is_to_be_measured(program):
                self._take(program)
            elif self._choice.is_over_elsewhere:
                self._watch_no_longer()
            elif self._choice.is_negligible(program):
                program.is_settled = True

    def _is_to_be_measured(self, program: CompiledProgram) -> bool:
        if self._expected and self._known:
            # Known from an earlier run: it only has to run more than once.
            known = self._expected.get(id(program))
            return known in self._known and program.calls >= KNOWN_PROGRAM_CALLS
        if self.request.mode == AUTO and self._recompiled.first_of(program) is None:
            return False
        if self.request.target and self._choice.chooser.quiet_s < _patience_s(program):
            return False
        return self._choice.is_next(program)

    def _take(self, program: CompiledProgram) -> None:
        """Measure a program, whatever was measured so far."""
        if self.hot is None and not (self._is_ours() and self._claim.take()):
            self._say("watched elsewhere", "another process of the job is measured")
            self.leave()
            return
        self._withdraw(program)
        self.hot = program
        self._known = self._still_known(program)
        self._choice.begin(program, is_known=id(program) in self._expected)
        for other in () if self._choice.is_reconsidered else HOOKS.programs:
            other.is_settled = other is not program
        self._say("warming up")
        measurement = self._measurement(program)
        if measurement is not None:
            self.measurements[id(program)] = measurement

    def _still_known(self, taken: CompiledProgram) -> list[Request]:
        """What is left to apply; with `compare`, only the first program can be a known one."""
        if self.request.mode != APPLY:
            return []
        return [known for known in self._known if known is not self._expected.get(id(taken))]

    def _withdraw(self, taken: CompiledProgram) -> None:
        """Stop the measurement under way: another program has taken over."""
        before, measured = self.hot, self.measurement
        if before is None or measured is None:
            return
        if isinstance(measured, Recorder) and not measured.is_over:
            measured.withdraw()
            del self.measurements[id(before)]
        elif isinstance(measured, Controller) and not measured.done.is_set():
            measured.stop(f"{taken.name} took more of the devices' time")
            if measured.done.is_set():
                del self.measurements[id(before)]
                before.is_settled = False  # it may matter again
                shutil.rmtree(measured.folder / "profiles", ignore_errors=True)
        log.info("slipstream: %s takes over from %s", taken.name, before.name)

    def _is_ours(self) -> bool:
        """All ranks of a timed job have the same request; only the first is timed."""
        import jax

        return self.request.mode != TIME or jax.process_index() == 0

    def _measurement(self, program: CompiledProgram) -> Measurement | None:
        mode = self.request.mode
        if mode == LOWER:
            self._is_over = True
            self.status.lowered(program, is_sure=True)
            return None
        if mode == AUTO:
            return self._compare_autopgle(program)
        fits = id(program) in self._expected
        request = self._expected.get(id(program), self.request)
        is_alone = len(program.processes) == 1
        if mode == APPLY and fits and is_alone and request.chosen == "original":
            program.is_settled = True
            self._applied(None)
            return None
        callbacks = Callbacks(self._recorded, self._timed, self._applied)
        return measurement_for(program, request, fits, callbacks, len(self._functions) + 1)

    def _compare_autopgle(self, program: CompiledProgram) -> Measurement | None:
        """Compare JAX's second program with its first."""
        first = self._recompiled.first_of(program)
        assert first is not None
        seen_us = self._recompiled.seen_us(program, first)
        self._auto = facts_of(program, seen_us)
        self._recompiled.clear()
        if len(program.processes) > 1:
            # All ranks run JAX's second program now, and none may fall back alone.
            program.is_settled = self._is_over = True
            why = "with several processes AutoPGLE is observed, not compared"
            self._say("settled", f"{why}: {seen_note(seen_us)}")
            return None
        program.autopgle_executable = program.original
        # No profile of ours: it would make JAX's own sessions, for later programs, fail.
        plan = ExperimentPlan(
            self.folder, 1, self.request.steps, self.request.rounds, (), is_recorded=True,
            checks=False,
        )  # fmt: skip
        controller = Controller(program, plan, with_both_programs(program.original, first.original))
        controller.outcome.notes.append(seen_note(seen_us))
        return controller

    def _devices_fit(self) -> bool:
        return tuple(job_facts()["devices"]) == self.request.devices

    # Results.

    def _report_state_safely(self, program: CompiledProgram) -> None:
        """A failed status write must not change what runs: other ranks rely on that."""
        try:
            self._report_state(program)
        except Exception:
            # Whatever it is: raised here, it would count as a failure of this rank's step.
            log.warning("slipstream: the status was not written", exc_info=True)

    def _report_state(self, program: CompiledProgram) -> None:
        """Report the state of a measurement, and write its receipt when it is done."""
        self._choice.chooser.called(program)
        measured = self.measurements.get(id(program))
        if isinstance(measured, Recorder):
            self._end_if_launcher_is_gone()
            if not measured.is_over:
                self._say("capturing" if measured.is_recording else "warming up")
        if not isinstance(measured, Controller) or measured in self._functions:
            return
        if measured.done.is_set():
            self._ended(measured)
        elif program is self.hot and not self._is_over:
            self._say(measured.state.value)

    def _ended(self, controller: Controller) -> None:
        """A loop is done: go on with the next program, or write the receipt."""
        with self._lock:
            self._functions.append(controller)
            chooser = self._choice.chooser
            chooser.end(controller.compiled)
            if self._choice.is_reconsidered and self._choice.is_made_here and chooser.has_more:
                self._say("warming up")
                return
            self._watch_less()
            self._tracking.start()
            self._writer = threading.Thread(target=self._settle, daemon=True)
            self._writer.start()

    def _watch_less(self) -> None:
        """Nothing more is known to matter: let go of programs, except those that come later."""
        if not self._choice.is_reconsidered:
            self._is_over = True
        elif not self._choice.is_shared:
            for other in HOOKS.programs:
                other.is_settled = other.is_settled or self._choice.is_negligible(other)
        elif self._choice.is_made_here:
            self._choice.end_everywhere()
            self._watch_no_longer()

    def _watch_no_longer(self) -> None:
        self._is_over = True
        for other in HOOKS.programs:
            other.is_settled = other.is_settled or id(other) not in self.measurements

    def _settle(self) -> None:
        """Write the receipt, in a thread, and let the job's trackers have it."""
        began = time.time()
        self._tracking.find_writer()
        self._write_receipt(notes=self._tracking.notes)
        self._tracking.ready(began)

    def _write_receipt(self, is_whole: bool = True, notes: Sequence[str] = ()) -> None:
        functions = self._measured_functions()
        if not self.status.compared(functions, self._auto, is_whole, notes):
            self._say("failed", "the receipt could not be written; see agent.log")
            return
        problem = functions[0].controller.outcome.problem or ""
        self._say("settled" if is_whole else "ended early", problem)

    def _measured_functions(self) -> list[MeasuredFunction]:
        """The functions of the receipt, the one that takes most time first."""
        chooser = self._choice.chooser
        shares = {id(one): chooser.share(one.compiled) for one in self._functions}
        controllers = sorted(self._functions, key=lambda one: -(shares[id(one)] or 0.0))
        main = controllers[0].compiled
        return [
            MeasuredFunction(one, shares[id(one)], chooser.calls_per(one.compiled, main))
            for one in controllers
        ]

    def _recorded(self, facts: dict[str, Any] | None, why: str) -> None:
        self._is_over = True
        self.status.recorded(facts, why)

    def _timed(self, step_s: float, steps: int) -> None:
        self._is_over = True
        assert self.hot is not None
        self.status.timed(self.hot, step_s, steps, self._first_results.get(id(self.hot)))

    def _applied(self, problem: str | None) -> None:
        if not self._known:
            self._watch_no_longer()
        self._say("failed" if problem else "applied", problem or "")
        if problem is None and not self._known:
            self._tracking.start()
            self._tracking.ready(after=0.0)  # the receipt is that of the earlier run

    def _save_candidate(self, program: CompiledProgram) -> None:
        """Save the best candidate so far: a job may be too slow to run on this machine."""
        best = self._lowered
        key = (is_work(program), len(program.stablehlo))
        if best is None or key > (is_work(best), len(best.stablehlo)):
            self._lowered = program
            self.status.lowered(program, is_sure=False)

    def _say(self, state: str, why: str = "") -> None:
        fits = bool(self._expected.keys() & {id(self.hot), *self.measurements})
        self.status.say(state, why, fits)

    # The end.

    def give_way(self) -> None:
        """The job starts a profiler session of its own."""
        for measured in list(self.measurements.values()):
            if isinstance(measured, (Recorder, Controller)):
                measured.give_way()

    def give_up(self, why: str) -> None:
        """Measure nothing in this process, and say why."""
        self._is_over = True
        log.warning("slipstream: %s", why)
        self._say("unsupported", why)
        if self.request.mode in (PROFILE, LOWER):
            self.status.recorded(None, why)  # the launcher waits for it

    def leave(self) -> None:
        """Stop watching: the process runs as if we weren't there."""
        self._is_over = True
        self._claim.release()
        atexit.unregister(self.at_exit)
        HOOKS.remove(self)

    def at_exit(self) -> None:
        """Report how far the measurement got; background compiles must end before Python does."""
        try:
            self._end()
        except Exception:  # whatever it is: it must not change how the job ends
            log.warning("slipstream: the end was not reported", exc_info=True)

    def _end(self) -> None:
        for one in self.measurements.values():
            if isinstance(one, (Controller, Applier)):
                _refuse_compiles(one.compiled)
                one.join(LONGEST_WAIT_S)
        measured = self.measurement
        if isinstance(measured, Controller) and measured not in self._functions:
            is_whole = self._end_early(measured)
            self._write_receipt(is_whole)
        elif self._writer is not None:
            self._writer.join(LONGEST_WAIT_S)
        elif self._functions:
            self._write_receipt()  # the job ended before the next function's turn came
        elif self.hot is None and not self._is_over:
            self._say("nothing to measure", self._why_nothing())
        elif isinstance(measured, Recorder) and not self._is_over:
            measured.give_way()
            self._say("ended early", f"the job ended while it was {self.status.state}")

    def _end_early(self, controller: Controller) -> bool:
        """End a loop with the job; return whether the receipt is whole without it."""
        if not controller.done.is_set():
            why = f"the job ended while it was {self.status.state or 'warming up'}"
            controller.stop(why)
            # A rank that has voted is bound by it and stays undecided: this is the reason.
            controller.outcome.problem = controller.outcome.problem or why
        self._functions.append(controller)
        return self._measured_functions()[0].controller is not controller

    def _why_nothing(self) -> str:
        why, busiest = self._choice.why_nothing(), self._choice.chooser.busiest()
        if why is not None or busiest is None:
            return why or ""
        name, calls = busiest
        times = "once" if calls == 1 else f"{calls} times"
        if self.request.mode == AUTO:
            return (
                f"the job ended before JAX had recompiled {name} and run it a few times: it "
                f"called it {times}; AutoPGLE profiles the first calls (JAX_PGLE_PROFILING_RUNS)"
            )
        return (
            f"the job ended before the capture: it called {name} {times}, and the capture begins "
            f"after {self.request.start} calls without a compile in between; "
            "to begin earlier: --capture 1:1"
        )

    def _end_if_launcher_is_gone(self) -> None:
        """A profile run must not outlive the launcher that wanted it."""
        if not self.request.launcher:
            return
        try:
            os.kill(self.request.launcher, 0)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)
        except PermissionError:
            pass


def _patience_s(program: CompiledProgram) -> float:
    return QUIET_S if program.donates else UNSURE_S


def _refuse_compiles(compiled: CompiledProgram) -> None:
    def recompile(*arguments: object, **named: object) -> Any:
        raise RuntimeError("the job is ending")

    compiled.recompile = recompile  # type: ignore[method-assign]

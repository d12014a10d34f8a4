"""Slipstream inside a job that `slipstream run` started: finds the hot program, does as ordered.

    sitecustomize ── when the job imports jax ──► start(orders) ──► RUNTIME tells of every call
                                                                     │ which program is hot?
                       profile: Recorder     compare, loop: Conductor     apply: Applier

What goes wrong here is a line in agent.log; the job goes on as it is.
"""

from __future__ import annotations

import atexit
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from slipstream.errors import SlipstreamError
from slipstream.loop.auto import Twins, facts_of, seen_note, with_both_programs
from slipstream.loop.conductor import Conductor, Plan
from slipstream.loop.courtesy import give_way
from slipstream.loop.given import Applier, with_given_costs
from slipstream.loop.hot import Chooser, is_work
from slipstream.loop.orders import APPLY, AUTO, COMPARE, LAYOUT, LOWER, PROFILE, Orders, read_orders
from slipstream.loop.receipt import FILE as RECEIPT
from slipstream.loop.receipt import receipt_of
from slipstream.loop.recorder import Recorder, job_facts, profiler_options
from slipstream.loop.runtime import RUNTIME, Watched
from slipstream.loop.saving import content_of, save_program
from slipstream.loop.session import Outside, Session
from slipstream.loop.stopwatch import Stopwatch, take_place
from slipstream.loop.store import CLAIM, FAILED, STATUS, Lock, seal, write_json

log = logging.getLogger("slipstream")

LONGEST_WAIT_S = 600.0
"""for compiles that still run when the job ends"""
AGAIN = 2
"""calls of a program that an earlier run found to be the hot one"""
_STATES = {
    "_gather": "warming up",
    "_capture": "capturing",
    "_go_on": "preparing",
    "_compare": "comparing",
    "_check": "checking",
}


def start(path: str) -> Agent:
    """Watch this process from now on."""
    orders = read_orders(path)
    agent = Agent(orders)
    _log_to(Path(orders.folder) / "agent.log")
    _hide_from_tracebacks()
    if orders.mode == LAYOUT:
        take_place(orders.layout)
    RUNTIME.add(agent)
    give_way(agent.give_way)
    os.register_at_fork(after_in_child=agent.leave)
    atexit.register(agent.at_exit)
    return agent


class Measurement(Protocol):
    """What stands around each call of the hot program."""

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any: ...


_OURS = (OSError, SlipstreamError, RuntimeError, ValueError)
"""what writing down a result may raise: disks, files of ours, and what XLA raises for itself"""


class Agent:
    """One listener for all programs of the process."""

    def __init__(self, orders: Orders) -> None:
        self.orders = orders
        self.folder = Path(orders.folder)
        self.hot: Watched | None = None
        self.measurement: Measurement | None = None
        self._claim = Lock(self.folder / CLAIM)
        self._chooser = Chooser(max(orders.start - 1, 1))
        self._expected: set[int] = set()
        """programs that the profile fits, once compiled: JAX may compile one twice"""
        self._twins = Twins()
        """with `auto`: what JAX compiled twice"""
        self._auto: dict[str, Any] = {}
        self._lowered: Watched | None = None
        self._content: str | None = None
        self._state = ""
        self._writer: threading.Thread | None = None
        self._is_over = False
        self._lock = threading.RLock()

    # What RUNTIME tells.

    def on_compile(self, program: Watched) -> None:
        self._chooser.compiled(program)
        if self.hot is not None or self._is_over:
            program.is_settled = True
        elif self.orders.mode in (COMPARE, APPLY) and program.name == self.orders.program:
            if content_of(program) == self.orders.content and self._devices_fit():
                self._expected.add(id(program))
        elif self.orders.mode == LOWER:
            self._keep_lowered(program)
        elif self.orders.mode == AUTO:
            self._twins.compiled(program)

    def on_call(self, program: Watched, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        if program is self.hot and self.measurement is not None:
            result = self.measurement.on_call(arguments, run)
            self._follow()
            return result
        if self.hot is None and self.orders.mode == AUTO:
            self._twins.called(program)
        result = run()
        if self.hot is None and not self._is_over:
            self._consider(program)
        return result

    # Which program.

    def _consider(self, program: Watched) -> None:
        with self._lock:
            if self.hot is not None or self._is_over:
                return
            is_hot = self._chooser.called(program)
            if self._expected:
                # Seen before: nothing is left to find out but that it runs again and again.
                is_hot = id(program) in self._expected and program.calls >= AGAIN
            if self.orders.mode == AUTO and self._twins.plain_of(program) is None:
                return
            if is_hot:
                self._take(program)

    def _take(self, program: Watched) -> None:
        if not self._claim.take():
            self._say("watched elsewhere", "another process of the job is measured")
            self.leave()
            return
        self.hot = program
        for other in RUNTIME.programs:
            other.is_settled = other is not program
        self._say("warming up")
        self.measurement = self._measurement(program)

    def _measurement(self, program: Watched) -> Measurement | None:
        orders = self.orders
        options = profiler_options(orders.profiler)
        if orders.mode == PROFILE:
            return Recorder(
                program,
                self.folder,
                orders.steps,
                orders.policy,
                options,
                self._recorded,
                Outside if orders.is_recorded_outside else Session,
            )
        if orders.mode == LOWER:
            self._save_lowered(program)
            return None
        if orders.mode == LAYOUT:
            return Stopwatch(program, orders.steps, self._timed)
        if orders.mode == AUTO:
            return self._watch_auto(program)
        fits = id(program) in self._expected
        if orders.mode == APPLY and fits and len(program.processes) == 1:
            if orders.chosen == "original":
                program.is_settled = True
                self._applied(None)
                return None
            return Applier(program, orders, self._applied)
        # Ranks that agree through a folder need one that is the same for all.
        folder = self.folder if len(program.processes) == 1 else self.folder.parent
        plan = Plan(
            folder, 1, orders.steps, orders.rounds, orders.variants, orders.policy,
            is_recorded=fits, profiler_options=options,
        )  # fmt: skip
        return Conductor(program, plan, with_given_costs(orders) if fits else None)

    def _watch_auto(self, program: Watched) -> Measurement | None:
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
        program.by_jax = program.original
        # No recording of ours: JAX's own sessions, of programs yet to come, would fail beside it.
        plan = Plan(
            self.folder, 1, self.orders.steps, self.orders.rounds, (), is_recorded=True,
            checks=False,
        )  # fmt: skip
        conductor = Conductor(program, plan, with_both_programs(program.original, plain.original))
        conductor.outcome.notes.append(seen_note(seen_us))
        return conductor

    def _devices_fit(self) -> bool:
        return tuple(job_facts()["devices"]) == self.orders.devices

    # What becomes of it.

    def _follow(self) -> None:
        """Say where the loop stands, and write its receipt when it is done."""
        measured = self.measurement
        if isinstance(measured, Recorder):
            self._end_with_launcher()
            if not measured.is_over:
                self._say("capturing" if measured.is_recording else "warming up")
        if not isinstance(measured, Conductor) or self._is_over:
            return
        if measured.done.is_set():
            self._is_over = True
            self._writer = threading.Thread(target=self._report, args=(measured,), daemon=True)
            self._writer.start()
        else:
            self._say(_STATES.get(measured.state.__name__, ""))

    def _report(self, conductor: Conductor, is_whole: bool = True) -> None:
        try:
            receipt = receipt_of(conductor, reads_profiles=False)
            program = save_program(conductor.watched, self.folder / "programs")
            files = {what: str(file) for what, file in program.items()}
            receipt = replace(receipt, files={**receipt.files, **files})
            if self._auto:
                receipt = replace(receipt, pgle={**receipt.pgle, "auto": self._auto})
            receipt.write(self.folder)
            facts = {
                "program": conductor.watched.name,
                "content": content_of(conductor.watched),
                "chosen": receipt.chosen,
                "verdict": receipt.verdict,
                "reused_profile": conductor.plan.is_recorded,
                **job_facts(),
            }
            if is_whole:
                seal(self.folder, [self.folder / RECEIPT, *program.values()], facts)
            self._say("settled" if is_whole else "ended early", conductor.outcome.problem or "")
        except _OURS:
            log.warning("slipstream: the receipt could not be written", exc_info=True)
            self._say("failed", "the receipt could not be written; see agent.log")

    def _recorded(self, facts: dict[str, Any] | None, why: str) -> None:
        self._is_over = True
        try:
            if facts is None:
                write_json(self.folder / FAILED, {"why": why})
                return
            files = facts.pop("files")
            seal(self.folder, files, facts | {"xla_flags": self.orders.xla_flags})
        except _OURS:
            log.warning("slipstream: the profile could not be saved", exc_info=True)
            # On a full disk nothing can be written, but files can be taken away.
            with suppress(OSError):
                (self.folder / "orders.json").unlink()

    def _timed(self, step_s: float, steps: int) -> None:
        self._is_over = True
        assert self.hot is not None
        facts = {"program": self.hot.name, "content": content_of(self.hot), **job_facts()}
        seal(self.folder, [], facts | {"step_s": step_s, "steps": steps})

    def _applied(self, problem: str | None) -> None:
        self._is_over = True
        self._say("failed" if problem else "applied", problem or self.orders.chosen or "")

    def _keep_lowered(self, program: Watched) -> None:
        """Keep the best candidate so far: a job may be too slow to run on this machine."""
        best = self._lowered
        key = (is_work(program), len(program.stablehlo))
        if best is None or key > (is_work(best), len(best.stablehlo)):
            self._lowered = program
            self._write_lowered(program, is_sure=False)

    def _save_lowered(self, program: Watched) -> None:
        self._is_over = True
        self._write_lowered(program, is_sure=True)

    def _write_lowered(self, program: Watched, is_sure: bool) -> None:
        try:
            files = save_program(program, self.folder / "programs")
            facts = {
                "program": program.name,
                "content": content_of(program),
                "stablehlo": str(files["stablehlo"]),
                "is_sure": is_sure,
                **job_facts(),
            }
            if is_sure:
                _remove_others(files.values())
                seal(self.folder, files.values(), facts)
            else:
                write_json(self.folder / "candidate.json", facts)
        except _OURS:
            log.warning("slipstream: the program could not be saved", exc_info=True)

    def _say(self, state: str, why: str = "") -> None:
        if not state or state == self._state:
            return
        self._state = state
        try:
            fits = self.hot is not None and id(self.hot) in self._expected
            facts = {"state": state, "why": why, "process": os.getpid(), "profile_fits": fits}
            write_json(self.folder / STATUS, facts)
        except OSError:
            log.warning("slipstream: %s", state)

    # The end.

    def give_way(self) -> None:
        """The job begins a profiler session of its own."""
        if isinstance(self.measurement, (Recorder, Conductor)):
            self.measurement.give_way()

    def leave(self) -> None:
        """Stop watching: the process runs as if we weren't there."""
        self._is_over = True
        self._claim.release()
        atexit.unregister(self.at_exit)
        RUNTIME.remove(self)

    def at_exit(self) -> None:
        """Say how far it came; compiles in the background must end before Python does."""
        try:
            self._end()
        except Exception:  # whatever it is: the job has ended well, and must be seen to
            log.warning("slipstream: the end was not written down", exc_info=True)

    def _end(self) -> None:
        measured = self.measurement
        if isinstance(measured, (Conductor, Applier)):
            _refuse_compiles(measured.watched)
            measured.join(LONGEST_WAIT_S)
        if isinstance(measured, Conductor) and not self._is_over:
            measured.stop(f"the job ended while it was {self._state or 'warming up'}")
            self._report(measured, is_whole=False)
        elif self._writer is not None:
            self._writer.join(LONGEST_WAIT_S)
        elif self.hot is None and not self._is_over:
            self._say("nothing to measure", self._why_nothing())
        elif isinstance(measured, Recorder) and not self._is_over:
            measured.give_way()
            self._say("ended early", f"the job ended while it was {self._state}")

    def _why_nothing(self) -> str:
        busiest = self._chooser.busiest()
        if busiest is None:
            return "the job called no jitted function"
        name, calls = busiest
        times = "once" if calls == 1 else f"{calls} times"
        if self.orders.mode == AUTO:
            return (
                f"the job ended before JAX had compiled {name} again and run it a few times: it "
                f"called it {times}; AutoPGLE profiles the first calls (JAX_PGLE_PROFILING_RUNS)"
            )
        return (
            f"the job ended before the capture: it called {name} {times}, and "
            f"{self.orders.start} calls come before it, without a compile in between; "
            "shorten it with --capture 1:1"
        )

    def _end_with_launcher(self) -> None:
        """A profile run is nobody's job: it ends when the one who wanted it is gone."""
        if not self.orders.launcher:
            return
        try:
            os.kill(self.orders.launcher, 0)
        except ProcessLookupError:
            os.kill(os.getpid(), signal.SIGKILL)
        except PermissionError:
            pass


def _hide_from_tracebacks() -> None:
    """What the job's own errors show is the job's: JAX leaves its own frames out, and ours."""
    with suppress(Exception):
        hide: Any = import_module("jax._src.traceback_util")
        hide.register_exclusion(str(Path(__file__).parent))


def _refuse_compiles(watched: Watched) -> None:
    def recompile(*arguments: object, **named: object) -> Any:
        raise RuntimeError("the job is ending")

    watched.recompile = recompile  # type: ignore[method-assign]


def _remove_others(files: Iterable[Path]) -> None:
    """Of the candidates, the one that it is stays."""
    kept = set(files)
    for file in next(iter(kept)).parent.iterdir():
        if file not in kept:
            file.unlink()


def _log_to(path: Path) -> None:
    """What goes wrong is for the run's folder, not for the job's own output."""
    handler = _QuietHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    log.addHandler(handler)
    log.propagate = False


class _QuietHandler(logging.FileHandler):
    """Keeps quiet where it can't write, too: the disk may be full."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, delay=True)

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        pass

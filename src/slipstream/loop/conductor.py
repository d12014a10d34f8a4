"""The loop inside one process: watch a program, profile it, compile it anew, keep what is faster.

    calls   1 … start    start … +steps   meanwhile   rounds × arms      steps      ever after
    state   warming up   capturing        preparing   comparing          checking   settled
    runs    original     original         original    each arm in turn   the best   the winner

Each call of the job is a real step of the job, whichever arm runs it: all arms compute the same.
A state that fails ends the loop, never the job: the original program stays.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.loop.arms import (
    DEFAULT_VARIANTS,
    Arm,
    Variant,
    drop_duplicates,
    make_arm,
    original_arm,
)
from slipstream.loop.runtime import Watched
from slipstream.loop.session import Session, SessionFailed
from slipstream.loop.statistics import Comparison, compare

log = logging.getLogger("slipstream")

LOOKS = (8, 16, 30)
"""after how many rounds the times are looked at; each look widens the interval"""


@dataclass(frozen=True)
class Plan:
    """How the loop goes about it."""

    folder: Path
    start: int = 5
    """calls before the capture"""
    steps: int = 3
    """calls in the capture"""
    rounds: int = LOOKS[-1]
    """most rounds of the comparison"""
    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    policy: str = "typical"
    checks: bool = True
    """whether the best arm is profiled too, for the receipt"""


@dataclass
class Outcome:
    """What one loop found, as it stands when the program is settled."""

    program: str
    arms: list[Arm] = field(default_factory=list)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    chosen: str = "original"
    problem: str | None = None
    """why the loop ended before its end"""
    profiles: dict[str, Path] = field(default_factory=dict)
    """`before` and `after`"""
    costs: Path | None = None
    coverage: Any = None


class Conductor:
    """The loop of one program; `on_call` goes around each of its calls."""

    def __init__(self, watched: Watched, plan: Plan, prepare: Preparation | None = None) -> None:
        self.watched = watched
        self.plan = plan
        self.outcome = Outcome(watched.name)
        self.done = threading.Event()
        self.state: Callable[[Sequence[Any], Callable[[], Any]], Any] = self._warm_up
        self._prepare = prepare or prepare_arms
        self._calls = 0
        self._session: Session | None = None
        self._worker: threading.Thread | None = None
        self._turns: list[Arm] = []
        self._best: Arm | None = None

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        with self.watched.lock:
            return self.state(arguments, run)

    def _warm_up(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        result = run()
        self._calls += 1
        if self._calls >= self.plan.start:
            _wait(result)
            self._begin_capture("before", self._capture_before)
        return result

    def _begin_capture(self, name: str, state: Callable[..., Any]) -> None:
        try:
            self._session = Session(self.plan.folder / "profiles" / name)
            self._session.start()
            self._calls = 0
            self.state = state
        except SessionFailed as problem:
            self._session = None
            self._settle(str(problem))

    def _capture_before(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        result = run()
        if self._captured("before", result):
            self.state = self._go_on
            self._worker = threading.Thread(target=self._work, name="slipstream", daemon=True)
            self._worker.start()
        return result

    def _captured(self, name: str, result: Any) -> bool:
        """Whether this call was the last of a capture that went well."""
        self._calls += 1
        if self._calls < self.plan.steps or self._session is None:
            return False
        _wait(result)
        session, self._session = self._session, None
        try:
            self.outcome.profiles[name] = session.stop()
        except SessionFailed as problem:
            self._settle(str(problem))
            return False
        return True

    def _work(self) -> None:
        try:
            self._prepare(self.watched, self.plan, self.outcome)
        except Exception as error:
            log.warning("slipstream: %s is not compiled anew", self.watched.name, exc_info=True)
            self.outcome.problem = f"{type(error).__name__}: {error}"

    def _go_on(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        """The job goes on with the original program while others are compiled."""
        if self._worker is not None and not self._worker.is_alive():
            timed = [arm for arm in self.outcome.arms if arm.runs]
            if self.outcome.problem or len(timed) < 2:
                self._settle(self.outcome.problem)
                return run()
            self.state = self._compare
            return self._compare(arguments, run)
        return run()

    def _compare(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        if not self._turns:
            timed = [arm for arm in self.outcome.arms if arm.runs]
            # Forwards, then backwards: what drifts is shared out evenly.
            self._turns = timed if len(timed[0].times_s) % 2 else timed[::-1]
            self._turns = list(self._turns)
        arm = self._turns.pop()
        _wait(arguments)
        self.watched.run_with(arm.executable)
        begin = time.perf_counter()
        try:
            result = run()
            _wait(result)
        except Exception as error:
            return self._without(arm, error, run)
        arm.times_s.append(time.perf_counter() - begin)
        if not self._turns:
            self._look()
        return result

    def _without(self, arm: Arm, error: Exception, run: Callable[[], Any]) -> Any:
        """An arm that fails at run time (memory, say) is out, and the original takes its step."""
        if arm.executable is self.watched.original:
            raise error
        log.warning("slipstream: the program %r failed and is out: %s", arm.name, error)
        self.watched.run_with(self.watched.original)
        arm.error, arm.executable = str(error).splitlines()[0][:300], None
        self._turns = []
        if sum(other.runs for other in self.outcome.arms) < 2:
            self._settle(None)
        return run()

    def _look(self) -> None:
        """After some rounds: who is faster, and is it worth going on?"""
        original, *others = [arm for arm in self.outcome.arms if arm.runs]
        rounds = len(original.times_s)
        last = rounds >= self.plan.rounds
        if not last and rounds not in LOOKS:
            return
        tests = max(len(others), 1) * len(LOOKS)
        for arm in others:
            self.outcome.comparisons[arm.name] = compare(original.times_s, arm.times_s, tests)
        found = self.outcome.comparisons
        if not last and any(found[arm.name].verdict == "can't tell" for arm in others):
            return
        if not last and all(found[arm.name].verdict == "no different" for arm in others):
            return
        self._choose([arm for arm in others if found[arm.name].verdict == "faster"])

    def _choose(self, faster: list[Arm]) -> None:
        found = self.outcome.comparisons
        self._best = min(faster, key=lambda arm: found[arm.name].change, default=None)
        if self._best is not None:
            self.outcome.chosen = self._best.name
        checked = self._best or next((a for a in self.outcome.arms[1:] if a.runs), None)
        if checked is None or not self.plan.checks:
            self._settle(None)
            return
        self.watched.run_with(checked.executable)
        self._begin_capture("after", self._capture_after)

    def _capture_after(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        result = run()
        if self._captured("after", result):
            self._settle(None)
        return result

    def _settle(self, problem: str | None) -> None:
        """From now on the winner runs, at full speed; without one, the original."""
        self.outcome.problem = problem
        best = self._best
        self.watched.run_with(best.executable if best else self.watched.original)
        self.watched.is_settled = True
        for arm in self.outcome.arms:
            if arm is not best:
                # Programs hold device memory.
                arm.executable = arm.executable if arm.name == "original" else None
        self.done.set()

    def stop(self, why: str) -> None:
        """End the loop where it stands: the original program stays."""
        with self.watched.lock:
            if self.done.is_set():
                return
            if self._session is not None:
                self._session.abandon()
                self._session = None
            self._best = None
            self._settle(why)


Preparation = Callable[[Watched, Plan, Outcome], None]
"""what happens between capture and comparison: fills in the outcome's arms"""


def prepare_arms(watched: Watched, plan: Plan, outcome: Outcome) -> None:
    """Costs out of the profile, and the program compiled in every variant."""
    from slipstream.costs.files import serialized
    from slipstream.loop.costing import costs_of

    table, coverage = costs_of(outcome.profiles["before"], plan.policy, watched)
    outcome.coverage = coverage
    outcome.costs = plan.folder / "costs"
    outcome.costs = outcome.costs.with_suffix(".pb")
    table.write(outcome.costs)
    arms = [original_arm(watched)]
    fingerprint = arms[0].program.fingerprint if arms[0].program else None
    costs = serialized(table, fingerprint)
    arms += [make_arm(watched, variant, costs, table) for variant in plan.variants]
    drop_duplicates(arms)
    outcome.arms = arms


def _wait(values: Any) -> None:
    import jax

    jax.block_until_ready(values)  # type: ignore[no-untyped-call]

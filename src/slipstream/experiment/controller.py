"""The loop of one program: watch it, profile it, compile it anew, keep what is faster.

    calls   1 … start    start … +steps   meanwhile   rounds × turns     steps      ever after
    state   gathering    capturing        preparing   comparing          checking   settled
    runs    original     original         original    each arm in turn   the best   the winner

Each call of the job is a real step of the job, whichever arm runs it: all arms compute the same.
What fails ends the loop, never the job: the original program stays. Where several processes run the
program, every change of state is a decision of their consensus, so that all run the same arm at the
same call; a process on its own is a consensus of one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.consensus.consensus import Consensus, Message, NoConsensus, consensus_for, stop
from slipstream.experiment.agenda import Proposals
from slipstream.experiment.background_compile import BackgroundCompile
from slipstream.experiment.failure import StepFailure
from slipstream.experiment.plan import LOOKS, ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import Preparation, Timer, prepare_arms, wait
from slipstream.experiment.receipt import Receipt
from slipstream.experiment.recordings import Recordings
from slipstream.experiment.rounds import Rounds
from slipstream.experiment.step_timer import StepTimer
from slipstream.experiment.variants import Arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.listener import JobFailed

__all__ = [
    "LOOKS",
    "Controller",
    "ExperimentOutcome",
    "ExperimentPlan",
    "Preparation",
    "Timer",
    "prepare_arms",
]

log = logging.getLogger("slipstream")

MEET_EVERY = 5
"""calls between two meetings until all ranks are there; then the leader spaces them by time"""

State = Callable[[Sequence[Any], Callable[[], Any]], Any]


class Controller:
    """The loop of one program; `on_call` goes around each of its calls."""

    def __init__(
        self,
        watched: CompiledProgram,
        plan: ExperimentPlan,
        prepare: Preparation | None = None,
        timer: Timer | None = None,
        consensus: Consensus | None = None,
    ) -> None:
        self.watched = watched
        self.plan = plan
        self.outcome = ExperimentOutcome(watched.name)
        self.done = threading.Event()
        self.receipt: Receipt | None = None
        """filled in by whoever wants one, once the loop is done"""
        self.state: State = self._gather
        self._timer = timer or StepTimer()
        self._calls = 0
        """in this state"""
        self._recordings = Recordings(self.outcome, plan.profiler_options, self._without_profile)
        self._background = BackgroundCompile(prepare or prepare_arms, watched, plan, self.outcome)
        self._rounds: Rounds | None = None
        self._best: Arm | None = None
        self._next = 0
        """the call of the next meeting, where one is set"""
        self._join(consensus)

    @property
    def folder(self) -> Path:
        """Where this process leaves its files."""
        consensus = self.outcome.consensus
        return (
            self.plan.folder if consensus.is_alone else self.plan.folder / f"rank{consensus.rank}"
        )

    def _join(self, consensus: Consensus | None) -> None:
        try:
            self.consensus = consensus or consensus_for(
                self.watched, self.plan.folder, self.plan.patience_s
            )
        except NoConsensus as problem:
            self.consensus = Consensus()
            self._proposals = Proposals(self.consensus, self.plan, self.outcome)
            self._settle(str(problem))
            return
        self.outcome.consensus = self.consensus
        self._proposals = Proposals(self.consensus, self.plan, self.outcome)
        if self.consensus.is_leader and not self._proposals.attend(self.watched.calls + 1):
            self._settle("the other ranks can't be reached")

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        # Another thread's call, or one from inside the program's own callbacks, is not measured
        # and waits for nobody. Across processes calls have one order, which is kept.
        if not self.watched.lock.acquire(blocking=not self.consensus.is_alone):
            if self._rounds is not None:
                self._rounds.is_disturbed = True
            return run()
        try:
            return run() if self.done.is_set() else self.state(arguments, run)
        except Exception as error:
            # The job's own, or ours: either way the other ranks must not be left to find out.
            self._stand_by(error)
            raise
        finally:
            self.watched.lock.release()

    def _stand_by(self, error: Exception) -> None:
        """What went wrong here must not let this rank run another program than the others.

        JobFailed where they count on it: to go on alone would mix up their collectives.
        """
        if self.consensus.is_alone or self.done.is_set() or isinstance(error, JobFailed):
            return
        self._leave(f"{type(error).__name__}: {error}")
        if not self.done.is_set():
            raise JobFailed from error

    # Gathering: until every rank takes part, and the first calls are over.

    def _gather(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        call = self.watched.calls
        if self.consensus.is_alone or (call % MEET_EVERY == 0 and self._comes_to(call)):
            decision = self._meet(call, lambda at: self._proposals.begin(at, self._calls))
            if decision["do"] == "capture":
                wait(arguments)
                self._calls = 0
                if self.plan.is_recorded:
                    self._next = call + 1
                    self._begin_work()
                    return run()
                self._next = call + self.plan.steps
                self.state = self._capture
                self._recordings.begin("before", self.folder)
                return self.state(arguments, run) if not self.done.is_set() else run()
        self._calls += 1
        return run()

    def _comes_to(self, call: int) -> bool:
        problem = self._proposals.come_to(call)
        if problem is not None:
            self._leave(problem)
        return self._proposals.attends

    # Capturing: the profile that the costs come from.

    def _without_profile(self, name: str, problem: str) -> None:
        if name == "before":
            self._leave(problem)
        else:
            self.outcome.notes.append(f"the chosen program was not profiled: {problem}")

    def _capture(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        result = run()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._recordings.end()
            self._begin_work()
        return result

    def give_way(self) -> None:
        """The job wants the profiler for itself; JAX allows one session in a process."""
        with self.watched.lock:
            self._recordings.give_way()

    # Preparing: the job goes on with the original program while others are compiled.

    def _begin_work(self) -> None:
        self.state = self._go_on
        self._proposals.restart_clock()
        if not self.done.is_set():
            self._background.begin(self.consensus)

    def join(self, timeout_s: float) -> None:
        """Wait for compiles in the background: Python must not end under them."""
        self._background.join(timeout_s)

    def _go_on(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        call = self.watched.calls
        if call < self._next:
            return run()
        decision = self._meet(call, self._proposals.compare)
        self._next = int(decision.get("next", call + 1))
        if decision["do"] == "compare":
            self._rounds = Rounds(self.outcome, decision["arms"], self.plan, self.consensus)
            self.state = self._compare
            return self._compare(arguments, run)
        return run()

    # Comparing: each call runs one arm, a few of them make a turn; all ranks know the order.

    def _compare(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        assert self._rounds is not None
        arm = self._rounds.next_arm()
        if self._rounds.begins_turn:
            # What ran before is not this arm's time.
            wait(arguments)
            self._rounds.is_disturbed = False
        self.watched.run_with(arm.executable)
        try:
            result, seconds = self._timer(arm, run)
            if self._rounds.is_warming:
                # A program that fails does so the first times: then its arguments are there still.
                wait(result)
        except Exception as error:
            # Anything that a program or its callbacks raise; what is the job's is raised again.
            return self._without(arm, error, arguments, run)
        self._rounds.ran(self.watched.calls, arm.name, result, is_done=seconds is not None)
        if seconds is not None and self._rounds.took(arm, seconds):
            self._follow(self._rounds.look())
        return result

    def _without(
        self, arm: Arm, error: Exception, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """An arm that fails at run time (memory, say) is out, and the original takes its step."""
        assert self._rounds is not None
        if arm.executable is self.watched.original:
            raise error
        failure = StepFailure(error, self.watched, self.consensus)
        # Unless it failed on all ranks, the others are inside this arm's collectives, where any
        # other program would meet them.
        if not failure.is_shared() or not failure.is_repeatable(arguments):
            raise JobFailed from error
        log.warning("slipstream: the program %r failed and is out: %s", arm.name, failure.why)
        self.watched.run_with(self.watched.original)
        arm.error, arm.executable = failure.why[:300], None
        self._rounds.drop(arm)
        if len(self._rounds.arms) < 2:
            self._settle(None)
        getattr(run, "reset", bool)()
        result = run()
        self._rounds.ran(self.watched.calls, "original", result, is_done=True)
        return result

    def _follow(self, decision: Message) -> None:
        """What was decided after a look at the times."""
        if decision["do"] == "stop":
            self._settle(decision.get("why"))
        elif decision["do"] == "choose":
            arms = {arm.name: arm for arm in self.outcome.arms}
            self._best = arms.get(decision["best"])
            self.outcome.chosen = decision["best"] or "original"
            checked = arms.get(decision["checked"])
            if checked is None or not self.plan.checks:
                self._settle(None)
                return
            self.watched.run_with(checked.executable)
            self._calls = 0
            self.state = self._check
            self._recordings.begin("after", self.folder)

    def _check(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        """The best arm is profiled: on every rank for as many calls, profiler or not."""
        result = run()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._recordings.end()
            self._settle(None)
        return result

    # Meetings and the end.

    def _meet(self, call: int, propose: Callable[[int], Message]) -> Message:
        proposal = self.consensus.propose(lambda: propose(call))
        decision = self.consensus.decide(str(call), proposal)
        if decision["do"] == "stop":
            self._settle(decision.get("why"))
        return decision

    def _leave(self, problem: str) -> None:
        """Before its vote a rank may go: without it, only the original program can be decided."""
        if not self.consensus.leave(problem):
            self.consensus.publish("veto", {"why": problem})
            return
        if self.consensus.is_leader:
            call = max(self._next, self.watched.calls + 1)
            if self.state == self._gather:
                call += -call % MEET_EVERY
            # Nobody shall wait for a leader that is gone.
            self.consensus.decide(str(call), stop(f"rank {self.consensus.rank}: {problem}"))
        self._settle(problem)

    def _settle(self, problem: str | None) -> None:
        """From now on the winner runs, at full speed; without one, the original."""
        self.outcome.problem = problem
        best = None if problem else self._best
        if best is None:
            self.outcome.chosen = "original"
        self.watched.run_with(best.executable if best else self.watched.original)
        self.watched.is_settled = True
        for arm in self.outcome.arms:
            if arm is not best:
                # Programs hold device memory.
                arm.executable = arm.executable if arm.name == "original" else None
        self.done.set()

    def stop(self, why: str) -> None:
        """End the loop where it stands: the original program stays.

        Where several processes take part and may have begun to compare, it ends at their next
        decision.
        """
        with self.watched.lock:
            if self.done.is_set():
                return
            self._recordings.abandon()
            if self.consensus.is_alone:
                self._best = None
                self._settle(why)
            else:
                self._leave(why)

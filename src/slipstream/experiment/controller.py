"""The loop of one program: profile it, recompile it with what was measured, keep what is faster.

    calls   1 … start    start … +steps   meanwhile   rounds × turns     steps      from then on
    state   warming up   capturing        preparing   comparing          checking   settled
    runs    original     original         original    each arm in turn   the best   the winner

Every call is a real step of the job, whichever arm runs it: all arms compute the same. A failure
ends the loop, never the job: the original program stays. Where several processes run the program,
every change of state is a decision of their consensus, so that all run the same arm at the same
call; a process on its own is a consensus of one.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from slipstream.consensus.consensus import Consensus, Message, NoConsensus, consensus_for, stop
from slipstream.experiment.agreement import MAX_CALLS_APART, Proposals
from slipstream.experiment.phase_times import send_times
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.prepare import BackgroundCompile, Preparation, prepare_arms
from slipstream.experiment.receipt import Receipt
from slipstream.experiment.recordings import TRIES, ProfileRecorder, calls_before_retry
from slipstream.experiment.rounds import Rounds, StepFailure
from slipstream.experiment.step_timer import StepTimer, Timer, wait
from slipstream.experiment.variants import Arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.jax_types import Arguments, Results, RunCall
from slipstream.jaxhooks.listener import JobFailed

log = logging.getLogger("slipstream")

MEET_EVERY = 5
"""calls between two meetings until all ranks have joined; then the leader spaces them by time"""


class State(enum.Enum):
    """Where the loop stands, in the words of `slipstream run`'s status."""

    WARMING_UP = "warming up"
    CAPTURING = "capturing"
    PREPARING = "preparing"
    COMPARING = "comparing"
    CHECKING = "checking"
    SETTLED = "settled"


_PHASES = {
    State.WARMING_UP: "join",
    State.CAPTURING: "capture",
    State.COMPARING: "compare",
    State.CHECKING: "check",
}
"""what the time in a state is called; while it is preparing, the preparation takes its own times"""


class _JobCall:
    """One call of the job, which remembers the error that the program itself raised."""

    def __init__(self, run: RunCall) -> None:
        self._run = run
        self._error: Exception | None = None

    def __call__(self) -> Results:
        try:
            return self._run()
        except Exception as error:
            self._error = error
            raise

    def raised(self, error: Exception) -> bool:
        """Whether an error is the program's; anything else is a bug of ours.

        XLA may raise while its results are waited for; JaxRuntimeError is a RuntimeError.
        """
        return error is self._error or isinstance(error, RuntimeError)

    def repeat(self) -> Results:
        getattr(self._run, "reset", bool)()
        return self()


class Controller:
    """The loop of one program; `on_call` goes around each of its calls."""

    def __init__(
        self,
        compiled: CompiledProgram,
        plan: ExperimentPlan,
        prepare: Preparation | None = None,
        timer: Timer | None = None,
        consensus: Consensus | None = None,
    ) -> None:
        self.compiled = compiled
        self.plan = plan
        self.outcome = ExperimentOutcome(compiled.name)
        self.done = threading.Event()
        self.state = State.WARMING_UP
        self.receipt: Receipt | None = None
        """filled in by `receipt_when_ready`, once the loop is done"""
        self._timer = timer or StepTimer()
        self._calls = 0
        """in this state"""
        self._recorder = ProfileRecorder(plan.profiler_options, self._on_profiler_failure)
        self._profiler_failures = 0
        self._background = BackgroundCompile(prepare or prepare_arms, compiled, plan, self.outcome)
        self._rounds: Rounds | None = None
        self._best: Arm | None = None
        self._next = 0
        """the call of the next meeting, where one is set"""
        self._met = compiled.calls
        """the call of the last meeting"""
        self._enter(State.WARMING_UP)
        self._join_consensus(consensus)

    @property
    def folder(self) -> Path:
        """Where this process writes its files."""
        consensus = self.outcome.consensus
        return (
            self.plan.folder if consensus.is_alone else self.plan.folder / f"rank{consensus.rank}"
        )

    def _join_consensus(self, consensus: Consensus | None) -> None:
        try:
            self.consensus = consensus or consensus_for(
                self.compiled, self.plan.folder, self.plan.patience
            )
        except NoConsensus as problem:
            self.consensus = Consensus()
            self._proposals = Proposals(self.consensus, self.plan, self.outcome)
            self._settle(str(problem))
            return
        self.outcome.consensus = self.consensus
        self._proposals = Proposals(self.consensus, self.plan, self.outcome)
        if self.consensus.is_leader and not self._proposals.join(self.compiled.calls + 1):
            self._settle("the other ranks can't be reached")

    def on_call(self, arguments: Arguments, run: RunCall) -> Results:
        # A call from another thread, or from the program's own callbacks, is not measured and
        # doesn't wait. Across processes calls have one order, which must be kept.
        if not self.compiled.lock.acquire(blocking=not self.consensus.is_alone):
            if self._rounds is not None:
                self._rounds.is_disturbed = True
            return run()
        call = _JobCall(run)
        try:
            return call() if self.done.is_set() else self._step(arguments, call)
        except Exception as error:
            # The job's own error, or a bug of ours: either way the other ranks must learn of it.
            self._on_error(error, is_bug=not call.raised(error))
            raise
        finally:
            self.compiled.lock.release()

    def _step(self, arguments: Arguments, call: _JobCall) -> Results:
        match self.state:
            case State.WARMING_UP:
                return self._warm_up(arguments, call)
            case State.CAPTURING:
                return self._capture(call)
            case State.PREPARING:
                return self._prepare(arguments, call)
            case State.COMPARING:
                return self._compare(arguments, call)
            case State.CHECKING:
                return self._check(call)
            case State.SETTLED:
                return call()

    def _on_error(self, error: Exception, *, is_bug: bool) -> None:
        """End the loop after a bug of ours, and never let this rank run another program alone.

        The bug's traceback is logged by the hooks, which then finish the call. Raises JobFailed
        where other ranks count on this one: going on alone would mix up their collectives.
        """
        if self.done.is_set() or isinstance(error, JobFailed):
            return
        problem = f"{type(error).__name__}: {error}"
        if self.consensus.is_alone:
            if is_bug:
                self._recorder.abandon()
                self._settle(f"internal error: {problem}")
            return
        self._leave(problem)
        if not self.done.is_set():
            raise JobFailed from error

    def _enter(self, state: State) -> None:
        self.state = state
        self.outcome.times.end_all()
        if state in _PHASES:
            self.outcome.times.begin(_PHASES[state])

    # Warming up: until every rank takes part, and the first calls are over.

    def _warm_up(self, arguments: Arguments, call: _JobCall) -> Results:
        number = self.compiled.calls
        if self.consensus.is_alone or (number % MEET_EVERY == 0 and self._joins_meeting(number)):
            decision = self._meet(number, lambda: self._proposals.begin(number, self._calls))
            if decision["do"] == "capture":
                wait(arguments)
                return self._begin_capture(number, call)
        self._calls += 1
        return call()

    def _joins_meeting(self, number: int) -> bool:
        problem = self._proposals.join_meeting(number)
        if problem is not None:
            self._leave(problem)
        return self._proposals.has_joined

    # Capturing: the profile that the costs come from.

    def _begin_capture(self, number: int, call: _JobCall) -> Results:
        self._calls = 0
        if self.plan.is_recorded:
            self._next = number + 1
            self._begin_preparing()
            return call()
        self._next = number + self.plan.steps
        self._enter(State.CAPTURING)
        self.outcome.captured = (number - 1, self._next - 2)
        self._recorder.begin(self._profile_folder("before"))
        return self._capture(call) if self.state is State.CAPTURING else call()

    def _capture(self, call: _JobCall) -> Results:
        result = call()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._save_profile("before")
            if self.state is State.CAPTURING:
                self._begin_preparing()
        return result

    def _profile_folder(self, name: str) -> Path:
        return self.folder / "profiles" / name

    def _save_profile(self, name: str) -> None:
        folder = self._recorder.end()
        if folder is not None:
            self.outcome.profiles[name] = folder

    def _on_profiler_failure(self, problem: str) -> None:
        if self.state is not State.CAPTURING:
            self.outcome.notes.append(f"the chosen program was not profiled: {problem}")
            return
        self._profiler_failures += 1
        if self._profiler_failures >= TRIES or not self.consensus.is_alone:
            # With several ranks, a capture is for the same calls on all of them.
            self._leave(problem)
            return
        self._enter(State.WARMING_UP)
        self._calls = self.plan.start - calls_before_retry(self.plan.steps, self._profiler_failures)

    def give_way(self) -> None:
        """Leave the profiler to the job; JAX allows one session in a process."""
        with self.compiled.lock:
            self._recorder.give_way()

    # Preparing: the job goes on with the original program while others are compiled.

    def _begin_preparing(self) -> None:
        self._enter(State.PREPARING)
        self._proposals.restart_clock()
        self._background.begin(self.consensus)

    def join(self, timeout_s: float) -> None:
        """Wait for the compiles in the background: Python must not shut down under them."""
        self._background.join(timeout_s)

    def _prepare(self, arguments: Arguments, call: _JobCall) -> Results:
        number = self.compiled.calls
        if number < self._next:
            return call()
        decision = self._meet(number, lambda: self._proposals.compare(number))
        self._next = int(decision.get("next", number + 1))
        if decision["do"] == "compare":
            self._rounds = Rounds(self.outcome, decision["arms"], self.plan, self.consensus)
            self._enter(State.COMPARING)
            self.compiled.is_compared = True
            return self._compare(arguments, call)
        return call()

    # Comparing: each call runs one arm, a few calls make a turn; all ranks know the order.

    def _compare(self, arguments: Arguments, call: _JobCall) -> Results:
        assert self._rounds is not None
        arm = self._rounds.next_arm()
        if self._rounds.begins_turn:
            # The steps before this turn must not count towards its time.
            wait(arguments)
            self._rounds.is_disturbed = False
        self._run_with(arm)
        try:
            result, seconds = self._timer(arm, call)
            if self._rounds.is_warming:
                # A program that fails does so in its first calls: its arguments still exist then.
                wait(result)
        except Exception as error:
            if not call.raised(error):
                raise
            return self._without(arm, error, arguments, call)
        self._rounds.ran(self.compiled.calls, arm.name, result, is_done=seconds is not None)
        if seconds is not None and self._rounds.took(arm, seconds):
            self._follow(self._rounds.look())
        return result

    def _without(self, arm: Arm, error: Exception, arguments: Arguments, call: _JobCall) -> Results:
        """Drop an arm that failed at run time (out of memory, say); the original runs its step."""
        assert self._rounds is not None
        if arm.executable is self.compiled.original:
            raise error
        failure = StepFailure(error, self.compiled, self.consensus)
        # Unless it failed on all ranks, the others are inside this arm's collectives, where any
        # other program would meet them.
        if not failure.is_shared() or not failure.is_repeatable(arguments):
            raise JobFailed from error
        log.warning("slipstream: the program %r failed and is dropped: %s", arm.name, failure.why)
        self.compiled.run_with(self.compiled.original)
        arm.error, arm.executable = failure.why, None
        self._rounds.drop(arm)
        if len(self._rounds.arms) < 2:
            self._settle(None)
        result = call.repeat()
        self._rounds.ran(self.compiled.calls, "original", result, is_done=True)
        return result

    def _follow(self, decision: Message) -> None:
        """Carry out what was decided after a look at the times."""
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
            self._run_with(checked)
            self._calls = 0
            self._enter(State.CHECKING)
            self._recorder.begin(self._profile_folder("after"))

    def _check(self, call: _JobCall) -> Results:
        """Profile the best arm: for the same calls on every rank, whether or not it works."""
        result = call()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._save_profile("after")
            self._settle(None)
        return result

    def _run_with(self, arm: Arm | None) -> None:
        """From the next call on, run an arm; without one, the original program."""
        executable = arm.executable if arm is not None else None
        self.compiled.run_with(executable or self.compiled.original)

    # Meetings and the end.

    def _meet(self, number: int, propose: Callable[[], Message]) -> Message:
        """Before the comparison: without a decision, all go on with the original program."""
        proposal = self.consensus.propose(propose)
        # A leader that is late now is given twice as many calls until the next meeting.
        distance = min(2 * max(number - self._met, 1), MAX_CALLS_APART)
        if_late = {"do": "go on", "next": number + distance}
        self._met = number
        decision = self.consensus.decide(str(number), proposal, if_late)
        if decision["do"] == "stop":
            self._settle(decision.get("why"))
        return decision

    def _leave(self, problem: str) -> None:
        """Leave the consensus, which a rank may do before its vote: all keep the original then."""
        if not self.consensus.leave(problem):
            self.consensus.publish("veto", {"why": problem})
            return
        if self.consensus.is_leader:
            number = max(self._next, self.compiled.calls + 1)
            if self.state is State.WARMING_UP:
                number += -number % MEET_EVERY
            # No rank shall wait for a leader that is gone.
            self.consensus.decide(str(number), stop(f"rank {self.consensus.rank}: {problem}"))
        self._settle(problem)

    def _settle(self, problem: str | None) -> None:
        """Run the winner from now on, at full speed; the original where there is none."""
        self._enter(State.SETTLED)
        self.outcome.problem = problem
        best = None if problem else self._best
        if best is None:
            self.outcome.chosen = "original"
        self._run_with(best)
        self.compiled.is_settled, self.compiled.is_compared = True, False
        for arm in self.outcome.arms:
            if arm is not best:
                # Executables hold device memory.
                arm.executable = arm.executable if arm.name == "original" else None
        send_times(self.consensus, self.outcome.times)
        self.done.set()

    def stop(self, why: str) -> None:
        """End the loop where it stands: the original program stays.

        Where several processes take part and may have begun to compare, it ends at their next
        decision.
        """
        with self.compiled.lock:
            if self.done.is_set():
                return
            self._recorder.abandon()
            if self.consensus.is_alone:
                self._best = None
                self._settle(why)
            else:
                self._leave(why)

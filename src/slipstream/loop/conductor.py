"""The loop of one program: watch it, profile it, compile it anew, keep what is faster.

    calls   1 … start    start … +steps   meanwhile   rounds × arms      steps      ever after
    state   gathering    capturing        preparing   comparing          checking   settled
    runs    original     original         original    each arm in turn   the best   the winner

Each call of the job is a real step of the job, whichever arm runs it: all arms compute the same.
What fails ends the loop, never the job: the original program stays. Where several processes run the
program, every change of state is a decision of their council, so that all run the same arm at the
same call; a process on its own is a council of one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from slipstream.loop.arms import Arm
from slipstream.loop.comparing import Field
from slipstream.loop.council import Council, NoCouncil, Words, council_of, stop
from slipstream.loop.ending import Ending, in_background
from slipstream.loop.listening import JobFailed
from slipstream.loop.plan import LOOKS, Outcome, Plan
from slipstream.loop.preparing import Preparation, Timer, prepare_arms, timed, wait
from slipstream.loop.receipt import Receipt
from slipstream.loop.session import Session, SessionFailed
from slipstream.loop.votes import disagreement, vote_of
from slipstream.loop.watched import Watched

__all__ = ["LOOKS", "Conductor", "Outcome", "Plan", "Preparation", "Timer", "prepare_arms"]

log = logging.getLogger("slipstream")

MEET_EVERY = 5
"""calls between two meetings until all ranks are there; then the chair spaces them by time"""
SPACING_S = 0.5
FARTHEST = 1000
PREPARING_S = 3600.0
"""after which a recompilation that is not done is given up"""
NO_MEMORY = "RESOURCE_EXHAUSTED"
FAILED_S = 30.0
"""how long a rank on which an arm failed waits to hear that it failed on all"""

State = Callable[[Sequence[Any], Callable[[], Any]], Any]


class Conductor:
    """The loop of one program; `on_call` goes around each of its calls."""

    def __init__(
        self,
        watched: Watched,
        plan: Plan,
        prepare: Preparation | None = None,
        timer: Timer = timed,
        council: Council | None = None,
    ) -> None:
        self.watched = watched
        self.plan = plan
        self.outcome = Outcome(watched.name)
        self.done = threading.Event()
        self.receipt: Receipt | None = None
        """filled in by whoever wants one, once the loop is done"""
        self.state: State = self._gather
        self._prepare = prepare or prepare_arms
        self._timer = timer
        self._calls = 0
        """in this state"""
        self._session: Session | None = None
        self._worker: threading.Thread | None = None
        self._field: Field | None = None
        self._best: Arm | None = None
        self._began_s = time.monotonic()
        self._met = (0, self._began_s)
        self._next = 0
        """the call of the next meeting, where one is set"""
        self._join(council)

    @property
    def folder(self) -> Path:
        """Where this process leaves its files."""
        council = self.outcome.council
        return self.plan.folder if council.is_alone else self.plan.folder / f"rank{council.me}"

    def _join(self, council: Council | None) -> None:
        try:
            self.council = council or council_of(
                self.watched, self.plan.folder, self.plan.patience_s
            )
        except NoCouncil as problem:
            self.council = Council()
            self._settle(str(problem))
            return
        self.outcome.council = self.council
        self._attends = False
        if self.council.is_chair and not self._attend(self.watched.calls + 1):
            self._settle("the other ranks can't be reached")

    def on_call(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        # Another thread's call, or one from inside the program's own callbacks, is not measured
        # and waits for nobody. Across processes calls have one order, which is kept.
        if not self.watched.lock.acquire(blocking=not self.council.is_alone):
            if self._field is not None:
                self._field.is_disturbed = True
            return run()
        try:
            return run() if self.done.is_set() else self.state(arguments, run)
        except Exception as error:
            self._stand_by(error)
            raise
        finally:
            self.watched.lock.release()

    def _stand_by(self, error: Exception) -> None:
        """What went wrong here must not let this rank run another program than the others.

        JobFailed where they count on it: to go on alone would mix up their collectives.
        """
        if self.council.is_alone or self.done.is_set() or isinstance(error, JobFailed):
            return
        self._leave(f"{type(error).__name__}: {error}")
        if not self.done.is_set():
            raise JobFailed from error

    # Gathering: until every rank takes part, and the first calls are over.

    def _gather(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        call = self.watched.calls
        if self.council.is_alone or (call % MEET_EVERY == 0 and self._comes_to(call)):
            decision = self._meet(call, self._begin_proposal)
            if decision["do"] == "capture":
                wait(arguments)
                self._calls = 0
                if self.plan.is_recorded:
                    self._next = call + 1
                    self._begin_work()
                    return run()
                self._next = call + self.plan.steps
                self.state = self._capture
                self._begin_session("before")
                return self.state(arguments, run) if not self.done.is_set() else run()
        self._calls += 1
        return run()

    def _comes_to(self, call: int) -> bool:
        """Whether this rank takes part in a meeting.

        Ranks may begin at different calls. Nobody waits for a chair that has not begun: its own
        steps may wait for ours.
        """
        if not self._attends:
            chair = self.council.heard("attend").get(self.council.ranks[0])
            if chair is not None and int(chair["from"]) <= call:
                self._attend(call)
            elif time.monotonic() - self._began_s > self.plan.patience_s:
                self._leave(f"rank {self.council.ranks[0]} did not join")
        return self._attends

    def _attend(self, call: int) -> bool:
        self._attends = self.council.say("attend", {"from": call})
        return self._attends

    def _begin_proposal(self, call: int) -> Words:
        if self.council.is_alone:
            return {"do": "capture" if self._calls >= self.plan.start else "go on"}
        left = {r: vote for r, vote in self.council.heard("vote").items() if "problem" in vote}
        if left:
            return {"do": "stop", "why": disagreement(left)}
        attending = self.council.heard("attend")
        if attending.keys() >= set(self.council.ranks):
            latest = max(int(words["from"]) for words in attending.values())
            if call >= latest and call > self.plan.start:
                return {"do": "capture"}
        elif time.monotonic() - self._began_s > self.plan.patience_s:
            missing = self.council.silent("attend")
            return stop(f"{missing} did not join within {self.plan.patience_s:.0f} s")
        return {"do": "go on"}

    # Capturing: the profile that the costs come from.

    def _begin_session(self, name: str) -> None:
        session = Session(self.folder / "profiles" / name, self.plan.profiler_options)
        try:
            session.start()
            self._session = session
        except SessionFailed as problem:
            self._without_session(name, str(problem))

    def _end_session(self, name: str) -> None:
        session, self._session = self._session, None
        if session is None:
            return
        try:
            self.outcome.profiles[name] = session.stop()
        except SessionFailed as problem:
            self._without_session(name, str(problem))

    def _without_session(self, name: str, problem: str) -> None:
        if name == "before":
            self._leave(problem)
        else:
            self.outcome.notes.append(f"the chosen program was not profiled: {problem}")

    def _capture(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        result = run()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._end_session("before")
            self._begin_work()
        return result

    def give_way(self) -> None:
        """The job wants the profiler for itself; JAX allows one session in a process."""
        with self.watched.lock:
            session, self._session = self._session, None
            if session is None:
                return
            session.abandon()
            name = "after" if self.state == self._check else "before"
            self._without_session(name, "the job's own profiler session began")

    # Preparing: the job goes on with the original program while others are compiled.

    def _begin_work(self) -> None:
        self.state = self._go_on
        self._began_s = time.monotonic()
        if not self.done.is_set():
            self._worker = in_background(self._work, "slipstream")

    def join(self, timeout_s: float) -> None:
        """Wait for compiles in the background: Python must not end under them."""
        if self._worker is not None:
            self._worker.join(timeout_s)

    def _work(self) -> None:
        try:
            self._prepare(self.watched, self.plan, self.outcome)
            words: Words = vote_of(self.outcome.arms, self.outcome.costs_bytes)
        except Ending as error:
            words = {"problem": str(error)}
        except Exception as error:
            log.warning("slipstream: %s is not compiled anew", self.watched.name, exc_info=True)
            words = {"problem": f"{type(error).__name__}: {error}"}
        self.council.vote(words)

    def _go_on(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        call = self.watched.calls
        if call < self._next:
            return run()
        decision = self._meet(call, self._compare_proposal)
        self._next = int(decision.get("next", call + 1))
        if decision["do"] == "compare":
            self._field = Field(self.outcome, decision["arms"], self.plan, self.council)
            self.state = self._compare
            return self._compare(arguments, run)
        return run()

    def _compare_proposal(self, call: int) -> Words:
        votes = self.council.heard("vote")
        for rank, words in self.council.heard("veto").items():
            return stop(f"rank {rank}: {words['why']}")
        problems = {rank: vote for rank, vote in votes.items() if "problem" in vote}
        if problems or votes.keys() >= set(self.council.ranks):
            problem = disagreement(problems or votes, not self.council.is_alone)
            arms = [arm.name for arm in self.outcome.arms if arm.runs]
            if problem is not None or len(arms) < 2:
                return {"do": "stop", "why": problem}
            return {"do": "compare", "arms": arms}
        if time.monotonic() - self._began_s > PREPARING_S:
            return stop(f"the programs were not compiled within {PREPARING_S:.0f} s")
        return {"do": "go on", "next": call + self._spacing(call)}

    def _spacing(self, call: int) -> int:
        """Calls until the next meeting: twice a second is enough."""
        before, then = self._met
        now = time.monotonic()
        self._met = (call, now)
        if self.council.is_alone or not before or now <= then:
            return 1
        # At most twice as far as the last time: calls that are only dispatched come in bursts.
        most = min(2 * (call - before), FARTHEST)
        return min(max(int(SPACING_S * (call - before) / (now - then)), 1), most)

    # Comparing: each call runs one arm, in an order that all ranks know.

    def _compare(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        assert self._field is not None
        arm = self._field.next_arm()
        wait(arguments)
        self.watched.run_with(arm.executable)
        self._field.is_disturbed = False
        try:
            result, seconds = self._timer(arm, run)
        except Exception as error:
            return self._without(arm, error, arguments, run)
        if self._field.took(arm, seconds):
            self._follow(self._field.look())
        return result

    def _without(
        self, arm: Arm, error: Exception, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """An arm that fails at run time (memory, say) is out, and the original takes its step."""
        assert self._field is not None
        if arm.executable is self.watched.original:
            raise error
        words = str(error).strip().splitlines() or [type(error).__name__]
        if not self._all_failed(words[0]):
            # The others are inside this arm's collectives: any other program would meet them.
            raise JobFailed from error
        if not self._is_untouched(words[0], arguments):
            raise JobFailed from error
        log.warning("slipstream: the program %r failed and is out: %s", arm.name, words[0])
        self.watched.run_with(self.watched.original)
        arm.error, arm.executable = words[0][:300], None
        self._field.drop(arm)
        if len(self._field.arms) < 2:
            self._settle(None)
        getattr(run, "reset", bool)()
        return run()

    def _is_untouched(self, why: str, arguments: Sequence[Any]) -> bool:
        """Whether a step that failed can be done again as if it had not begun.

        Memory is had before anything runs. What fails later may have written over arguments that
        it was given for good, even if JAX does not count them as deleted, or called the host.
        """
        if any(getattr(value, "is_deleted", bool)() for value in arguments):
            return False
        return NO_MEMORY in why or self.watched.is_repeatable

    def _all_failed(self, why: str) -> bool:
        if self.council.is_alone:
            return True
        topic = f"failed-{self.watched.calls}"
        self.council.say(topic, {"why": why})
        return self.council.hear_all(topic, FAILED_S) is not None

    def _follow(self, decision: Words) -> None:
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
            self._begin_session("after")

    def _check(self, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        """The best arm is profiled: on every rank for as many calls, profiler or not."""
        result = run()
        self._calls += 1
        if self._calls >= self.plan.steps:
            wait(result)
            self._end_session("after")
            self._settle(None)
        return result

    # Meetings and the end.

    def _meet(self, call: int, propose: Callable[[int], Words]) -> Words:
        proposal: Words | None = None
        if self.council.is_chair:
            try:
                proposal = propose(call)
            except Exception as error:
                log.warning("slipstream: measuring stopped", exc_info=True)
                proposal = stop(f"{type(error).__name__}: {error}")
        decision = self.council.decide(str(call), proposal)
        if decision["do"] == "stop":
            self._settle(decision.get("why"))
        return decision

    def _leave(self, problem: str) -> None:
        """Before its vote a rank may go: without it, only the original program can be decided."""
        if not self.council.leave(problem):
            self.council.say("veto", {"why": problem})
            return
        if self.council.is_chair:
            call = max(self._next, self.watched.calls + 1)
            if self.state == self._gather:
                call += -call % MEET_EVERY
            # Nobody shall wait for a chair that is gone.
            self.council.decide(str(call), stop(f"rank {self.council.me}: {problem}"))
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
            if self._session is not None:
                self._session.abandon()
                self._session = None
            if self.council.is_alone:
                self._best = None
                self._settle(why)
            else:
                self._leave(why)

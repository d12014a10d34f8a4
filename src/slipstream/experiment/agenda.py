"""Who comes to a meeting, and what the first rank proposes there.

A process on its own proposes to itself.
"""

from __future__ import annotations

import time

from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.votes import disagreement

SPACING_S = 0.5
"""between two meetings while programs are compiled; in calls, as the steps of the job go"""
FARTHEST = 1000
PREPARING_S = 3600.0
"""after which a recompilation that is not done is given up"""


class Proposals:
    """Whether to begin, to go on, to compare or to stop, by what the ranks have said."""

    def __init__(
        self, consensus: Consensus, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        self._consensus = consensus
        self._plan = plan
        self._outcome = outcome
        self.attends = False
        """whether the others know that this rank takes part"""
        self._began_s = time.monotonic()
        self._met = (0, self._began_s)

    def restart_clock(self) -> None:
        """Another thing is waited for from now on."""
        self._began_s = time.monotonic()

    def attend(self, call: int) -> bool:
        """Tell the others; False where they can't be reached."""
        self.attends = self._consensus.publish("attend", {"from": call})
        return self.attends

    def come_to(self, call: int) -> str | None:
        """Take part in a meeting, if there is one; a problem where there will be none.

        Ranks may begin at different calls. Nobody waits for a leader that has not begun: its own
        steps may wait for ours.
        """
        if self.attends:
            return None
        leader = self._consensus.received("attend").get(self._consensus.ranks[0])
        if leader is not None and int(leader["from"]) <= call:
            self.attend(call)
        elif self._is_overdue:
            return f"rank {self._consensus.ranks[0]} did not join"
        return None

    @property
    def _is_overdue(self) -> bool:
        return time.monotonic() - self._began_s > self._plan.patience_s

    def begin(self, call: int, calls: int) -> Message:
        """To profile now? `calls` are those since the loop began."""
        if self._consensus.is_alone:
            return {"do": "capture" if calls >= self._plan.start else "go on"}
        left = {
            r: vote for r, vote in self._consensus.received("vote").items() if "problem" in vote
        }
        if left:
            return {"do": "stop", "why": disagreement(left)}
        attending = self._consensus.received("attend")
        if attending.keys() >= set(self._consensus.ranks):
            latest = max(int(words["from"]) for words in attending.values())
            if call >= latest and call > self._plan.start:
                return {"do": "capture"}
        elif self._is_overdue:
            missing = self._consensus.missing("attend")
            return stop(f"{missing} did not join within {self._plan.patience_s:.0f} s")
        return {"do": "go on"}

    def compare(self, call: int) -> Message:
        """To compare now? Once all have voted, and for the same programs."""
        votes = self._consensus.received("vote")
        for rank, words in self._consensus.received("veto").items():
            return stop(f"rank {rank}: {words['why']}")
        problems = {rank: vote for rank, vote in votes.items() if "problem" in vote}
        if problems or votes.keys() >= set(self._consensus.ranks):
            problem = disagreement(problems or votes, not self._consensus.is_alone)
            arms = [arm.name for arm in self._outcome.arms if arm.runs]
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
        if self._consensus.is_alone or not before or now <= then:
            return 1
        # At most twice as far as the last time: calls that are only dispatched come in bursts.
        most = min(2 * (call - before), FARTHEST)
        return min(max(int(SPACING_S * (call - before) / (now - then)), 1), most)

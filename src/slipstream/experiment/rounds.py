"""Arms against each other, turn by turn: the order of turns, the looks, and what they decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slipstream.consensus.audit_log import AuditLog, find_mismatch
from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.experiment.nan_check import NanCheck
from slipstream.experiment.plan import LOOKS, ExperimentOutcome, ExperimentPlan
from slipstream.experiment.stats import compare
from slipstream.experiment.variants import Arm

MOST_DISTURBED = 100
"""turns that are run again because another thread ran the program too"""


class Rounds:
    """The arms that run, the original first; every rank walks through the same turns."""

    def __init__(
        self,
        outcome: ExperimentOutcome,
        names: Sequence[str],
        plan: ExperimentPlan,
        consensus: Consensus,
    ) -> None:
        by_name = {arm.name: arm for arm in outcome.arms}
        self.arms = [by_name[name] for name in names]
        self.is_disturbed = False
        """whether another thread ran the program in the meantime"""
        self._outcome = outcome
        self._plan = plan
        self._consensus = consensus
        self._audit_log = AuditLog()
        self._nan_check = NanCheck()
        self._turns: list[Arm] = []
        self._warming = plan.warm_rounds
        self._completed = 0
        self._disturbed = 0
        self.begins_turn = True

    @property
    def is_warming(self) -> bool:
        return self._warming > 0

    def next_arm(self) -> Arm:
        if not self._turns:
            # Forwards, then backwards: what drifts is shared out evenly.
            forwards = self._completed % 2 == 0
            self._turns = self.arms[::-1] if forwards else list(self.arms)
        return self._turns[-1]

    def ran(self, call: int, arm: str, result: Any, *, is_done: bool) -> None:
        """Note what ran, and whether what came out are numbers still, where that is there to see:
        nobody waits for a step in the middle of a turn."""
        self._audit_log.record(call, arm)
        self.begins_turn = is_done
        odd = self._nan_check.note(call, arm, result) if is_done else None
        if odd is not None:
            self._outcome.notes.append(odd)

    def took(self, arm: Arm, seconds: float) -> bool:
        """Note a turn's time; whether it is time for a look."""
        if self.is_disturbed and self._consensus.is_alone and self._disturbed < MOST_DISTURBED:
            self._disturbed += 1
            return False
        self._turns.pop()
        if not self._warming:
            arm.times_s.append(seconds)
        if self._turns:
            return False
        if self._warming:
            self._warming -= 1
            return False
        self._completed += 1
        return self._completed in LOOKS or self._completed >= self._plan.rounds

    def drop(self, arm: Arm) -> None:
        """An arm that failed is out; the round begins anew."""
        self.arms.remove(arm)
        self._outcome.comparisons.pop(arm.name, None)
        self._turns = []
        for other in self.arms:
            del other.times_s[self._completed :]

    def look(self) -> Message:
        """Who is faster, and is it worth going on? One answer for all ranks."""
        meeting = f"look-{self._completed}-{len(self.arms)}"
        times = {arm.name: arm.times_s for arm in self.arms}
        self._consensus.publish(meeting, {"times": times, "ran": self._audit_log.drain()})
        proposal = self._consensus.propose(
            lambda: self._proposal(meeting), "the times could not be compared"
        )
        decision = self._consensus.decide(meeting, proposal)
        if decision["do"] != "stop":
            for arm in self.arms:
                arm.times_s[:] = decision["times"][arm.name]
            self._judge()
        return decision

    def _proposal(self, meeting: str) -> Message:
        heard = self._consensus.wait_for_all(meeting)
        vetoes = self._consensus.received("veto")
        if vetoes:
            rank, words = min(vetoes.items())
            return stop(f"rank {rank}: {words['why']}")
        if heard is None:
            return stop(f"{self._consensus.missing(meeting)} sent no times")
        mixed_up = find_mismatch({rank: words["ran"] for rank, words in heard.items()})
        if mixed_up is not None:
            return stop(mixed_up)
        for arm in self.arms:
            ranks = [words["times"][arm.name] for words in heard.values()]
            # A step is as slow as its slowest rank.
            arm.times_s[:] = [max(times) for times in zip(*ranks, strict=True)]
        self._judge()
        times = {arm.name: list(arm.times_s) for arm in self.arms}
        return {"times": times, **self._next()}

    def _judge(self) -> None:
        original, *others = self.arms
        tests = max(len(others), 1) * len(LOOKS)
        for arm in others:
            found = compare(original.times_s, arm.times_s, tests)
            self._outcome.comparisons[arm.name] = found

    def _next(self) -> Message:
        found = self._outcome.comparisons
        _, *others = self.arms
        verdicts = [found[arm.name].verdict for arm in others]
        if self._completed < self._plan.rounds and (
            "can't tell" in verdicts or set(verdicts) == {"no different"}
        ):
            return {"do": "go on"}
        faster = [arm for arm in others if found[arm.name].verdict == "faster"]
        best = min(faster, key=lambda arm: found[arm.name].change, default=None)
        checked = best or others[0]
        return {"do": "choose", "best": best.name if best else None, "checked": checked.name}

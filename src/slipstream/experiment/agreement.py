"""What the ranks of a job agree on: when to profile, when to compare, and on which programs.

The leader proposes, by what the ranks have published; all ranks follow the decision. A process on
its own proposes to itself. Before a comparison every rank votes with what it compiled: arm for arm
it must be the same program everywhere.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.variants import Arm
from slipstream.profile.program import Program

MEETING_INTERVAL_S = 0.5
"""between two meetings while programs are compiled"""
MAX_CALLS_APART = 1000
"""most calls between two meetings"""


class Proposals:
    """The leader's proposals: begin, go on, compare or stop."""

    def __init__(
        self, consensus: Consensus, plan: ExperimentPlan, outcome: ExperimentOutcome
    ) -> None:
        self._consensus = consensus
        self._plan = plan
        self._outcome = outcome
        self.has_joined = False
        """whether the others know that this rank takes part"""
        self._began_s = time.monotonic()
        self._met = (0, self._began_s)

    def restart_clock(self) -> None:
        """Start waiting for something else."""
        self._began_s = time.monotonic()

    def join(self, call: int) -> bool:
        """Announce this rank; False where the others can't be reached."""
        self.has_joined = self._consensus.publish("attend", {"from": call})
        return self.has_joined

    def join_meeting(self, call: int) -> str | None:
        """Join a meeting if the leader has called one; return why where it never will.

        Ranks may begin at different calls. No rank waits for a leader that has not begun: the
        leader's steps may be waiting for ours.
        """
        if self.has_joined:
            return None
        leader = self._consensus.from_rank(self._consensus.ranks[0], "attend")
        if leader is not None and int(leader["from"]) <= call:
            self.join(call)
        elif self._is_overdue:
            return f"rank {self._consensus.ranks[0]} did not join"
        return None

    @property
    def _is_overdue(self) -> bool:
        return time.monotonic() - self._began_s > self._plan.patience.background_s

    def begin(self, call: int, calls: int) -> Message:
        """Whether to profile now; `calls` counts from the start of the loop."""
        if self._consensus.is_alone:
            return {"do": "capture" if calls >= self._plan.start else "go on"}
        complaint = self._consensus.complaint()
        if complaint is not None:
            return stop(complaint)
        attending = self._consensus.from_all("attend")
        if attending is not None:
            latest = max(int(words["from"]) for words in attending.values())
            if call >= latest and call > self._plan.start:
                return {"do": "capture"}
        elif self._is_overdue:
            missing = self._consensus.missing("attend")
            return stop(f"{missing} did not join within {self._plan.patience.background_s:.0f} s")
        return {"do": "go on"}

    def compare(self, call: int) -> Message:
        """Whether to compare now: once all ranks have voted for the same programs."""
        complaint = self._consensus.complaint()
        if complaint is not None:
            return stop(complaint)
        votes = self._consensus.from_all("vote")
        if votes is not None:
            problem = disagreement(votes)
            arms = [arm.name for arm in self._outcome.arms if arm.runs]
            if problem is not None or len(arms) < 2:
                return {"do": "stop", "why": problem}
            return {"do": "compare", "arms": arms}
        limit_s = self._plan.patience.compile_s
        if time.monotonic() - self._began_s > limit_s:
            return stop(f"the programs were not compiled within {limit_s:.0f} s")
        return {"do": "go on", "next": call + self._spacing(call)}

    def _spacing(self, call: int) -> int:
        """Calls until the next meeting, for about two meetings a second."""
        before, then = self._met
        now = time.monotonic()
        self._met = (call, now)
        if self._consensus.is_alone or not before or now <= then:
            return 1
        # At most twice the last distance: calls that are only dispatched come in bursts.
        most = min(2 * (call - before), MAX_CALLS_APART)
        return min(max(int(MEETING_INTERVAL_S * (call - before) / (now - then)), 1), most)


def ballot(arms: Sequence[Arm], costs: bytes | None) -> dict[str, Any]:
    """A rank's vote, once its programs are compiled."""
    return {
        "costs": hashlib.sha256(costs or b"").hexdigest(),
        "arms": {arm.name: _arm_facts(arm) for arm in arms},
    }


def disagreement(votes: Mapping[int, Message]) -> str | None:
    """Why the ranks must keep the original program; None where they agree."""
    first, vote = min(votes.items())
    for rank, other in votes.items():
        if other["costs"] != vote["costs"]:
            return f"ranks {first} and {rank} compiled with different costs"
        if other["arms"].keys() != vote["arms"].keys():
            return f"ranks {first} and {rank} compiled other sets of programs"
    names = list(vote["arms"])
    # Where the ranks' original programs differ (each autotunes its own kernels), only the order of
    # the collectives must be the same; otherwise the whole program must.
    key = "content" if _agree(votes, "original", "content") else "collectives"
    for name in names:
        errors = {rank: v["arms"][name]["error"] for rank, v in votes.items()}
        failed = {rank: error for rank, error in errors.items() if error}
        if failed and len(failed) < len(errors):
            rank, error = min(failed.items())
            return f"rank {rank} could not make the program {name!r}: {error}"
        if not failed and not (_agree(votes, name, key) and _agree(votes, name, "flags")):
            return f"the program {name!r} is not the same on all ranks"
    return None


def _agree(votes: Mapping[int, Message], name: str, key: str) -> bool:
    return len({vote["arms"].get(name, {}).get(key) for vote in votes.values()}) == 1


def _arm_facts(arm: Arm) -> dict[str, str | None]:
    program = arm.program
    return {
        "error": arm.error,
        "flags": json.dumps(dict(arm.variant.flags), sort_keys=True),
        "content": program.content_hash if program else None,
        "collectives": collective_order(program) if program else None,
    }


def collective_order(program: Program) -> str:
    """A hash of the collectives in order, with their shapes and replica groups."""
    digest = hashlib.sha256()
    for name in sorted(program.computations):
        for i in program.computations[name].instructions:
            if i.collective is not None:
                line = f"{name} {i.opcode} {i.shape} {i.collective}\n"
                digest.update(line.encode())
    return digest.hexdigest()[:32]

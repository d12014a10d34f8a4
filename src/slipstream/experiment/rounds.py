"""The comparison: arms run in interleaved rounds, and their times are looked at now and then.

    round 1   a · original · b          in random order
    round 2   b · original · a          backwards: drift is spread evenly

Every rank runs the same turns in the same order, and every look ends in one decision for all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from slipstream.consensus.audit_log import AuditLog, find_mismatch
from slipstream.consensus.consensus import Consensus, Message, stop
from slipstream.experiment.plan import LOOKS, ExperimentOutcome, ExperimentPlan
from slipstream.experiment.stats import compare, round_order
from slipstream.experiment.variants import Arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.jax_types import Arguments, Results, first_line, is_allocation_failure

AS_FAST = ("faster", "no different")
"""verdicts with which a simpler arm replaces the fastest; if in doubt, the fastest stays"""
MAX_DISTURBED = 100
"""turns that are run again because another thread ran the program as well"""


class Rounds:
    """The arms that still run, the original first, and whose turn it is."""

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
        """whether another thread ran the program during this turn"""
        self.begins_turn = True
        self._outcome = outcome
        self._plan = plan
        self._consensus = consensus
        self._audit_log = AuditLog()
        self._nan_check = NanCheck()
        self._turns: list[Arm] = []
        """left in this round, the next one last"""
        self._warm_rounds_left = plan.warm_rounds
        self._completed = 0
        self._disturbed = 0

    @property
    def is_warming(self) -> bool:
        return self._warm_rounds_left > 0

    def next_arm(self) -> Arm:
        if not self._turns:
            self._turns = round_order(self.arms, self._completed)[::-1]
        return self._turns[-1]

    def ran(self, call: int, arm: str, result: Results, *, is_done: bool) -> None:
        """Record what ran. Results are checked for NaN only if done: checking mustn't wait."""
        self._audit_log.record(call, arm)
        self.begins_turn = is_done
        note = self._nan_check.note(call, arm, result) if is_done else None
        if note is not None:
            self._outcome.notes.append(note)

    def took(self, arm: Arm, seconds: float) -> bool:
        """Record the time of a turn; return whether it is time for a look."""
        if self.is_disturbed and self._consensus.is_alone and self._disturbed < MAX_DISTURBED:
            self._disturbed += 1
            return False
        self._turns.pop()
        if not self.is_warming:
            arm.times_s.append(seconds)
        if self._turns:
            return False
        if self.is_warming:
            self._warm_rounds_left -= 1
            return False
        self._completed += 1
        return self._completed in LOOKS or self._completed >= self._plan.rounds

    def drop(self, arm: Arm) -> None:
        """Remove an arm that failed, and start the round again."""
        self.arms.remove(arm)
        self._outcome.comparisons.pop(arm.name, None)
        self._turns = []
        for other in self.arms:
            del other.times_s[self._completed :]

    def look(self) -> Message:
        """Compare the times of all ranks, and decide whether to go on: one answer for all."""
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
            self._compare()
        return decision

    def _proposal(self, meeting: str) -> Message:
        received = self._consensus.wait_for_all(meeting)
        complaint = self._consensus.complaint()
        if complaint is not None:
            return stop(complaint)
        if received is None:
            return stop(f"{self._consensus.missing(meeting)} sent no times")
        mismatch = find_mismatch({rank: message["ran"] for rank, message in received.items()})
        if mismatch is not None:
            return stop(mismatch)
        for arm in self.arms:
            ranks = [message["times"][arm.name] for message in received.values()]
            # A step is as slow as its slowest rank.
            arm.times_s[:] = [max(times) for times in zip(*ranks, strict=True)]
        self._compare()
        times = {arm.name: list(arm.times_s) for arm in self.arms}
        return {"times": times, **self._next()}

    def _compare(self) -> None:
        original, *others = self.arms
        tests = max(len(others), 1) * len(LOOKS)
        for arm in others:
            self._outcome.comparisons[arm.name] = compare(original.times_s, arm.times_s, tests)

    def _next(self) -> Message:
        found = self._outcome.comparisons
        _, *others = self.arms
        verdicts = [found[arm.name].verdict for arm in others]
        if self._completed < self._plan.rounds and (
            "can't tell" in verdicts or set(verdicts) == {"no different"}
        ):
            return {"do": "go on"}
        faster = [arm for arm in others if found[arm.name].verdict == "faster"]
        fastest = min(faster, key=lambda arm: found[arm.name].change, default=None)
        best = simplest_as_fast(fastest, faster) if fastest else None
        checked = best or others[0]
        return {"do": "choose", "best": best.name if best else None, "checked": checked.name}


def simplest_as_fast(fastest: Arm, faster: Sequence[Arm]) -> Arm:
    """Of the arms that are as fast as the fastest, round by round, the one that changes least."""

    def is_as_fast(arm: Arm) -> bool:
        # Not corrected for the number of arms: uncertainty must not cost a gain.
        return arm is fastest or compare(fastest.times_s, arm.times_s).verdict in AS_FAST

    return min(
        filter(is_as_fast, faster), key=lambda arm: (arm.variant.changes, arm is not fastest)
    )


class StepFailure:
    """An arm that failed while it ran a step of the job: may the original run that step?"""

    def __init__(self, error: Exception, compiled: CompiledProgram, consensus: Consensus) -> None:
        self.why = first_line(error)
        self._compiled = compiled
        self._consensus = consensus

    def is_shared(self) -> bool:
        """Whether it failed on all ranks: if not, the others are inside this arm's collectives."""
        if self._consensus.is_alone:
            return True
        topic = f"failed-{self._compiled.calls}"
        self._consensus.publish(topic, {"why": self.why})
        return self._consensus.wait_for_all(topic) is not None

    def is_repeatable(self, arguments: Arguments) -> bool:
        """Whether the step can run again as if it had not begun.

        Memory is allocated before anything runs. A program that fails later may have overwritten
        donated arguments, even if JAX doesn't count them as deleted, or called the host.
        """
        if any(getattr(value, "is_deleted", bool)() for value in arguments):
            return False
        return is_allocation_failure(self.why) or self._compiled.is_repeatable


class NanCheck:
    """Finds the first step whose results stop being finite, for the receipt.

    Only scalar floats are checked, such as a loss or a norm: each costs one small copy, while the
    comparison waits for the step anyway.
    """

    def __init__(self) -> None:
        self._is_over = False
        self._finite_steps = 0

    def note(self, call: int, arm: str, result: Results) -> str | None:
        """A sentence for the receipt, once."""
        if self._is_over or are_finite(result):
            self._finite_steps += 1
            return None
        self._is_over = True
        if not self._finite_steps:
            # It was so before anything but the original program had run.
            return None
        return (
            f"a result of the step was finite until call {call}, which the program {arm!r} ran, "
            "and is NaN or infinite since then; to see whether the job alone does that, run it "
            "without Slipstream"
        )


def are_finite(result: Results) -> bool:
    """Whether all scalar floats among a program's results are finite, as far as can be seen."""
    try:
        return all(math.isfinite(value) for value in _scalars(result))
    except RuntimeError:
        # jax.transfer_guard forbids copies to the host.
        return True


def _scalars(result: Results) -> Iterator[float]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    for value in result if isinstance(result, (list, tuple)) else ():
        if not isinstance(value, jax.Array) or value.size != 1:
            continue
        if jnp.issubdtype(value.dtype, jnp.floating) and value.addressable_shards:
            yield float(np.asarray(jax.device_get(value.addressable_data(0))).reshape(()))

"""Compare two profiles of one model, even if recompiled: what changed, and is it beyond noise?"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.diff.features import DiffOp, diff_ops
from slipstream.analyses.diff.matching import GONE, NEW, SAME, Match, match
from slipstream.analyses.diff.noise import LEAST_CONFIDENCE, Shift, shift
from slipstream.analyses.diff.schedule_moves import Move, moves, out_of_order
from slipstream.analyses.diff.step_samples import step_samples, step_walls
from slipstream.analyses.op_groups import equal_key, grouped
from slipstream.analyses.summary import step_times
from slipstream.inline import Inline
from slipstream.profile.events import median
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.layers import rolled_description, rolled_scope
from slipstream.profile.simulated import is_simulated

NEGLIGIBLE = 0.005
"""two recordings of one program on one machine, a minute apart, differ by up to this much"""
FEWEST_ALIKE = 8
"""unchanged ops needed to estimate how clocks drifted"""
LEAST_SHARE = 0.002
"""ops shorter than this share of the step don't count for the drift"""
VAGUE = 0.02
"""an interval wider than this on either side is inconclusive"""

UNRELATED = 0.3
"""profiles that match less than this share of either's device time are of different programs"""

FASTER, SLOWER, NO_DIFFERENT, UNKNOWN = "faster", "slower", "no different", "can't tell"
DIFFERENT_PROGRAMS = "different programs"


@dataclass(frozen=True)
class Side:
    """One of the two profiles."""

    source: str
    program: str
    """the program with the most device time, as `name(id)`"""
    fingerprint: str | None
    steps: int
    step_us: float
    """of the median step"""
    device_us: float
    """device time of all ops in the median step"""
    matched_share: float
    """share of `device_us` that was matched with the other side"""
    is_simulated: bool


@dataclass(frozen=True)
class Verdict:
    """Whether the step got slower; changes are relative, positive means slower."""

    verdict: str
    """`faster`, `slower`, `no different`, `can't tell` or `different programs`"""
    change: float
    """NaN if the step times can't be compared"""
    low: float | None
    high: float | None
    """confidence interval of the change; None if there are too few steps"""
    confidence: float
    """how often such an interval contains the true change"""
    why: str


@dataclass(frozen=True)
class StepPart:
    """A part of the step, as in `summary`."""

    name: str
    before_us: float
    after_us: float


@dataclass(frozen=True)
class Change:
    """A matched op, or set of ops: its cost before and after, in the median step of a device."""

    kind: str
    """`same`, `changed`, `unrolled`, `split`, `merged`, `regrouped`, `new` or `gone`"""
    before: tuple[str, ...]
    after: tuple[str, ...]
    """instructions"""
    before_us: float
    after_us: float
    """cost to the step: device time of compute, exposed time of collectives and copies"""
    change_us: float
    excess_us: float
    """the change without the drift that all kernels share (`Diff.drift`)"""
    low_us: float | None
    high_us: float | None
    """confidence interval of the excess; None if there are too few steps"""
    is_beyond_noise: bool | None
    device_before_us: float
    device_after_us: float
    """device time, hidden or not"""
    phase: str
    category: str
    scope: str
    source: str
    description: str
    program: str
    evidence: str
    """what they were matched by"""
    per_step_count: float = 0.0
    """executions in one step of one device: after, or before if it is gone"""


@dataclass(frozen=True)
class Diff(Inline):
    """What changed between two profiles, and whether the step got slower."""

    before: Side
    after: Side
    verdict: Verdict
    parts: tuple[StepPart, ...]
    drift: float | None
    """how much slower unchanged kernels run (other clocks or another machine); None if unknown"""
    changes: tuple[Change, ...]
    """all ops: changes within noise last, otherwise by `excess_us`, the largest first"""
    moves: tuple[Move, ...]
    """collectives and copies, by change of exposed time, largest first"""
    reordered: int
    """number of ops that would have to move for both schedules to be in the same order"""
    groups: tuple[Change, ...] = ()
    """`changes` with equal ops of unrolled layers as one, in the same order"""
    move_groups: tuple[Move, ...] = ()
    """`moves` with equal collectives and copies as one; compute beside them, too"""


def diff(before: Profile, after: Profile) -> Diff:
    """What changed from one profile to the other."""
    found = [diff_ops(profile, step_samples(profile)) for profile in (before, after)]
    matches = match(*found)
    equal = _equal(matches)
    simulated = tuple(is_simulated(profile) for profile in (before, after))
    sides = [_side(profile, matches, number) for number, profile in enumerate((before, after))]
    drift = _drift(matches) if not any(simulated) else None
    walls = (step_walls(before), step_walls(after))
    return Diff(
        sides[0],
        sides[1],
        _different(*sides) or verdict(*walls, simulated),
        _parts(before, after),
        drift,
        _changes(matches, drift or 0.0, all(simulated)),
        moves(matches),
        out_of_order(matches),
        _changes(equal, drift or 0.0, all(simulated)),
        moves(equal),
    )


def _equal(matches: Sequence[Match]) -> list[Match]:
    """Matches of equal ops of unrolled layers as one; the same happened to all of them."""
    return [
        Match(
            same[0].kind,
            tuple(item for one in same for item in one.before),
            tuple(item for one in same for item in one.after),
            same[0].evidence,
        )
        for same in grouped(matches, _equality)
    ]


def _equality(found: Match) -> Hashable:
    key = equal_key(found.first.samples.op)
    if key is None:
        return id(found)
    return (key, found.kind, bool(found.before), bool(found.after))


def _different(before: Side, after: Side) -> Verdict | None:
    """No verdict, if the profiles have too little in common to compare their steps."""
    shares = before.matched_share, after.matched_share
    if max(shares) >= UNRELATED or not (before.device_us and after.device_us):
        return None
    why = (
        f"only {shares[0]:.0%} of the device time of {before.program or 'the first'} and "
        f"{shares[1]:.0%} of that of {after.program or 'the second'} is in ops that both have, so "
        "their steps can't be compared"
    )
    return Verdict(DIFFERENT_PROGRAMS, math.nan, None, None, 0.0, why)


def verdict(
    before_us: Sequence[float],
    after_us: Sequence[float],
    simulated: Sequence[bool] = (False, False),
) -> Verdict:
    """Whether steps got slower, given the duration of each."""
    if not before_us or not after_us:
        return Verdict(UNKNOWN, math.nan, None, None, 0.0, "one of the profiles has no steps")
    change = float(median(after_us) / median(before_us)) - 1
    if all(simulated):
        why = "both are predictions, which have no noise, but an unknown error"
        return Verdict(_word(change, change, change), change, change, change, 1.0, why)
    if any(simulated):
        why = "a prediction and a recording also differ by the prediction's error"
        return Verdict(UNKNOWN, change, None, None, 0.0, why)
    moved = shift(np.log(before_us), np.log(after_us))
    if not moved.is_sure:
        why = (
            f"{len(before_us)} and {len(after_us)} steps are too few: their confidence interval "
            f"reaches {moved.confidence:.0%}, and at least {LEAST_CONFIDENCE:.0%} is needed"
        )
        return Verdict(UNKNOWN, change, None, None, moved.confidence, why)
    middle, low, high = (math.expm1(x) for x in (moved.estimate, moved.low, moved.high))
    word = _word(middle, low, high)
    return Verdict(word, middle, low, high, moved.confidence, _why(word))


def is_slower_than(found: Verdict, gate: float) -> bool | None:
    """Whether the step got slower by more than `gate`, beyond noise; None if that can't be told."""
    return None if found.low is None else found.low > gate


def _word(change: float, low: float, high: float) -> str:
    if low > 0 and change > NEGLIGIBLE:
        return SLOWER
    if high < 0 and change < -NEGLIGIBLE:
        return FASTER
    if high - low > 2 * VAGUE:
        return UNKNOWN
    return NO_DIFFERENT


def _why(word: str) -> str:
    if word in (SLOWER, FASTER):
        return "the whole interval lies on one side of zero"
    if word == UNKNOWN:
        return "the steps vary too much"
    return f"the change is within noise, or under {NEGLIGIBLE:.1%}"


def _side(profile: Profile, matches: Sequence[Match], number: int) -> Side:
    times = [
        (one.kind, item.samples.us) for one in matches for item in (one.before, one.after)[number]
    ]
    total = sum(us for _, us in times)
    matched = sum(us for kind, us in times if kind not in (NEW, GONE))
    walls = step_walls(profile)
    name = _hottest(matches, number)
    program = profile.programs.get(name)
    return Side(
        profile.hosts[0].source if profile.hosts else "",
        name,
        program.fingerprint if program is not None else None,
        len(walls) if profile.steps.basis != "recording" else 0,
        step_times(profile).wall_us if walls else math.nan,
        total,
        matched / total if total else 0.0,
        is_simulated(profile),
    )


def _hottest(matches: Sequence[Match], number: int) -> str:
    times: dict[str, float] = {}
    for one in matches:
        for item in (one.before, one.after)[number]:
            name = item.samples.op.program
            times[name] = times.get(name, 0.0) + item.samples.us
    return max(times, key=lambda name: times[name]) if times else ""


def _parts(before: Profile, after: Profile) -> tuple[StepPart, ...]:
    old, new = step_times(before), step_times(after)
    names = ("wall", "compute", "exposed_communication", "exposed_copy", "idle")
    return tuple(
        StepPart(name, float(getattr(old, f"{name}_us")), float(getattr(new, f"{name}_us")))
        for name in names
    )


def _drift(matches: Sequence[Match]) -> float | None:
    """The median change of kernels that do the same work: the effect of clocks and machines."""
    total = sum(item.samples.us for one in matches for item in one.before)
    ratios = [
        new / old
        for one in matches
        if one.kind == SAME and _is_kernel(one)
        and (old := one.before[0].samples.us) > LEAST_SHARE * total
        and (new := one.after[0].samples.us)
    ]  # fmt: skip
    return float(median(ratios)) - 1 if len(ratios) >= FEWEST_ALIKE else None


def _is_kernel(found: Match) -> bool:
    """Whether it computes: links and copy engines have other clocks, and collectives wait."""
    return found.first.samples.kind == "compute"


def _changes(matches: Sequence[Match], drift: float, is_exact: bool) -> tuple[Change, ...]:
    found = []
    for one in matches:
        before, after = _samples(one.before), _samples(one.after)
        zeros = np.zeros(1)
        old, new = (float(median(side)) if len(side) else 0.0 for side in (before, after))
        factor = 1 + (drift if _is_kernel(one) else 0.0)
        # An op that is new or gone took no time on the other side, in every step.
        first = before * factor if len(before) else np.repeat(zeros, len(after))
        second = after if len(after) else np.repeat(zeros, len(before))
        moved = shift(first, second)
        if is_exact:
            # Predictions have no noise.
            moved = Shift(moved.estimate, moved.estimate, moved.estimate, 1.0)
        found.append(_change(one, old, new, moved))
    found.sort(key=lambda change: (change.is_beyond_noise is False, -abs(change.excess_us)))
    return tuple(found)


def _samples(ops: Sequence[DiffOp]) -> np.ndarray:
    """Total cost of several ops in each step."""
    return np.sum([item.samples.cost_us for item in ops], axis=0) if ops else np.empty(0)


def _change(found: Match, old: float, new: float, moved: Shift) -> Change:
    op = found.first.samples.op
    is_group = found.is_group
    sure = moved.is_sure
    return Change(
        kind=found.kind,
        before=tuple(item.name for item in found.before),
        after=tuple(item.name for item in found.after),
        before_us=old,
        after_us=new,
        change_us=new - old,
        excess_us=moved.estimate,
        low_us=moved.low if sure else None,
        high_us=moved.high if sure else None,
        is_beyond_noise=moved.certain != 0 if sure else None,
        device_before_us=sum(item.samples.us for item in found.before),
        device_after_us=sum(item.samples.us for item in found.after),
        phase=op.phase,
        category=op.category,
        scope=rolled_scope(op.scope) if is_group else op.scope,
        source=op.source,
        description=rolled_description(op.description) if is_group else op.description,
        program=op.program,
        evidence=found.evidence,
        per_step_count=sum(item.samples.executions for item in found.after or found.before),
    )

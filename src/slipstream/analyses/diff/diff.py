"""Two profiles of one model, recompiled and renamed: what changed, and is it more than noise?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.diff.features import DiffOp, diff_ops
from slipstream.analyses.diff.matching import GONE, NEW, SAME, Match, match
from slipstream.analyses.diff.noise import LEAST_CONFIDENCE, Shift, shift
from slipstream.analyses.diff.schedule_moves import Move, moves, out_of_order
from slipstream.analyses.diff.step_samples import step_samples, step_walls
from slipstream.analyses.summary import step_times
from slipstream.profile.events import median
from slipstream.profile.profile import Profile

NEGLIGIBLE = 0.005
"""two recordings of one program differ by up to this much on one machine, a minute apart"""
FEWEST_ALIKE = 8
"""unchanged ops without which nothing can be said of clocks that drifted"""
LEAST_SHARE = 0.002
"""ops shorter than this share of the step say little of clocks"""
VAGUE = 0.02
"""an interval wider than this on either side says nothing"""

FASTER, SLOWER, NO_DIFFERENT, UNKNOWN = "faster", "slower", "no different", "can't tell"


@dataclass(frozen=True)
class Side:
    """One of the two profiles."""

    source: str
    program: str
    """the one with the most device time, as `name(id)`"""
    fingerprint: str | None
    steps: int
    step_us: float
    """the median step"""
    device_us: float
    """device time of all ops in the median step"""
    matched_share: float
    """of that, what was found on the other side"""
    is_simulated: bool


@dataclass(frozen=True)
class Verdict:
    """Is the step slower? Relative changes; positive is slower."""

    verdict: str
    """`faster`, `slower`, `no different` or `can't tell`"""
    change: float
    low: float | None
    high: float | None
    """bounds of the change; None where there are too few steps for any"""
    confidence: float
    why: str


@dataclass(frozen=True)
class StepPart:
    """A part of the step, as `summary` splits it."""

    name: str
    before_us: float
    after_us: float


@dataclass(frozen=True)
class Change:
    """What a matched op, or set of ops, took before and takes now, in one step of one device."""

    kind: str
    """`same`, `changed`, `unrolled`, `split`, `merged`, `regrouped`, `new` or `gone`"""
    before: tuple[str, ...]
    after: tuple[str, ...]
    """instructions"""
    before_us: float
    after_us: float
    """what the step pays: compute's device time, the exposed part of collectives and copies"""
    change_us: float
    excess_us: float
    """the change without what all kernels have in common (`Diff.drift`)"""
    low_us: float | None
    high_us: float | None
    """bounds of the excess; None where there are too few steps"""
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
    """what they were recognised by"""


@dataclass(frozen=True)
class Diff:
    """Where the time went, what moved, and whether the step got slower."""

    before: Side
    after: Side
    verdict: Verdict
    parts: tuple[StepPart, ...]
    drift: float | None
    """how much slower (positive) unchanged kernels run: clocks, or another machine; else None"""
    changes: tuple[Change, ...]
    """all ops, the largest change beyond noise first"""
    moves: tuple[Move, ...]
    """collectives and copies, the largest change of exposed time first"""
    reordered: int
    """ops that would have to move for both schedules to be in the same order"""


def diff(before: Profile, after: Profile) -> Diff:
    """What changed from one profile to the other."""
    found = [diff_ops(profile, step_samples(profile)) for profile in (before, after)]
    matches = match(*found)
    simulated = tuple(_is_simulated(profile) for profile in (before, after))
    sides = [_side(profile, matches, number) for number, profile in enumerate((before, after))]
    drift = _drift(matches) if not any(simulated) else None
    walls = (step_walls(before), step_walls(after))
    return Diff(
        sides[0],
        sides[1],
        verdict(*walls, simulated),
        _parts(before, after),
        drift,
        _changes(matches, drift or 0.0, all(simulated)),
        moves(matches),
        out_of_order(matches),
    )


def verdict(
    before_us: Sequence[float],
    after_us: Sequence[float],
    simulated: Sequence[bool] = (False, False),
) -> Verdict:
    """Whether steps got slower, from how long each took."""
    if not before_us or not after_us:
        return Verdict(UNKNOWN, math.nan, None, None, 0.0, "one of the profiles has no steps")
    change = float(median(after_us) / median(before_us)) - 1
    if all(simulated):
        why = "both are predictions, which have no noise; how far off they are, they don't say"
        return Verdict(_word(change, change, change), change, change, change, 1.0, why)
    if any(simulated):
        why = "a prediction and a recording differ by the prediction's error too"
        return Verdict(UNKNOWN, change, None, None, 0.0, why)
    moved = shift(np.log(before_us), np.log(after_us))
    if not moved.is_sure:
        why = (
            f"{len(before_us)} and {len(after_us)} steps are too few: an interval around them is "
            f"right {moved.confidence:.0%} of the time, and {LEAST_CONFIDENCE:.0%} is the least"
        )
        return Verdict(UNKNOWN, change, None, None, moved.confidence, why)
    middle, low, high = (math.expm1(x) for x in (moved.estimate, moved.low, moved.high))
    word = _word(middle, low, high)
    return Verdict(word, middle, low, high, moved.confidence, _why(word))


def is_slower_than(found: Verdict, gate: float) -> bool | None:
    """Whether the step got slower by more than `gate`, beyond noise; None where nobody can tell."""
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


def _is_simulated(profile: Profile) -> bool:
    return any(warning.code == "simulated" for warning in profile.warnings)


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
        float(median(walls)) if walls else math.nan,
        total,
        matched / total if total else 0.0,
        _is_simulated(profile),
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
    """The median change of kernels that do the same work: what clocks and machines differ by."""
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
    """Links and copy engines have clocks of their own, and collectives wait for others."""
    return found.first.samples.kind == "compute"


def _changes(matches: Sequence[Match], drift: float, is_exact: bool) -> tuple[Change, ...]:
    found = []
    for one in matches:
        before, after = _samples(one.before), _samples(one.after)
        zeros = np.zeros(1)
        old, new = (float(median(side)) if len(side) else 0.0 for side in (before, after))
        factor = 1 + (drift if _is_kernel(one) else 0.0)
        # What is new or gone took exactly nothing on the other side, in every step.
        first = before * factor if len(before) else np.repeat(zeros, len(after))
        second = after if len(after) else np.repeat(zeros, len(before))
        moved = shift(first, second)
        if is_exact:
            # Predictions have no noise.
            moved = Shift(moved.estimate, moved.estimate, moved.estimate, 1.0)
        found.append((moved, _change(one, old, new, moved)))
    found.sort(key=lambda pair: (-abs(pair[0].certain), -abs(pair[1].excess_us)))
    return tuple(change for _, change in found)


def _samples(ops: Sequence[DiffOp]) -> np.ndarray:
    """What the step pays for several ops together, step by step."""
    return np.sum([item.samples.cost_us for item in ops], axis=0) if ops else np.empty(0)


def _change(found: Match, old: float, new: float, moved: Shift) -> Change:
    op = found.first.samples.op
    sure = moved.is_sure
    return Change(
        found.kind,
        tuple(item.name for item in found.before),
        tuple(item.name for item in found.after),
        old,
        new,
        new - old,
        moved.estimate,
        moved.low if sure else None,
        moved.high if sure else None,
        moved.certain != 0 if sure else None,
        sum(item.samples.us for item in found.before),
        sum(item.samples.us for item in found.after),
        op.phase,
        op.category,
        op.scope,
        op.source,
        op.description,
        op.program,
        found.evidence,
    )

"""Why the best candidate wins, what limits it, and what would have to change for another to win.

Candidates may do different amounts of work in a step, so they are compared by their time for one
unit of it, and each part as a share of the best candidate's time:

best    ████ products ████░ network ░                    1.00 for a token
other   ████ products ████░░░░ network ░░░░░░            1.12: network +12%
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from slipstream.results.planning import (
    BOUND,
    COMMUNICATION_PARTS,
    EXPOSED,
    FAILED,
    MEASURED,
    PARTS,
    Candidate,
    Choices,
    MachinePlan,
)
from slipstream.results.tuning import NO_FIT
from slipstream.units import format_bytes

MOST_RIVALS = 4
NOTICEABLE = 0.01
"""change of a part that is mentioned, as a share of the best candidate's time"""
SAME_TIME = 0.0005
"""difference of two times that reads as none"""
NEARLY_FULL = 0.9
"""share of the memory limit from which on it is mentioned"""
MOST_HIDDEN = 0.9
"""share of exposed communication that one might hope to hide"""


@dataclass(frozen=True)
class Rival:
    """A candidate next to the best one."""

    candidate: Candidate
    longer: float
    """time for a unit of work relative to the best candidate's, less 1"""
    differs: str
    """its choices that differ: `tensor=2, batch=4`"""
    is_tie: bool = False


def reasons(plan: MachinePlan, rivals: Sequence[Rival], unit: str) -> tuple[str, ...]:
    """A few sentences about the best candidate of a machine, the most important first."""
    if plan.best is None:
        return tuple(_nothing_runs(plan))
    return (
        *_limits(plan, plan.best),
        *_differences(plan.best, rivals, unit),
        *_idle(plan),
        *_hiding(plan.best, rivals),
        *_too_large(plan, plan.best, unit),
        *_ties(plan),
    )


def choices_text(choices: Choices) -> str:
    """`tensor=2, batch=4`"""
    return ", ".join(f"{name}={value}" for name, value in choices.items())


def different_choices(
    choices: Choices, best: Choices, idle: Collection[str] = frozenset()
) -> Choices:
    """The choices that differ from the best candidate's, without those that change nothing."""
    return {
        name: value
        for name, value in choices.items()
        if best.get(name) != value and name not in idle
    }


def idle_choices(candidates: Iterable[Candidate]) -> tuple[str, ...]:
    """Choices whose values compiled to the same program wherever only they differ.

    Of those that fail or are bounded away nothing is known; two values have to be compiled.
    """
    compiled = [one for one in candidates if one.basis != BOUND]
    names = compiled[0].choices if compiled else ()
    return tuple(name for name in names if _is_idle(name, compiled))


def _is_idle(name: str, compiled: Iterable[Candidate]) -> bool:
    programs: dict[tuple[str, ...], list[tuple[int, float | None]]] = defaultdict(list)
    for one in compiled:
        others = tuple(repr(value) for key, value in one.choices.items() if key != name)
        first = one.same_program_as
        programs[others].append((one.number if first is None else first, one.work))
    several = [own for own in programs.values() if len(own) > 1]
    return bool(several) and all(len(set(own)) == 1 for own in several)


# What limits the best.


def _limits(plan: MachinePlan, best: Candidate) -> Iterator[str]:
    times = [limit for limit in best.limits if limit.us is not None]
    kernels = [f"{one.share:.0%} {one.kind}" for one in times if one.kind != EXPOSED][:3]
    waits = [f"{one.share:.0%} {one.text}" for one in times if one.kind == EXPOSED][:2]
    if kernels:
        yield f"its step: {', '.join(kernels)}"
    if waits:
        yield f"exposed communication: {'; '.join(waits)}"
    used, most = best.memory_bytes, plan.memory_limit_bytes
    if used and most and used >= NEARLY_FULL * most:
        yield f"memory is nearly full: {format_bytes(used)} of the {format_bytes(most)} it may use"


# Against the others.


def _differences(best: Candidate, rivals: Sequence[Rival], unit: str) -> Iterator[str]:
    for rival in _telling(best, rivals):
        is_tie = " (a tie)" if rival.is_tie else ""
        took = f"takes {_longer(rival)}{_per(best, rival.candidate, unit)}{is_tie}"
        changes = _changes(best, rival)
        yield f"{rival.differs} {took}" + (f": {changes}" if changes else "")


def _longer(rival: Rival) -> str:
    if abs(rival.longer) < SAME_TIME:
        return "as long"
    return f"{abs(rival.longer):.1%} {'longer' if rival.longer > 0 else 'less time'}"


def _telling(best: Candidate, rivals: Sequence[Rival]) -> list[Rival]:
    """For each choice, the best candidate with another value of it."""
    found: dict[int, Rival] = {}
    for name in best.choices:
        value = best.choices[name]
        other = next((one for one in rivals if one.candidate.choices.get(name) != value), None)
        if other is not None:
            found.setdefault(other.candidate.number, other)
    return sorted(found.values(), key=lambda one: one.longer)[:MOST_RIVALS]


def _per(best: Candidate, other: Candidate, unit: str) -> str:
    """Steps of equal work are compared as they are."""
    is_same = best.work == other.work or best.work is None or other.work is None
    return "" if is_same else f" per {unit.removesuffix('s') or 'step'}"


def _changes(best: Candidate, rival: Rival) -> str:
    """`exposed network +12%, products −1%`: the parts that changed most."""
    if best.basis == MEASURED or rival.candidate.basis == MEASURED:
        return ""  # the parts are those of the simulated steps
    before, after = _parts(best, 1.0), _parts(rival.candidate, 1.0 + rival.longer)
    changes = {part: after.get(part, 0.0) - before.get(part, 0.0) for part in PARTS}
    most = sorted(changes.items(), key=lambda one: -abs(one[1]))[:3]
    return ", ".join(
        f"{part} {'+' if change > 0 else '−'}{abs(change):.0%}"
        for part, change in most
        if abs(change) >= NOTICEABLE
    )


def _parts(candidate: Candidate, total: float) -> dict[str, float]:
    """The parts of a candidate's time, which add up to `total`."""
    whole = sum(candidate.parts_us.values())
    return {part: us / whole * total for part, us in candidate.parts_us.items()} if whole else {}


def _idle(plan: MachinePlan) -> Iterator[str]:
    names = idle_choices(plan.candidates)
    if names:
        changes = "changes" if len(names) == 1 else "change"
        what = "it differs" if len(names) == 1 else "one of them differs"
        same = f"where only {what}, XLA compiled the same program"
        yield f"{', '.join(names)} {changes} nothing: {same}"


# What would have to change.


def _hiding(best: Candidate, rivals: Sequence[Rival]) -> Iterator[str]:
    """How much of its exposed communication another candidate would have to hide to win.

    Which bandwidth that takes can't be told from the parts: with twice the bandwidth, the exposed
    communication of FSDP on 64 GPUs shrinks by a tenth to a third in the simulation, not by half.
    """
    if best.basis == MEASURED:
        return
    needed = {}
    for rival in rivals:
        after = _parts(rival.candidate, 1.0 + rival.longer)
        exposed = sum(after.get(part, 0.0) for part in COMMUNICATION_PARTS)
        if not rival.is_tie and 0 < rival.longer < MOST_HIDDEN * exposed:
            needed[rival.differs] = rival.longer / exposed
    if needed:
        differs = min(needed, key=lambda name: needed[name])
        share = f"{needed[differs]:.0%} of its exposed communication"
        yield f"{differs} would win if {share} were hidden, and the best stayed as it is"


def _too_large(plan: MachinePlan, best: Candidate, unit: str) -> Iterator[str]:
    """The candidate closest to fitting that would be faster."""
    per_second = best.work_per_s
    faster = [
        one
        for one in plan.candidates
        if one.status == NO_FIT and one.memory_bytes and one.work_per_s and per_second
        if one.work_per_s > per_second * (1 + NOTICEABLE)
    ]
    if not faster or not per_second:
        return
    one = min(faster, key=lambda other: other.memory_bytes or 0)
    gain = (one.work_per_s or 0.0) / per_second - 1
    at_most = "at most " if one.basis == BOUND else ""
    yield (
        f"{choices_text(different_choices(one.choices, best.choices))} would give {at_most}"
        f"{gain:+.0%} {unit}/s, but needs {format_bytes(one.memory_bytes or 0)} of "
        f"{format_bytes(plan.memory_limit_bytes or plan.memory_capacity_bytes)}"
    )


# How sure it is.


def _ties(plan: MachinePlan) -> Iterator[str]:
    others = len(plan.ties) - 1
    if others > 0:
        what = "candidate is" if others == 1 else "candidates are"
        yield f"{others} other {what} too close to tell apart from the best without measuring"


def _nothing_runs(plan: MachinePlan) -> Iterator[str]:
    large = [one for one in plan.candidates if one.status == NO_FIT and one.memory_bytes]
    if large:
        least = min(large, key=lambda one: one.memory_bytes or 0)
        most = format_bytes(plan.memory_limit_bytes or plan.memory_capacity_bytes)
        yield (
            f"nothing fits: the least that a candidate needs is "
            f"{format_bytes(least.memory_bytes or 0)} of {most}, with {choices_text(least.choices)}"
        )
    counts = Counter(one.status for one in plan.candidates if one.status in FAILED)
    others = [f"{count} {status}" for status, count in counts.items() if status != NO_FIT]
    if others:
        yield f"{'the others failed' if large else 'nothing could be run'}: {', '.join(others)}"

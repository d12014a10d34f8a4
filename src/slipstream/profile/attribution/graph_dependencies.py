"""Instructions of a CUDA graph's kernels by dependencies, where nodes are not numbered.

A graph runs a kernel once those whose results it uses have ended. Kernels that are named after one
instruction are known; they bound when every other instruction can have run:

    norm                 ████                      known by name
    dot.1 or dot.2            ██████               both run after norm …
    dot.2 or dot.1                  ████
    add (uses dot.2)                    ██         … dot.2 before add, so either may be first
    gelu (uses dot.1)                       ████

Calls are given to instructions in order of time, the one whose result is needed first, first. Among
what remains possible, the durations decide: a product of twice the operations takes longer. Not if
kernels ran side by side, though: they slow each other down, a short one often more than a long one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from slipstream.profile.attribution.doubts import Doubts
from slipstream.profile.attribution.graph_schedule import Schedule, Schedules
from slipstream.profile.attribution.kernels import (
    AFTER,
    BEFORE,
    COLLECTIVE,
    COPY,
    FILTER_GRAD,
    FORWARD_CONV,
    INPUT_GRAD,
    LIBRARY,
    MEMSET,
    NAMED,
    NO_FAMILY,
)
from slipstream.profile.attribution.launch_sequence import Launch
from slipstream.profile.events import Array

_UNLIKE, _UNLIKE_CONVOLUTIONS = log(2), log(16)
"""expected durations that differ by less tell nothing: few channels make convolutions slow"""
_ALIKE = log(1.035)
"""measured durations that differ by less may be exchanged without harm"""
_MOST_CROWDED = 0.1
"""share of a kernel's time beside others, up to which its duration is its own"""
EARLY_PS = 2_000_000
"""kernels may be recorded as begun this long before those that they wait for have half run"""
_NEVER = 1 << 62
_MOST_RETURNS = 200
"""how often a search goes back before it leaves calls without a launch"""


@dataclass(frozen=True)
class GraphEvent:
    """One kernel or copy of a graph launch; `kernels` explains the numbers."""

    kind: int
    group: str
    part: int
    family: int
    direction: int
    bytes: int
    start: int
    end: int
    lane: int
    look: tuple[int, int] = (0, 0)
    """texts of its name and details: equal work has equal kernels and grids"""

    @property
    def settled(self) -> int:
        """What uses its result can't start before; its end, but for early launches and clocks."""
        return self.start + max((self.end - self.start) // 2 - EARLY_PS, 0)


@dataclass
class Call:
    """Kernels that ran for one instruction: in a library call, mostly several."""

    rows: list[int]
    main: GraphEvent
    """the kernel that tells most"""
    start: int
    settled: int
    """of its last kernel: what uses its result can't start before"""
    end: int
    duration: int

    def extend(self, row: int, event: GraphEvent) -> None:
        self.rows.append(row)
        if event.part not in (BEFORE, AFTER) and event.kind != MEMSET:
            self.main = event
        self.settled = event.settled
        self.end = event.end
        self.duration += event.end - event.start


@dataclass(frozen=True)
class Matched:
    """The instruction of each event ("" if none), and how certain that is."""

    instructions: list[str]
    doubts: Doubts


def match(
    schedules: Schedules, events: Sequence[GraphEvent], elsewhere: frozenset[str]
) -> Matched | None:
    """The instructions of one graph launch's events, in order of time; None if they don't fit.

    `elsewhere` are instructions that ran outside this graph.
    """
    named = [event.group for event in events if event.kind == NAMED]
    schedule = schedules.of(named)
    if schedule is None:
        return None
    own = [place for group in set(named) for place in schedule.of_group.get(group, ())]
    own = [place for place in own if schedule.launches[place].instruction not in elsewhere]
    if not own:
        return None
    outside = [schedule.place_of[name] for name in elsewhere if name in schedule.place_of]
    matching = _Matching(schedule, calls(events), schedule.around(own, outside), set(outside))
    matching.run()
    found = [""] * len(events)
    for call, place in zip(matching.calls, matching.place.tolist(), strict=True):
        for row in call.rows if place >= 0 else ():
            found[row] = matching.launches[place].instruction
    return Matched(found, matching.doubts())


def calls(events: Sequence[GraphEvent]) -> list[Call]:
    """Events as calls: what clears or pads before a library kernel, or reduces after it, is part
    of its call if it ran next to it on the same stream."""
    found: list[Call] = []
    last: dict[int, Call] = {}
    waiting: dict[int, bool] = {}
    for row, event in enumerate(events):
        call = last.get(event.lane)
        is_library = event.kind in (LIBRARY, MEMSET)
        joins = is_library and (waiting.get(event.lane, False) or event.part == AFTER)
        if call is not None and joins and call.main.kind in (LIBRARY, MEMSET):
            call.extend(row, event)
        else:
            took = event.end - event.start
            call = Call([row], event, event.start, event.settled, event.end, took)
            found.append(call)
            last[event.lane] = call
        waiting[event.lane] = is_library and event.part == BEFORE
    return found


class _Matching:
    """Which launch each call belongs to; launches are counted from the first of the range."""

    def __init__(self, schedule: Schedule, calls: list[Call], span: range, out: set[int]) -> None:
        self.schedule, self.calls, self.span = schedule, calls, span
        self.launches = schedule.launches[span.start : span.stop]
        self.needs = schedule.needs_within(span)
        self.needed_by = np.ascontiguousarray(self.needs.T)
        self.is_out = np.array([place in out for place in span], bool)
        self.is_optional = self.is_out | np.array(
            [launch.may_be_elided for launch in self.launches], bool
        )
        self.place = np.full(len(calls), -1, np.int64)
        """the launch of each call; -1 for none"""
        self.begin = np.full(len(span), _NEVER)
        self.settled = np.full(len(span), -_NEVER)
        """of each launch, from its call; so that what has no call limits nothing"""
        self.start = np.array([call.start for call in calls], np.int64)
        self.middle = np.array([call.settled for call in calls], np.int64)
        self.duration = np.log([call.duration + 1.0 for call in calls])
        self.expected = schedule.expected[span.start : span.stop]
        self.usual = np.zeros(len(calls))
        self.ran_alone = _ran_alone([call.main for call in calls])
        self.guessed: list[int] = []
        self.chosen_from: dict[int, set[int]] = {}
        self.possible: dict[int, set[int]] = {}
        """all choices of calls whose durations tell little"""
        self.fits: dict[GraphEvent, Array] = {}

    def run(self) -> None:
        of_group = self._named()
        is_open = ~self.is_out
        choices: dict[int, Array] = {}
        for indices, places in of_group.values():
            is_open[places] = False
            if len(indices) == len(places) == 1:
                self._give(indices[0], int(places[0]))
            else:
                choices |= dict.fromkeys(indices, places)
        for index, call in enumerate(self.calls):
            if call.main.kind != NAMED:
                choices[index] = self._choices(call.main, is_open)
        for index in _certain(choices):
            self._give(index, int(choices.pop(index)[0]))
        self._narrow(choices)
        self.guessed = sorted(choices, key=lambda index: self.calls[index].start)
        self.chosen_from = {index: set(found.tolist()) for index, found in choices.items()}
        self._set_usual(choices)
        self._search(choices)
        self._attach(choices)
        self._improve()

    def _narrow(self, choices: dict[int, Array]) -> None:
        """Limit library calls to work of their rank: kernels that look alike do equal work.

        Calls by look and launches by work, both from short to long: if the numbers of each agree,
        the first do the first, and so on; what is expected to take equally long, together.
        """
        for indices in _alike(choices).values():
            places = choices[indices[0]]
            calls = [self.calls[index].main for index in indices]
            if len(indices) != len(places) or any(call.kind != LIBRARY for call in calls):
                continue
            works = [self.schedule.signatures[p + self.span.start] for p in places.tolist()]
            ranked = _ranked(works, self.expected[places])
            looks = _ranked([call.look for call in calls], self.duration[indices])
            if [len(one) for one in ranked] != [len(one) for one in looks]:
                continue
            expected = [float(self.expected[places[one[0]]]) for one in ranked]
            together = np.cumsum(np.diff(expected, prepend=expected[0]) > log(1.1))
            if not self.ran_alone[indices].all():
                self.possible |= dict.fromkeys(indices, set(places.tolist()))
            for work in np.unique(together).tolist():
                ranks = np.flatnonzero(together == work).tolist()
                some = np.sort(places[[i for rank in ranks for i in ranked[rank]]])
                for index in (indices[i] for rank in ranks for i in looks[rank]):
                    choices[index] = some

    def _set_usual(self, choices: dict[int, Array]) -> None:
        """How much longer calls take than expected: the same for all with the same choices."""
        for indices in _alike(choices).values():
            expected = self.expected[choices[indices[0]]]
            usual = np.median(self.duration[indices]) - np.median(expected) if len(expected) else 0
            self.usual[indices] = usual

    def _search(self, choices: dict[int, Array]) -> None:
        """Give every guessed call a launch, in order of time.

        If none is left that can have run, an earlier call was given the wrong one: go back there,
        and choose the launch that is missing now.
        """
        order = self.guessed
        tried: list[set[int]] = [set() for _ in order]
        wanted: dict[int, int] = {}
        step, returns = 0, 0
        while step < len(order):
            index = order[step]
            best = self._best(index, choices[index], tried[step], wanted.get(step))
            if best is not None:
                self._give(index, best)
                step += 1
                continue
            back = self._back(step, choices, tried) if returns < _MOST_RETURNS else None
            if back is None:
                step += 1
                continue
            returns += 1
            last, (step, missing) = step, back
            tried[step].add(int(self.place[order[step]]))
            wanted[step] = missing
            for later in range(step, last):
                self._take_back(order[later])
            for later in range(step + 1, last + 1):
                tried[later].clear()
                wanted.pop(later, None)

    def _back(
        self, step: int, choices: dict[int, Array], tried: list[set[int]]
    ) -> tuple[int, int] | None:
        """(an earlier step, the launch to choose there), so that this call finds one."""
        index = self.guessed[step]
        free = choices[index][self.begin[choices[index]] == _NEVER]
        missing = (self.begin == _NEVER) & ~self.is_optional | (self.settled > self.start[index])
        missing = self.needs[free] & missing
        # One whose result was needed before must itself have run before.
        is_late = self._deadline(free) < self.middle[index]
        missing[np.arange(len(free))[is_late], free[is_late]] = True
        for row in np.argsort(missing.sum(axis=1), kind="stable"):
            for need in np.flatnonzero(missing[row]).tolist():
                ready = self._ready(np.array([need]))[0]
                for earlier in range(step - 1, -1, -1):
                    other = self.guessed[earlier]
                    if self.start[other] < ready:
                        break
                    is_choice = self.place[other] >= 0 and need in self.chosen_from[other]
                    is_choice = is_choice and self.place[other] != need
                    if is_choice and need not in tried[earlier]:
                        return earlier, need
        return None

    def _attach(self, choices: dict[int, Array]) -> None:
        """Calls that are left: a name is certain even if the order is not. Library kernels that
        are one too many belong to the call before them on their stream."""
        last: dict[int, Call] = {}
        for index, call in enumerate(self.calls):
            before = last.get(call.main.lane)
            if self.place[index] < 0:
                free = choices[index][self.begin[choices[index]] == _NEVER]
                if len(free):
                    self._give(index, int(free[0]))
            if self.place[index] >= 0 or call.main.kind not in (LIBRARY, MEMSET):
                last[call.main.lane] = call
            elif before is not None and before.main.kind == LIBRARY:
                before.rows += call.rows

    def _named(self) -> dict[str, tuple[list[int], Array]]:
        """(calls, launches) of each group of equal fusions that has run."""
        found: dict[str, tuple[list[int], Array]] = {}
        for index, call in enumerate(self.calls):
            group = call.main.group
            if call.main.kind == NAMED:
                if group not in found:
                    places = np.array(self.schedule.of_group.get(group, ()), np.int64)
                    places = places[(places >= self.span.start) & (places < self.span.stop)]
                    found[group] = ([], places - self.span.start)
                found[group][0].append(index)
        return found

    def _choices(self, event: GraphEvent, is_open: Array) -> Array:
        fits = self._fits(event) * is_open
        return np.flatnonzero((fits > 0) & (fits >= fits.max(initial=0) - 1))

    def _give(self, index: int, place: int) -> None:
        self.place[index] = place
        self.begin[place] = self.start[index]
        self.settled[place] = self.middle[index]

    def _take_back(self, index: int) -> None:
        place = self.place[index]
        if place >= 0:
            self.place[index], self.begin[place], self.settled[place] = -1, _NEVER, -_NEVER

    def _best(self, index: int, choices: Array, tried: set[int], wanted: int | None) -> int | None:
        """The launch whose result is needed first, among those that can have run now."""
        # What each needs and what needs it, as rows: in that order, few are left after each check.
        free = choices[self.begin[choices] == _NEVER]
        free = np.array([place for place in free.tolist() if place not in tried], np.int64)
        must = (self.begin == _NEVER) & ~self.is_optional | (self.settled > self.start[index])
        free = free[~(self.needs[free] & must).any(axis=1)]
        deadline = self._deadline(free)
        can = deadline >= self.middle[index]
        free, deadline = free[can], deadline[can]
        if not len(free):
            return None
        fit = self._fits(self.calls[index].main)[free]
        unlike = np.floor(np.abs(self._mismatch(index, free)) / _UNLIKE)
        return int(free[np.lexsort((free, deadline, unlike, -fit, free != wanted))[0]])

    def _mismatch(self, index: int, places: Array) -> Array:
        """How far a call's duration is from what is expected of launches, as a logarithm."""
        return np.asarray(self.duration[index] - self.usual[index] - self.expected[places])

    def _ready(self, places: Array) -> Array:
        """When everything that launches need has ended."""
        times = np.where(self.needs[places], self.settled, -_NEVER)
        return np.asarray(times.max(axis=1, initial=-_NEVER))

    def _deadline(self, places: Array) -> Array:
        """When the first that needs each launch's result begins."""
        times = np.where(self.needed_by[places], self.begin, _NEVER)
        return np.asarray(times.min(axis=1, initial=_NEVER))

    def _exchangeable(self, indices: Array) -> Array:
        """Whether each two of these calls could be each other's launches."""
        places = self.place[indices]
        may = self._ready(places)[None, :] <= self.start[indices][:, None]
        may &= self._deadline(places)[None, :] >= self.middle[indices][:, None]
        for row, index in enumerate(indices.tolist()):
            fits = self._fits(self.calls[index].main)[places]
            may[row] &= (fits > 0) & (fits >= fits[row])
            may[row] &= [place in self.chosen_from[index] for place in places.tolist()]
        return may & may.T

    def _fits(self, event: GraphEvent) -> Array:
        """How well an event fits each launch."""
        key = replace(event, start=0, end=0, lane=0, look=(0, 0))
        if key not in self.fits:
            self.fits[key] = np.array([_fit(event, launch) for launch in self.launches])
        return self.fits[key]

    def _improve(self) -> None:
        """Exchange calls as long as durations fit better."""
        for _ in range(len(self.guessed)):
            indices = np.array([i for i in self.guessed if self.place[i] >= 0], np.int64)
            may = self._exchangeable(indices)
            expected = self.expected[self.place[indices]]
            gain = -_differences(self.duration[indices]) * _differences(expected) * may
            if not len(indices) or gain.max() < 1e-9:
                return
            one, other = np.unravel_index(int(gain.argmax()), gain.shape)
            a, b = indices[one], indices[other]
            first, second = int(self.place[a]), int(self.place[b])
            self._give(int(a), second)
            self._give(int(b), first)

    def doubts(self) -> Doubts:
        """Instructions that calls could exchange, as far as kernels known by name tell."""
        indices = np.array([i for i in self.guessed if self.place[i] >= 0], np.int64)
        guessed = self.place[indices]
        self.begin[guessed], self.settled[guessed] = _NEVER, -_NEVER
        self.chosen_from |= self.possible
        may, first = self._exchangeable(indices), self.span.start
        undecided, interchangeable = set(), set()
        for index, place in zip(indices.tolist(), guessed.tolist(), strict=True):
            launch = self.launches[place]
            mismatch = abs(self._mismatch(index, np.array([place]))[0])
            if launch.is_library and mismatch > _unlike(launch):
                undecided.add(frozenset((launch.instruction,)))
        for i, j in np.argwhere(np.triu(may, 1)).tolist():
            a, b = int(guessed[i]), int(guessed[j])
            if self.needs[a, b] or self.needs[b, a]:
                continue
            pair = frozenset(self.launches[place].instruction for place in (a, b))
            measured = self.duration[indices[i]] - self.duration[indices[j]]
            expected = self.expected[a] - self.expected[b]
            if self.schedule.same_work(a + first, b + first):
                interchangeable.add(pair)
            elif abs(measured) > _ALIKE and (
                abs(expected) < _unlike(self.launches[a])
                or not self.ran_alone[indices[[i, j]]].all()
            ):
                undecided.add(pair)
        return Doubts(frozenset(undecided), frozenset(interchangeable))


def _ran_alone(events: Sequence[GraphEvent]) -> Array:
    """Whether each had the device to itself for most of its time."""
    if len({event.lane for event in events}) < 2:
        return np.ones(len(events), bool)
    start = np.array([event.start for event in events], np.int64)
    end = np.array([event.end for event in events], np.int64)
    times, place = np.unique(np.concatenate((start, end)), return_inverse=True)
    first, last = place[: len(start)], place[len(start) :]
    running = np.cumsum(
        np.bincount(first, minlength=len(times)) - np.bincount(last, minlength=len(times))
    )
    crowded = np.cumsum(np.diff(times, prepend=times[0]) * (np.roll(running, 1) > 1))
    return np.asarray(crowded[last] - crowded[first] <= _MOST_CROWDED * (end - start))


def _alike(choices: dict[int, Array]) -> dict[bytes, list[int]]:
    """Calls by their choices."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for index, places in choices.items():
        found[places.tobytes()].append(index)
    return found


def _ranked(keys: Sequence[Hashable], lengths: Array) -> list[list[int]]:
    """Places of each key, from the shortest key to the longest (by its median length)."""
    places: dict[Hashable, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    return sorted(places.values(), key=lambda one: (float(np.median(lengths[one])), len(one)))


def _certain(choices: dict[int, Array]) -> list[int]:
    """The calls with a single choice that no other call has."""
    counts = Counter(place for found in choices.values() for place in found.tolist())
    return [i for i, found in choices.items() if len(found) == 1 and counts[int(found[0])] == 1]


def _unlike(launch: Launch) -> float:
    is_convolution = launch.family in (FORWARD_CONV, INPUT_GRAD, FILTER_GRAD)
    return _UNLIKE_CONVOLUTIONS if is_convolution else _UNLIKE


def _differences(values: Array) -> Array:
    return values[:, None] - values[None, :]


def _fit(event: GraphEvent, launch: Launch) -> int:
    """How well an event fits a launch: 0 if not at all."""
    if event.kind == NAMED:
        return int(event.group == launch.group)
    if event.kind == COLLECTIVE:
        return 3 if launch.is_collective and event.family == launch.family else 0
    if event.kind == COPY:
        if not launch.is_copy or event.direction != launch.direction:
            return 0
        return 3 if event.bytes == launch.bytes else 2 if not event.bytes else 1
    if event.kind == MEMSET and launch.is_memset:
        return 3
    if not launch.is_library:
        return 0
    if NO_FAMILY in (event.family, launch.family):
        return 2
    return 3 if event.family == launch.family else 1

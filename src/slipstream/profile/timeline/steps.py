"""Find the steps of a profile, with or without step annotations.

Annotations (`jax.profiler.StepTraceAnnotation`, a TPU's `Steps` line) mark steps; without them, a
step is one execution of the program with the most device time. A step of a device runs from its
first event to the first event of the next step, so that it includes waits for the host; the last
step ends with its own last event.

Executions cut off by the start or end of the recording, slow first steps (warm-up) and pauses
between steps (compilation, checkpoints) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.profile.events import Array, distinct, median
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.runs import Runs

WARM_UP = 1.5
"""a first step this much slower than the median is warm-up"""
PAUSE = 3.0
"""if the next step starts this many median steps later, a pause comes between"""


@dataclass(frozen=True)
class Steps:
    """Steps of every device: rows of (device, number, start, end)."""

    basis: str
    """`annotations`, `executions` or `recording`"""
    rule: str
    """a sentence: the rule that found the steps, and what it left out"""
    device: Array
    number: Array
    start_ps: Array
    end_ps: Array

    @property
    def count(self) -> int:
        """Number of distinct steps, however many devices ran them."""
        return len(distinct(self.number))

    @cached_property
    def typical(self) -> int | None:
        """Number of the step of median length; a step is as long as on its median device."""
        if not len(self):
            return None
        order = np.argsort(self.number, kind="stable")
        number, wall = self.number[order], (self.end_ps - self.start_ps)[order]
        firsts = np.flatnonzero(np.diff(number)) + 1
        lengths = [float(median(own)) for own in np.split(wall, firsts)]
        middle = np.argsort(lengths, kind="stable")[(len(lengths) - 1) // 2]
        return int(number[[0, *firsts.tolist()][int(middle)]])

    def __len__(self) -> int:
        return len(self.device)

    def cover_all_events(self, profile: Profile) -> bool:
        """Whether every event surely starts in a step: one device, no gaps between steps."""
        if len(profile.devices) != 1 or not len(self) or not len(profile.events):
            return False
        order = np.argsort(self.start_ps, kind="stable")
        start, end = self.start_ps[order], self.end_ps[order]
        times = profile.events["start_ps"]
        # Where steps overlap or leave gaps, only `of_events` can tell.
        whole = bool((end[:-1] == start[1:]).all())
        return whole and bool(start[0] <= times.min() and times.max() < end[-1])

    def of_events(self, profile: Profile) -> Array:
        """Index of the step in which each event starts; the number of steps if in none."""
        from slipstream.profile.grouping import owners_at

        starts = profile.events["start_ps"]
        found = np.empty(0, np.int32)
        if len(profile.devices) != 1 or not len(self):
            found = np.full(len(profile.events), len(self), np.int32)
        for device in distinct(self.device).tolist():
            steps = np.flatnonzero(self.device == device)
            steps = steps[np.argsort(self.start_ps[steps], kind="stable")]
            alone = len(profile.devices) == 1
            rows = slice(None) if alone else np.flatnonzero(profile.event_devices == device)
            # A step's start opens its window; its end opens one that belongs to no step.
            bounds = np.stack((self.start_ps[steps], self.end_ps[steps]), axis=1).ravel()
            owner = np.full(2 * len(steps) + 1, len(self), np.int32)
            owner[1::2] = steps
            inside = owners_at(starts[rows], np.maximum.accumulate(bounds), owner)
            if alone:
                return inside
            found[rows] = inside
        return found


def averaged_over(profile: Profile, whole: bool) -> int:
    """What a sum over events is divided by, for a mean over steps and devices.

    Where the whole recording counts, it is one step of each device.
    """
    if not whole:
        return max(1, len(profile.steps))
    return max(1, len(distinct(profile.event_devices)))


def find_steps(profile: Profile) -> Steps:
    """The steps of a profile; if it has none, the whole recording of each device."""
    marked = _device_markers(profile)
    if marked is not None:
        return marked
    runs = _hottest_runs(profile)
    if runs is None:
        return _whole(profile)
    same_name, notes = _without_partial(_runs_of_name(profile, runs))
    annotated = _by_annotations(profile, same_name)
    if annotated is not None:
        return _finish(*annotated, "annotations", "step annotations", notes)
    name = profile.events.texts[int(runs.program[0])]
    if len(runs) > len(distinct(runs.device)):
        runs, notes = _without_partial(runs)
    elif len(same_name) > len(runs):
        runs, name = same_name, f"{_function(name)}, compiled again for each"
    number = _numbers(runs.device)
    rule = f"executions of {name}, the program with the most device time"
    return _finish(runs, number, None, "executions", rule, notes)


def _hottest_runs(profile: Profile) -> Runs | None:
    """Executions, per device, of the program with the most device time."""
    runs = profile.runs
    times = np.bincount(runs.program, runs.busy_ps, 1)
    times[0] = 0
    hottest = int(times.argmax())
    return runs.take(runs.program == hottest) if times[hottest] else None


def _runs_of_name(profile: Profile, runs: Runs) -> Runs:
    """The executions, and those of programs of that name: one function, compiled again."""
    texts = profile.events.texts
    function = _function(texts[int(runs.program[0])])
    programs = distinct(profile.runs.program).tolist()
    same = [one for one in programs if one and _function(texts[one]) == function]
    if len(same) < 2:
        return runs
    found = profile.runs.take(np.isin(profile.runs.program, same))
    return found.take(np.lexsort((found.start_ps, found.device)))


def _function(program: str) -> str:
    """`jit_step` of `jit_step(12)`."""
    return program.rpartition("(")[0] or program


def _without_partial(runs: Runs) -> tuple[Runs, list[str]]:
    """Drop the first and last execution of a device if they have fewer events than the others."""
    keep = np.ones(len(runs.device), bool)
    for device in distinct(runs.device).tolist():
        rows = np.flatnonzero(runs.device == device)
        if len(rows) < 2:
            continue
        sizes = np.sort(runs.events[rows])
        values = distinct(sizes)
        counts = np.diff(np.searchsorted(sizes, values), append=len(sizes))
        usual = values[counts == counts.max()].max()
        for row in (rows[0], rows[-1]):
            keep[row] = runs.events[row] >= usual
    dropped = int((~keep).sum())
    if not dropped or not keep.any():
        return runs, []
    return runs.take(keep), [f"{_plural(dropped, 'execution')} cut off by the recording"]


def _by_annotations(profile: Profile, runs: Runs) -> tuple[Runs, Array, tuple[Array, Array]] | None:
    """Executions with the number of the annotated step that launched them."""
    hosts = np.array([device.host for device in profile.devices])
    parts = []
    for host in distinct(hosts[runs.device]).tolist():
        found = _annotations(profile, host)
        if found is None:
            return None
        rows = np.flatnonzero(hosts[runs.device] == host)
        start, end, number, launches = found
        key, marks = (runs.launch, launches[0]) if launches else (runs.start_ps, start)
        place = np.searchsorted(marks, key[rows], side="right") - 1
        inside = place >= 0
        place = np.maximum(place, 0)
        if launches is not None:
            inside &= ~_belated(key[rows], place, launches[1])
        parts.append(
            (rows[inside], number[place][inside], start[place][inside], end[place][inside])
        )
    if not sum(len(part[0]) for part in parts):
        return None
    rows, number, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    return runs.take(rows), number, (start, end)


def _belated(launch: Array, place: Array, last: Array) -> Array:
    """Executions launched after their annotation ended, if others were launched inside it.

    A recording that stops inside an annotation lacks the annotation, but has its work.
    """
    late = launch > last[place]
    has_own = np.zeros(len(last), bool)
    has_own[place[~late]] = True
    return late & has_own[place]


_Launches = tuple[Array, Array]
"""first and last launch"""


def _annotations(
    profile: Profile, host: int
) -> tuple[Array, Array, Array, _Launches | None] | None:
    """(start, end, step number, first and last launch if known) of each annotation of a host."""
    events = profile.host_events
    lanes = np.array([lane.host == host and lane.role == "thread" for lane in profile.lanes])
    if not len(events):
        return None
    rows = np.flatnonzero(events["is_step"] & lanes[events["lane"]])
    if not len(rows):
        return None
    rows = rows[np.argsort(events["start_ps"][rows], kind="stable")]
    start = events["start_ps"][rows]
    end = start + events["duration_ps"][rows]
    number = events["step"][rows]
    if len(distinct(number)) < len(number):
        number = np.arange(len(rows))
    first, last = _launches(profile, start, end, events["lane"][rows])
    launched = first > 0
    if 2 * launched.sum() < len(launched):
        # Other threads launch the work, so only times can match it with annotations.
        return start, end, number, None
    return start[launched], end[launched], number[launched], (first[launched], last[launched])


def _launches(profile: Profile, start: Array, end: Array, lane: Array) -> _Launches:
    """First and last launch that each annotation's thread made inside it; 0 if none."""
    events = profile.host_events
    launching = np.flatnonzero(events["correlation"] > 0)
    found, latest = np.zeros((2, len(start)), np.int64)
    for thread in distinct(lane).tolist():
        rows = launching[events["lane"][launching] == thread]
        rows = rows[np.argsort(events["start_ps"][rows], kind="stable")]
        own = np.flatnonzero(lane == thread)
        first, last = (np.searchsorted(events["start_ps"][rows], t[own]) for t in (start, end))
        # The launch ids of a thread are ascending.
        some = first < last
        found[own[some]] = events["correlation"][rows[first[some]]]
        latest[own[some]] = events["correlation"][rows[last[some] - 1]]
    return found, latest


def _device_markers(profile: Profile) -> Steps | None:
    """Steps from a TPU's own `Steps` line."""
    events = profile.host_events
    roles = np.array([lane.role == "steps" for lane in profile.lanes], bool)
    if not len(events) or not roles.any():
        return None
    rows = np.flatnonzero(events["is_step"] & roles[events["lane"]])
    if not len(rows):
        return None
    device = profile.device_of_lane[events["lane"][rows]]
    order = np.lexsort((events["start_ps"][rows], device))
    rows, device = rows[order], device[order]
    number = events["step"][rows]
    if len(np.unique(np.stack((device, number)), axis=1).T) < len(rows):
        number = _numbers(device)
    start = events["start_ps"][rows]
    end = start + events["duration_ps"][rows]
    # A marker that reaches into the next one ends where that begins.
    followed = device[1:] == device[:-1]
    end[:-1] = np.where(followed, np.minimum(end[:-1], start[1:]), end[:-1])
    return Steps("annotations", "the device's own step markers", device, number, start, end)


def _finish(
    runs: Runs,
    number: Array,
    annotation: tuple[Array, Array] | None,
    basis: str,
    rule: str,
    notes: list[str],
) -> Steps:
    """Merge the executions of each step, set its end, and leave out warm-up and pauses."""
    order = np.lexsort((runs.start_ps, number, runs.device))
    runs, number = runs.take(order), number[order]
    firsts = np.flatnonzero(np.diff(runs.device, prepend=-1) | np.diff(number, prepend=-1))
    start, end = runs.start_ps[firsts], np.maximum.reduceat(runs.end_ps, firsts)
    if annotation is not None:
        opened = np.minimum.reduceat(annotation[0][order], firsts)
        closed = np.maximum.reduceat(annotation[1][order], firsts)
        # A step that waits for its results lies entirely inside its annotation.
        inside = (opened <= start) & (end <= closed)
        start, end = np.where(inside, opened, start), np.where(inside, closed, end)
    table = np.stack((runs.device[firsts].astype(np.int64), number[firsts], start, end), axis=1)
    table = table[np.lexsort((start, table[:, 0]))]
    table, more = _settle(table)
    text = "; ".join([rule, *(f"left out: {note}" for note in (*notes, *more))])
    return Steps(basis, text, table[:, 0].astype(np.int32), table[:, 1], table[:, 2], table[:, 3])


def _settle(table: Array) -> tuple[Array, list[str]]:
    """Drop warm-up steps and extend each to the next; takes and returns rows like `Steps`."""
    kept, warm, pauses = [], 0, 0
    for device in distinct(table[:, 0]).tolist():
        steps = table[table[:, 0] == device]
        spans = steps[:, 3] - steps[:, 2]
        while len(steps) > 2 and spans[0] > WARM_UP * np.median(spans[1:]):
            steps, spans, warm = steps[1:], spans[1:], warm + 1
        periods = np.append(np.diff(steps[:, 2]), spans[-1])
        pause = periods > PAUSE * np.median(periods)
        steps = steps.copy()
        # The next step may begin before the end of a long one, which is then no pause.
        ends = steps[:, 2] + np.where(pause, np.minimum(spans, periods), periods)
        steps[:, 3] = ends
        pauses += int((pause[:-1] & (periods[:-1] > spans[:-1] * 1.01)).sum())
        kept.append(steps)
    notes = [f"{_plural(warm, 'slow first step')} (warm-up)"] if warm else []
    if pauses:
        notes.append(f"{_plural(pauses, 'pause')} between steps")
    return np.concatenate(kept), notes


def _whole(profile: Profile) -> Steps:
    events = profile.events
    rows = []
    for device in distinct(profile.event_devices).tolist():
        own = profile.event_devices == device
        start = events["start_ps"][own]
        rows.append((device, 0, start.min(), (start + events["duration_ps"][own]).max()))
    table = np.array(rows, np.int64).reshape(-1, 4)
    rule = "the whole recording: it contains no program"
    columns = (table[:, 1], table[:, 2], table[:, 3])
    return Steps("recording", rule, table[:, 0].astype(np.int32), *columns)


def _numbers(device: Array) -> Array:
    """0, 1, 2, … for the executions of each device, which are in order."""
    firsts = np.searchsorted(device, device)
    return np.arange(len(device)) - firsts


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"

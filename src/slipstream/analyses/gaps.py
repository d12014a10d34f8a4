"""Idle device time, and what the device was waiting for.

device   ██████                          ██████       idle between two kernels
host            ▒▒▒▒▒▒▒▒ ░░░░░░░░░ ▓▓▓▓▓               until the next kernel is launched: whatever
                input    Python    launching           the launching thread did
                                        ┈┈             then: the latency of the launch

Causes come from host events; if the host recorded none, the cause is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.labels import LABEL_COLUMNS, label
from slipstream.analyses.summary import StepTimes, step_times
from slipstream.inline import Inline
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import IntervalUnion

CAUSES = {
    "compilation": "the host traces or compiles a function",
    "input": "the host prepares or sends input",
    "launch": "the host launches slower than the device runs",
    "host": "the host does other work before launching",
    "latency": "launched but not started: latency or a wait",
    "unknown": "no host event explains it",
}
"""causes of idle time, and what each means"""
LONGEST = 20
"""how many gaps, and how many places of gaps, a result lists"""

_COMPILES = re.compile(r"XlaCompile|backend_compile|[Cc]ompile(Module|ToExecutable|AndLoad|r::)|"
                       r"\bCompile\b|autotun|RunHloPasses|RunBackend|compile_or_get_cached|"
                       r"trace_to_jaxpr|_trace_for_jit|lower_sharding_comput", re.I)  # fmt: skip
_INPUTS = re.compile(r"device_put|BufferFromHost|TransferToDevice|TransferLiteral|HostToDevice|"
                     r"infeed|data_?load|dataset|tfds|grain|iterator|__next__|builtins next$|"
                     r"\b(next|get|make|load|read|sample|fetch|prepare)_\w*batch(es)?$|"
                     r" batch(es)?$|make_array_from|_arrays?_to_device", re.I)  # fmt: skip
_LAUNCHES = re.compile(r"ExecuteThunks|GpuExecutable|XLA GPU module|XlaModule:|Thunk:|^cuLaunch|"
                       r"^cuGraph|^cudaLaunch|command_buffer|LoadedExecutable|ExecuteHelper|"
                       r"ExecutePrepare|PjitFunction|PjRt\w*Execut", re.I)  # fmt: skip
_BUILTIN = re.compile(r"\$[^:]*$")


@dataclass(frozen=True)
class Gap:
    """A span of time in which a device did nothing."""

    device: str
    host: str
    step: int
    start_us: float
    """from the start of its step"""
    us: float
    cause: str
    """the cause that takes the largest part of it"""
    before: str
    """instruction that ended last before it; empty at the start of the recording"""
    after: str
    """instruction that ended it"""
    after_source: str
    doing: str
    """what the launching thread did for at least half of the wait; may be empty"""


@dataclass(frozen=True)
class GapGroup:
    """All gaps between the same two instructions: turns of a loop, steps, devices."""

    before: str
    """instruction that ended last before them; empty at the start of the recording"""
    after: str
    """instruction that ended them"""
    cause: str
    """the cause that takes the largest part of them"""
    per_step_us: float
    """mean over steps and devices"""
    by_cause_us: dict[str, float]
    """the same by cause"""
    per_step_count: float
    longest: Gap


@dataclass(frozen=True)
class Gaps(Inline):
    """Idle time of a step by cause, mean over steps and devices."""

    steps: int
    """0 if the whole recording was counted"""
    wall_us: float
    idle_us: float
    by_cause: dict[str, float]
    """microseconds per step, in the order of CAUSES"""
    count: int
    """gaps per step"""
    per_step: StepTimes
    """the median step; its exposed time is compute waiting for communication and copies"""
    longest: tuple[Gap, ...]
    notes: tuple[str, ...] = ()
    groups: tuple[GapGroup, ...] = ()
    """gaps between the same instructions as one, the most idle time first"""

    @property
    def waiting_us(self) -> float:
        """Time in which only communication and copies ran: compute waited for them."""
        return self.per_step.exposed_communication_us + self.per_step.exposed_copy_us


def gaps(profile: Profile) -> Gaps:
    """Idle time of the steps by cause and by place, and the longest gaps."""
    steps = profile.steps
    found = [_DeviceGaps(profile, device) for device in distinct(steps.device).tolist()]
    count = max(1, len(steps))
    causes = dict.fromkeys(CAUSES, 0.0)
    for one in found:
        for cause, times in one.causes.items():
            causes[cause] += float(times.sum()) / 1e6 / count
    longest = [gap for one in found for gap in one.longest()]
    longest.sort(key=lambda gap: -gap.us)
    silent = [profile.devices[one.device].name for one in found if not one.has_launches]
    notes = []
    if silent:
        notes.append(f"no launches were recorded for {', '.join(silent)}: causes are unknown")
    return Gaps(
        steps.count if steps.basis != "recording" else 0,
        float((steps.end_ps - steps.start_ps).mean()) / 1e6 if len(steps) else 0.0,
        sum(causes.values()),
        {cause: us for cause, us in causes.items() if us},
        round(sum(len(one.start) for one in found) / count),
        step_times(profile),
        tuple(longest[:LONGEST]),
        tuple(notes),
        _groups(found, count),
    )


def _groups(devices: Sequence[_DeviceGaps], steps: int) -> tuple[GapGroup, ...]:
    """The gaps of all devices by what ran before and after them."""
    if not any(len(one.start) for one in devices):
        return ()
    owner = np.repeat(np.arange(len(devices)), [len(one.start) for one in devices])
    place = np.concatenate([np.arange(len(one.start)) for one in devices])
    idle = np.concatenate([one.end - one.start for one in devices]).astype(np.float64)
    neighbours = np.concatenate([one.neighbours() for one in devices])
    _, of = np.unique(neighbours, axis=0, return_inverse=True)
    of = of.ravel()
    total = np.bincount(of, idle)
    times = np.bincount(of)
    parts = np.stack(
        [np.bincount(of, np.concatenate([one.part(cause) for one in devices])) for cause in CAUSES]
    )
    order = np.lexsort((-idle, of))
    first = order[np.searchsorted(of[order], np.arange(len(total)))]
    found = []
    for group in np.argsort(-total, kind="stable")[:LONGEST].tolist():
        longest = devices[owner[first[group]]].gap(int(place[first[group]]))
        split = {
            cause: float(us) / 1e6 / steps
            for cause, us in zip(CAUSES, parts[:, group], strict=True)
            if us
        }
        us, count = float(total[group]) / 1e6 / steps, int(times[group]) / steps
        cause = max(split, key=lambda one: split[one], default="unknown")
        found.append(GapGroup(longest.before, longest.after, cause, us, split, count, longest))
    return tuple(found)


class _DeviceGaps:
    """The gaps of one device, inside its steps."""

    def __init__(self, profile: Profile, device: int) -> None:
        self.profile = profile
        self.device = device
        self.segments = profile.segments.of(device)
        self.start, self.end, self.step, self.after = self._find()
        self.known, self.launched = self._launched()
        self.has_launches = bool(self.known.any()) or not len(self.start)
        self.causes = self._split()

    def _find(self) -> tuple[Array, Array, Array, Array]:
        """(start, end, row of the step, segment that ends it or -1) of each gap."""
        from slipstream.profile.timeline import scans

        steps = self.profile.steps
        rows = np.flatnonzero(steps.device == self.device)
        rows = rows[np.argsort(steps.start_ps[rows], kind="stable")]
        busy = (self.segments.start_ps, self.segments.duration_ps)
        windows = (steps.start_ps[rows], steps.end_ps[rows])
        start, end, step, after = scans.gaps(*busy, *windows)
        return start, end, rows[step], after

    @property
    def _host_rows(self) -> Array:
        """Events of the threads of the device's host."""
        host = self.profile.devices[self.device].host
        own = np.array([x.host == host and x.role == "thread" for x in self.profile.lanes], bool)
        table = self.profile.host_events
        return np.flatnonzero(own[table["lane"]]) if len(table) else np.empty(0, np.int64)

    def _launched(self) -> tuple[Array, Array]:
        """(whether the launch of the event after each gap is known, when that launch ended)."""
        table = self.profile.host_events
        rows = self._host_rows
        rows = rows[table["correlation"][rows] > 0]
        rows = rows[np.argsort(table["correlation"][rows], kind="stable")]
        self.threads = distinct(table["lane"][rows])
        following = self.after
        if not len(rows) or not len(following):
            return np.zeros(len(following), bool), np.zeros(len(following), np.int64)
        event = self.segments.row[np.maximum(following, 0)]
        wanted = self.profile.events.cells("correlation", event)
        numbers = table["correlation"][rows]
        place = np.minimum(np.searchsorted(numbers, wanted), len(rows) - 1)
        known = (numbers[place] == wanted) & (wanted > 0) & (following >= 0)
        at = rows[place]
        launched = table["start_ps"][at] + table["duration_ps"][at]
        if self.profile.devices[self.device].kind != "gpu":
            launched = np.minimum(launched, self._begun(wanted))
        return known, launched

    def _begun(self, wanted: Array) -> Array:
        """When the runs of some launches began: XLA:CPU runs a program inside the call, too."""
        launches = self.profile.events.cells("correlation", self.segments.row)
        numbers, of = np.unique(launches, return_inverse=True)
        first = np.full(len(numbers), np.iinfo(np.int64).max)
        np.minimum.at(first, of, self.segments.start_ps)
        place = np.minimum(np.searchsorted(numbers, wanted), len(numbers) - 1)
        begun: Array = np.where(numbers[place] == wanted, first[place], np.iinfo(np.int64).max)
        return begun

    def _split(self) -> dict[str, Array]:
        """The part of each gap that each cause takes; the parts add up to the gap."""
        idle = self.end - self.start
        known = self.known
        if not known.any():
            return {"unknown": idle}
        # Until the launch ends, the device waits for the host; afterwards, for the launch.
        ready = np.where(known, np.clip(self.launched, self.start, self.end), self.start)
        compiles, inputs, launches = self._host_unions()
        compiling = compiles.covered(self.start, ready)
        fed = inputs.covered(self.start, ready) - compiling
        launching = launches.covered(self.start, ready) - compiling - fed
        nothing = np.zeros(len(idle), np.int64)
        return {
            "compilation": compiling,
            "input": fed,
            "launch": launching,
            "host": ready - self.start - compiling - fed - launching,
            "latency": np.where(known, self.end - ready, nothing),
            "unknown": np.where(known, nothing, idle),
        }

    def _host_unions(self) -> tuple[IntervalUnion, IntervalUnion, IntervalUnion]:
        """When the host compiled; compiled or fed the device; compiled, fed it or launched."""
        table = self.profile.host_events
        rows = self._host_rows
        kinds = np.full(len(table.texts), 3, np.int8)
        for text in distinct(table["name"][rows]).tolist() if len(rows) else ():
            kinds[text] = _host_kind(table.texts[text])
        kind = kinds[table["name"][rows]] if len(rows) else np.empty(0, np.int8)
        # Any thread may compile; of everything else, only launching threads delay launches.
        counts = (kind == 0) | np.isin(table["lane"][rows], self.threads)
        start, duration = table["start_ps"][rows], table["duration_ps"][rows]
        unions = []
        for most in range(3):
            some = counts & (kind <= most)
            unions.append(IntervalUnion.of(start[some], duration[some]))
        return unions[0], unions[1], unions[2]

    def longest(self) -> list[Gap]:
        idle = self.end - self.start
        # Sort only the gaps that are long enough to be listed.
        least = np.partition(idle, -LONGEST)[-LONGEST] if len(idle) > LONGEST else 0
        some = np.flatnonzero(idle >= least)
        order = some[np.argsort(-idle[some], kind="stable")][:LONGEST]
        return [self.gap(i) for i in order.tolist()]

    def part(self, cause: str) -> Array:
        """The part of each gap that a cause takes."""
        return self.causes.get(cause, np.zeros(len(self.start), np.int64)).astype(np.float64)

    def neighbours(self) -> Array:
        """Numbers that tell what ran before and after each gap: columns of two rows of events."""
        rows = self.segments.row
        # The segment that ended last among those that have begun.
        ends = np.maximum.accumulate(self.segments.end_ps)
        is_last = np.diff(ends, prepend=ends[:1] - 1) > 0
        last = np.maximum.accumulate(np.where(is_last, np.arange(len(ends)), 0))
        begun = np.searchsorted(self.segments.start_ps, self.start, "left")
        before = np.where(begun > 0, last[np.maximum(begun - 1, 0)], -1)
        return np.concatenate([self._identity(rows, at) for at in (before, self.after)], axis=1)

    def _identity(self, rows: Array, segments: Array) -> Array:
        """(program, instruction, kernel if that is all) of some segments; -1 for none."""
        events = self.profile.events
        row = rows[np.maximum(segments, 0)]
        program, instruction, kernel = (events.cells(name, row) for name in LABEL_COLUMNS)
        kernel = np.where(instruction == 0, kernel, 0)
        known = np.stack([program, instruction, kernel], axis=1).astype(np.int64)
        return np.where((segments >= 0)[:, None], known, -1)

    def gap(self, i: int) -> Gap:
        profile, steps = self.profile, self.profile.steps
        device = profile.devices[self.device]
        step = int(self.step[i])
        rows = self.segments.row
        last = self._last_before(int(self.start[i]))
        before = label(profile, int(rows[last])).instruction if last is not None else ""
        after = label(profile, int(rows[self.after[i]])) if self.after[i] >= 0 else None
        return Gap(
            device=device.name,
            host=profile.hosts[device.host].name,
            step=int(steps.number[step]),
            start_us=float(self.start[i] - steps.start_ps[step]) / 1e6,
            us=float(self.end[i] - self.start[i]) / 1e6,
            cause=max(self.causes, key=lambda cause: int(self.causes[cause][i])),
            before=before,
            after=after.instruction if after else "",
            after_source=after.source if after else "",
            doing=self._doing(i),
        )

    def _last_before(self, start: int) -> int | None:
        """The segment that ended last before a gap: on another stream, it may have begun early."""
        begun = int(np.searchsorted(self.segments.start_ps, start, "left"))
        return int(self.segments.end_ps[:begun].argmax()) if begun else None

    def _doing(self, i: int) -> str:
        """The innermost host event that covers at least half of the wait for the host."""
        table = self.profile.host_events
        rows = self._host_rows
        rows = rows[np.isin(table["lane"][rows], self.threads)]
        until = min(int(self.end[i]), int(self.launched[i]))
        begin = int(self.start[i])
        if not self.known[i] or until <= begin:
            return ""
        start, duration = table["start_ps"][rows], table["duration_ps"][rows]
        both = np.minimum(start + duration, until) - np.maximum(start, begin)
        most = np.flatnonzero((2 * both >= until - begin) & ~table["is_step"][rows])
        inwards = most[np.argsort(duration[most], kind="stable")].tolist()
        names = [table.text("name", int(rows[one])) for one in inwards]
        # Of `$time sleep` and its caller, `$train.py:7 log`, the caller can be looked up.
        located = (name for name in names if not _BUILTIN.match(name))
        return next(located, names[0] if names else "")


def _host_kind(name: str) -> int:
    """0: compiles, 1: feeds the device, 2: launches, 3: anything else."""
    for kind, pattern in enumerate((_COMPILES, _INPUTS, _LAUNCHES)):
        if pattern.search(name):
            return kind
    return 3

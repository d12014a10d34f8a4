"""Measured durations: the sum of an instruction's kernels, for each execution of it.

run 0 of the program                      run 1
memset nvjet · memset nvjet · …           …          kernels of one instruction in a loop
└── execution 0  └── execution 1                     `Measured.us[run, execution]`

A kernel counts for the time that it adds to its stream. With programmatic dependent launch, a
kernel may start, and wait, before the previous one ends:

kernel 1  ██████████
kernel 2        ░░░░████████      8, not 12

Kernels that compute side by side, on several streams, slow each other down: they share the time.

stream 1  ████████████            4 + 8/2
stream 2      ████████████        8/2 + 4

On a TPU, an operation counts without those inside it. What runs beside the cores counts only where
the recording shows when it ended (`profile/timeline/windows.py`); its start and its done don't.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.profile.attribution.executions import launch_keys
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, kinds
from slipstream.profile.timeline.nesting import self_durations
from slipstream.profile.timeline.windows import hidden_windows


@dataclass(frozen=True)
class Measured:
    """One instruction of one program: its time in every execution on every device."""

    program: str
    instruction: str
    is_communication: bool
    device: Array
    """device of each run"""
    start_ps: Array
    """start of this instruction's first event in each run"""
    us: Array
    """one row per run, one column per execution within the run"""


def measure(profile: Profile) -> Iterator[Measured]:
    """The durations of every instruction in complete steps, without warm-up."""
    events = profile.events
    shown = ~_only_attends(profile) & ~hidden_windows(profile)
    rows = np.flatnonzero(_counted(profile) & (events["instruction"] != 0) & shown)
    if not len(rows):
        return
    order = np.lexsort(
        (
            events["start_ps"][rows],
            launch_keys(events)[rows],
            events["execution"][rows],
            profile.event_devices[rows],
            events["instruction"][rows],
            events["program"][rows],
        )
    )
    rows = rows[order]
    communicates = kinds(profile)[rows] == COMMUNICATION
    added = added_ps(profile)
    names = events["program"][rows].astype(np.int64) << 32 | events["instruction"][rows]
    starts = np.flatnonzero(np.diff(names, prepend=-1))
    for start, end in zip(starts, np.append(starts[1:], len(rows)), strict=True):
        if events.text("program", rows[start]):
            own = rows[start:end]
            yield _measured(profile, own, added[own], bool(communicates[start:end].any()))


def unattributed_us(profile: Profile, program: str) -> float:
    """Device time in one run of a program that belongs to no known instruction."""
    events = profile.events
    if program not in events.texts:
        return 0.0
    own = _counted(profile) & (events["program"] == events.texts.index(program))
    rows = np.flatnonzero(own & (events["instruction"] == 0))
    if not len(rows):
        return 0.0
    runs = profile.event_devices[own].astype(np.int64) << 32 | events["execution"][own]
    return float(added_ps(profile)[rows].sum()) / 1e6 / len(np.unique(runs))


def added_ps(profile: Profile) -> Array:
    """The time that each event adds to its stream; what computes side by side, to its device."""
    events = profile.events
    if any(lane.role == "ops" for lane in profile.lanes):
        own = self_durations(profile)
        # Windows have no time of their own, but those that are measured show how long it took.
        return np.where(_on(profile, "windows"), events["duration_ps"], own)
    begin: Array = events["start_ps"].copy()
    end = begin + events["duration_ps"]
    lanes = events["lane"]
    for lane, about in enumerate(profile.lanes):
        rows = np.flatnonzero(lanes == lane) if about.role == "stream" else ()
        if len(rows) < 2:
            continue
        if (np.diff(begin[rows]) < 0).any():
            rows = rows[np.argsort(begin[rows], kind="stable")]
        before = np.maximum.accumulate(end[rows])[:-1]
        begin[rows[1:]] = np.minimum(np.maximum(begin[rows[1:]], before), end[rows[1:]])
    added: Array = end - begin
    for rows in _on_several_streams(profile):
        added[rows] = _shares(begin[rows], end[rows])
    return added


def _on(profile: Profile, role: str) -> Array:
    roles = np.array([lane.role == role for lane in profile.lanes], bool)
    return np.asarray(roles[profile.events["lane"]])


def _on_several_streams(profile: Profile) -> Iterator[Array]:
    """The events that compute, of each device that computes on several streams."""
    lanes, computes = profile.events["lane"], kinds(profile) == COMPUTE
    used = np.bincount(lanes[computes], minlength=len(profile.lanes)) > 0
    streams: dict[int, list[int]] = {}
    for lane, about in enumerate(profile.lanes):
        if about.role == "stream" and about.device is not None and used[lane]:
            streams.setdefault(about.device, []).append(lane)
    for several in streams.values():
        if len(several) > 1:
            yield np.flatnonzero(computes & np.isin(lanes, several))


def _shares(begin: Array, end: Array) -> Array:
    """The time of each event, divided by the number of events at that time."""
    times, place = np.unique(np.concatenate((begin, end)), return_inverse=True)
    first, last = place[: len(begin)], place[len(begin) :]
    change = np.bincount(first, minlength=len(times)) - np.bincount(last, minlength=len(times))
    running = np.maximum(np.cumsum(change)[:-1], 1)
    passed = np.concatenate(([0.0], np.cumsum(np.diff(times) / running)))
    return np.asarray(np.rint(passed[last] - passed[first]).astype(np.int64))


def _only_attends(profile: Profile) -> Array:
    """Events of a TPU's cores that start or await something: they don't show how long it takes."""
    events = profile.events
    cores = _on(profile, "ops")
    if not cores.any():
        return cores
    keys = events["program"].astype(np.int64) << 32 | events["instruction"]
    used, place = np.unique(keys, return_inverse=True)
    names = ((events.texts[key >> 32], events.texts[key & 0xFFFFFFFF]) for key in used.tolist())
    attends = np.array([_attends(profile, *name) for name in names], bool)
    return np.asarray(cores & attends[place.ravel()])


def _attends(profile: Profile, program: str, instruction: str) -> bool:
    if program not in profile.programs or instruction not in profile.programs[program]:
        return False
    found = profile.programs[program].instruction(instruction)
    return found.is_start or found.is_done


def _counted(profile: Profile) -> Array:
    """Events in steps; of programs that never run inside a step, all events."""
    inside = profile.steps.of_events(profile) < len(profile.steps)
    programs = profile.events["program"]
    seen = np.bincount(programs[inside], minlength=len(profile.events.texts)) > 0
    return inside | ~seen[programs]


def _measured(profile: Profile, rows: Array, added: Array, is_communication: bool) -> Measured:
    events = profile.events
    runs = profile.event_devices[rows].astype(np.int64) << 32 | events["execution"][rows]
    firsts = np.flatnonzero(np.diff(runs, prepend=-1))
    sizes = np.diff(np.append(firsts, len(rows)))
    program, instruction = (events.text(c, rows[0]) for c in ("program", "instruction"))
    times = added / 1e6
    usual = int(np.bincount(sizes).argmax())
    # Skip runs that lost events or took another branch.
    whole = sizes == usual
    kept = np.repeat(whole, sizes)
    executions = _executions(profile, program, instruction, usual, events["name"][rows[kept]])
    us = times[kept].reshape(int(whole.sum()), executions, -1).sum(axis=2)
    return Measured(
        program,
        instruction,
        is_communication,
        profile.event_devices[rows[firsts]][whole],
        events["start_ps"][rows[firsts]][whole],
        us,
    )


def _executions(profile: Profile, program: str, instruction: str, events: int, names: Array) -> int:
    """How often the instruction runs in one run of its program, given its number of events."""
    found = profile.programs.get(program)
    if found is not None and instruction in found:
        start = found.starter(instruction)
        stated = found.executions(start.name if start else instruction)
        if stated and events % stated == 0:
            return stated
    # Without trip counts: the rarest of its kernels runs once per execution.
    rarest = int(np.unique(names[:events], return_counts=True)[1].min())
    return rarest if events % rarest == 0 else 1

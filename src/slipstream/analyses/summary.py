"""Where the time of a step went, on one screen."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.ops import Op, OpGroup, ops
from slipstream.inline import Inline
from slipstream.profile.attribution.executions import graph_number
from slipstream.profile.events import Array, median
from slipstream.profile.profile import Host, Profile, ProfileWarning
from slipstream.profile.semantics.names import PHASES
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY
from slipstream.profile.timeline.segments import ANY_KIND, Segments, kind_mask

TOP = 8
"""how many ops a summary lists"""


@dataclass(frozen=True)
class DeviceSummary:
    """One device, and how much it ran."""

    name: str
    host: str
    model: str
    events: int
    busy_us: float


@dataclass(frozen=True)
class ProgramSummary:
    """One program that ran: how often, and for how long."""

    name: str
    fingerprint: str | None
    executions: int
    """summed over all devices"""
    instructions: int | None
    device_us: float
    """summed over all executions and devices"""
    command_buffers: bool


@dataclass(frozen=True)
class StepTimes:
    """One step of one device by kind of time: medians over steps and devices.

    compute   ████████      ████
    comm          ██████████
    exposed           ░░░░░░        `exposed_communication_us`: no concurrent compute
    idle                        ░░  nothing at all
    """

    wall_us: float
    compute_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float
    idle_us: float
    unattributed_us: float


@dataclass(frozen=True)
class Summary(Inline):
    """Where the time of a step went."""

    hosts: tuple[str, ...]
    versions: dict[str, str]
    devices: tuple[DeviceSummary, ...]
    programs: tuple[ProgramSummary, ...]
    step_count: int
    step_median_us: float
    step_basis: str
    step_rule: str
    """a sentence: the rule that found the steps, and what it left out"""
    per_step: StepTimes
    phases_us: dict[str, float]
    """device time by phase, mean over steps and devices"""
    top: tuple[Op, ...]
    warnings: tuple[ProfileWarning, ...]
    top_groups: tuple[OpGroup, ...] = ()
    """the longest ops, with equal ones of unrolled layers as one"""


def summary(profile: Profile) -> Summary:
    """The step by kind of time and by phase, and the ops that take longest."""
    steps = profile.steps
    times = step_times(profile)
    by_op = ops(profile)
    return Summary(
        hosts=tuple(host.name for host in profile.hosts),
        versions=software_versions(profile.hosts),
        devices=device_summaries(profile),
        programs=programs(profile),
        step_count=steps.count if steps.basis != "recording" else 0,
        step_median_us=times.wall_us,
        step_basis=steps.basis,
        step_rule=steps.rule,
        per_step=times,
        phases_us=phase_times(by_op.ops),
        top=by_op.ops[:TOP],
        warnings=profile.warnings,
        top_groups=by_op.groups[:TOP],
    )


def phase_times(by_op: Iterable[Op]) -> dict[str, float]:
    """Device time by phase, mean over steps and devices."""
    phases = dict.fromkeys(PHASES, 0.0)
    for op in by_op:
        phases[op.phase or "other"] += op.per_step_us
    return {phase: time for phase, time in phases.items() if time}


def step_times(profile: Profile) -> StepTimes:
    """The median, over steps and devices, of each kind of time."""
    return median_times(step_splits(profile))


def median_times(splits: Array) -> StepTimes:
    """The median of rows of `step_splits`."""
    if not len(splits):
        return StepTimes(*(0.0,) * 8)
    return StepTimes(*(float(x) for x in median(splits) / 1e6))


def step_splits(profile: Profile) -> Array:
    """The times of each step of each device, in ps: one row per step, columns as in `StepTimes`."""
    steps = profile.steps
    columns = np.empty((len(steps), 8), np.float64)
    if not len(steps):
        return columns
    unknown = _unattributed(profile)
    for device, own in profile.segments.by_device():
        rows = np.flatnonzero(steps.device == device)
        if len(rows):
            kind = own.kind if unknown is None else own.kind + _UNKNOWN * unknown[own.row]
            columns[rows] = _split(own, kind, steps.start_ps[rows], steps.end_ps[rows])
    return columns


_UNKNOWN = np.uint8(ANY_KIND.bit_length())
"""added to the kind of unattributed segments"""


def _parts() -> list[int]:
    talking = kind_mask(COMMUNICATION)
    masks = [
        kind_mask(COMPUTE),
        kind_mask(COMPUTE, COMMUNICATION),
        ANY_KIND,
        talking,
        kind_mask(COPY),
    ]
    return [*(mask | mask << int(_UNKNOWN) for mask in masks), ANY_KIND << int(_UNKNOWN)]


def _split(own: Segments, kind: Array, starts: Array, ends: Array) -> Array:
    compute, working, busy, communication, copy, unknown = own.covered(_parts(), starts, ends, kind)
    wall = ends - starts
    columns = (
        wall,
        compute,
        communication,
        working - compute,
        copy,
        busy - working,
        wall - busy,
        unknown,
    )
    return np.stack(columns, axis=1)


def _unattributed(profile: Profile) -> Array | None:
    """1 for each event without an instruction, else 0; None if all have one."""
    events = profile.events
    if events.tags is not None and events.is_tagged("instruction"):
        bare = (events.tagged("instruction") == 0) & (events.tags.firsts >= 0)
        return np.take(bare.astype(np.uint8), events.tags.of) if bare.any() else None
    bare = events["instruction"] == 0
    return bare.astype(np.uint8) if bare.any() else None


def programs(profile: Profile) -> tuple[ProgramSummary, ...]:
    """The programs that ran, by device time, longest first."""
    events = profile.events
    counts = np.bincount(profile.runs.program, minlength=len(events.texts))
    times = np.bincount(profile.runs.program, profile.runs.busy_ps, len(events.texts))
    graphs = _in_graphs(profile)
    found = []
    for index in np.flatnonzero(counts).tolist():
        name = events.texts[index]
        if not name:
            continue
        program = profile.programs.get(name)
        size = sum(1 for _ in program.scheduled) if program else None
        fingerprint = program.fingerprint if program else None
        time = float(times[index]) / 1e6
        found.append(
            ProgramSummary(name, fingerprint, int(counts[index]), size, time, name in graphs)
        )
    return tuple(sorted(found, key=lambda program: -program.device_us))


def _in_graphs(profile: Profile) -> set[str]:
    from slipstream.profile.grouping import group_columns

    _, firsts = group_columns(profile.events, "program", "op")
    rows = firsts.tolist()
    labels = [(profile.events.text("program", r), profile.events.text("op", r)) for r in rows]
    return {program for program, label in labels if graph_number(label) is not None}


def device_summaries(profile: Profile) -> tuple[DeviceSummary, ...]:
    """The devices, and how much each ran."""
    counts = np.bincount(profile.event_devices, minlength=len(profile.devices))
    found = []
    for index, device in enumerate(profile.devices):
        busy = profile.segments.of(index).union().length / 1e6
        host = profile.hosts[device.host].name
        found.append(DeviceSummary(device.name, host, device.model, int(counts[index]), busy))
    return tuple(found)


def software_versions(hosts: Iterable[Host]) -> dict[str, str]:
    """Software versions; where hosts differ, all of them, joined."""
    found: dict[str, dict[str, None]] = {}
    for host in hosts:
        for name, version in host.versions.items():
            found.setdefault(name.removesuffix("_version"), {})[version] = None
    return {name: ", ".join(versions) for name, versions in sorted(found.items())}

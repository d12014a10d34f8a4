"""What holds for every Profile, whoever made it; `check` ends the test of every reader."""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    TRANSFER_COLUMNS,
    Array,
    Column,
    Table,
)
from slipstream.profile.profile import Profile

DEVICE_KINDS = {"gpu", "tpu", "cpu"}
DEVICE_ROLES = {"stream", "ops", "async", "modules", "steps"}
STEP_BASES = {"annotations", "executions", "recording"}


def validate(profile: Profile) -> None:
    """AssertionError, with a sentence, at the first thing that does not hold."""
    _check_places(profile)
    _check_table(profile, "events", profile.events, EVENT_COLUMNS)
    _check_table(profile, "host_events", profile.host_events, HOST_COLUMNS)
    _check_table(profile, "transfers", profile.transfers, TRANSFER_COLUMNS)
    _check_lanes_of_events(profile)
    _check_instructions(profile)
    _check_steps(profile)
    for warning in profile.warnings:
        _hold(bool(warning.code and warning.message), f"a warning says nothing: {warning}")


def _hold(holds: bool, sentence: str) -> None:
    # Not an assert statement: `python -O` must not turn checks into silence.
    if not holds:
        raise AssertionError(sentence)


def _check_places(profile: Profile) -> None:
    """Devices are on hosts, and lanes on hosts and their devices."""
    for device in profile.devices:
        _hold(0 <= device.host < len(profile.hosts), f"{device.name} is on no host of the profile")
        _hold(device.kind in DEVICE_KINDS, f"{device.name} is of unknown kind {device.kind!r}")
    for lane in profile.lanes:
        _hold(0 <= lane.host < len(profile.hosts), f"lane {lane.name!r} is on no host")
        if lane.device is None:
            _hold(lane.role == "thread", f"lane {lane.name!r} has no device, but is no thread")
            continue
        _hold(0 <= lane.device < len(profile.devices), f"lane {lane.name!r} is on no device")
        _hold(lane.role in DEVICE_ROLES, f"lane {lane.name!r} has unknown role {lane.role!r}")
        of_device = profile.devices[lane.device].host
        _hold(of_device == lane.host, f"lane {lane.name!r} and its device are on different hosts")


def _check_table(profile: Profile, name: str, table: Table, columns: tuple[Column, ...]) -> None:
    """A table has its declared columns, of equal length, with texts and lanes that exist."""
    _hold(table.columns == columns, f"{name} does not declare the columns it should")
    held = set(table.arrays) | set(table.tags.values if table.tags else ())
    _hold(held == {c.name for c in columns}, f"{name} has other columns than declared")
    _hold(bool(table.texts) and table.texts[0] == "", f"the first text of {name} is not empty")
    _hold(len(set(table.texts)) == len(table.texts), f"{name} holds one text twice")
    for column in columns:
        array = table[column.name]
        _hold(array.shape == (len(table),), f"{name}.{column.name} is of shape {array.shape}")
        _hold(array.dtype == column.dtype, f"{name}.{column.name} is {array.dtype}")
        if column.text:
            _hold(_within(array, len(table.texts)), f"{name}.{column.name} points beyond the texts")
    _hold(_within(table["lane"], len(profile.lanes)), f"{name}.lane points beyond the lanes")
    _hold(not (table["duration_ps"] < 0).any(), f"{name}.duration_ps is negative somewhere")


def _within(array: Array, size: int) -> bool:
    return not len(array) or (int(array.min()) >= 0 and int(array.max()) < size)


def _check_lanes_of_events(profile: Profile) -> None:
    """Device events are on devices, network transfers on threads."""
    for index in np.unique(profile.events["lane"]).tolist():
        lane = profile.lanes[index]
        holds = lane.device is not None and lane.role not in ("modules", "steps")
        _hold(holds, f"device events are on the lane {lane.name!r}, of role {lane.role}")
    for index in np.unique(profile.host_events["lane"]).tolist():
        lane = profile.lanes[index]
        holds = lane.role in ("thread", "modules", "steps")
        _hold(holds, f"host events are on the lane {lane.name!r}, of role {lane.role}")
    for index in np.unique(profile.transfers["lane"]).tolist():
        lane = profile.lanes[index]
        _hold(lane.role == "thread", f"transfers are on {lane.name!r}, of role {lane.role}")


def _check_instructions(profile: Profile) -> None:
    """An event's instruction is one of its program, where that is known; executions count up."""
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    _hold(not (events["execution"] < 0).any(), "events.execution is negative somewhere")
    _, firsts = group_pairs(events["program"], events["instruction"])
    for row in firsts.tolist():
        name, instruction = events.text("program", row), events.text("instruction", row)
        if instruction and name in profile.programs:
            known = instruction in profile.programs[name]
            _hold(known, f"{instruction} is no instruction of {name}")


def _check_steps(profile: Profile) -> None:
    """Steps of a device come one after the other, each with its own number."""
    steps = profile.steps
    _hold(steps.basis in STEP_BASES, f"steps have the unknown basis {steps.basis!r}")
    _hold(bool(steps.rule), "steps don't say what rule found them")
    _hold(_within(steps.device, len(profile.devices)), "a step is on no device")
    _hold(bool((steps.start_ps <= steps.end_ps).all()), "a step ends before it starts")
    for device in np.unique(steps.device).tolist():
        rows = np.flatnonzero(steps.device == device)
        name = profile.devices[device].name
        numbers = steps.number[rows]
        _hold(len(np.unique(numbers)) == len(rows), f"two steps of {name} share a number")
        order = rows[np.argsort(steps.start_ps[rows], kind="stable")]
        apart = steps.start_ps[order][1:] >= steps.end_ps[order][:-1]
        _hold(bool(apart.all()), f"two steps of {name} overlap")

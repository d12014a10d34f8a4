"""What must hold for every Profile; the test of every reader ends with `validate`."""

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
DEVICE_ROLES = {"stream", "ops", "async", "windows", "modules", "steps"}
STEP_BASES = {"annotations", "executions", "recording"}


def validate(profile: Profile) -> None:
    """Raise an AssertionError that names the first violated invariant."""
    _check_places(profile)
    _check_table(profile, "events", profile.events, EVENT_COLUMNS)
    _check_table(profile, "host_events", profile.host_events, HOST_COLUMNS)
    _check_table(profile, "transfers", profile.transfers, TRANSFER_COLUMNS)
    _check_lanes_of_events(profile)
    _check_instructions(profile)
    _check_steps(profile)
    for warning in profile.warnings:
        _hold(bool(warning.code and warning.message), f"a warning is empty: {warning}")


def _hold(holds: bool, sentence: str) -> None:
    # Not an assert statement: `python -O` would skip it.
    if not holds:
        raise AssertionError(sentence)


def _check_places(profile: Profile) -> None:
    """Devices belong to hosts, and lanes to hosts and their devices."""
    for device in profile.devices:
        _hold(
            0 <= device.host < len(profile.hosts),
            f"{device.name} belongs to no host",
        )
        _hold(device.kind in DEVICE_KINDS, f"{device.name} has the unknown kind {device.kind!r}")
    for lane in profile.lanes:
        _hold(0 <= lane.host < len(profile.hosts), f"lane {lane.name!r} belongs to no host")
        if lane.device is None:
            _hold(lane.role == "thread", f"lane {lane.name!r} has no device but is not a thread")
            continue
        _hold(0 <= lane.device < len(profile.devices), f"lane {lane.name!r} belongs to no device")
        _hold(lane.role in DEVICE_ROLES, f"lane {lane.name!r} has the unknown role {lane.role!r}")
        of_device = profile.devices[lane.device].host
        _hold(of_device == lane.host, f"lane {lane.name!r} and its device are on different hosts")


def _check_table(profile: Profile, name: str, table: Table, columns: tuple[Column, ...]) -> None:
    """A table has its declared columns, of equal length, with texts and lanes that exist."""
    _hold(table.columns == columns, f"{name} declares the wrong columns")
    held = set(table.arrays) | set(table.tags.values if table.tags else ())
    _hold(held == {c.name for c in columns}, f"{name} does not hold the columns that it declares")
    _hold(bool(table.texts) and table.texts[0] == "", f"the first text of {name} is not empty")
    _hold(len(set(table.texts)) == len(table.texts), f"{name} holds a text twice")
    for column in columns:
        array = table[column.name]
        _hold(array.shape == (len(table),), f"{name}.{column.name} has shape {array.shape}")
        _hold(array.dtype == column.dtype, f"{name}.{column.name} has dtype {array.dtype}")
        if column.text:
            _hold(_within(array, len(table.texts)), f"{name}.{column.name} points beyond the texts")
    _hold(_within(table["lane"], len(profile.lanes)), f"{name}.lane points beyond the lanes")
    _hold(not (table["duration_ps"] < 0).any(), f"{name}.duration_ps has negative values")


def _within(array: Array, size: int) -> bool:
    return not len(array) or (int(array.min()) >= 0 and int(array.max()) < size)


def _check_lanes_of_events(profile: Profile) -> None:
    """Device events are on device lanes, network transfers on threads."""
    for index in np.unique(profile.events["lane"]).tolist():
        lane = profile.lanes[index]
        holds = lane.device is not None and lane.role not in ("modules", "steps")
        _hold(holds, f"lane {lane.name!r} of role {lane.role} holds device events")
    for index in np.unique(profile.host_events["lane"]).tolist():
        lane = profile.lanes[index]
        holds = lane.role in ("thread", "modules", "steps")
        _hold(holds, f"lane {lane.name!r} of role {lane.role} holds host events")
    for index in np.unique(profile.transfers["lane"]).tolist():
        lane = profile.lanes[index]
        _hold(lane.role == "thread", f"lane {lane.name!r} of role {lane.role} holds transfers")


def _check_instructions(profile: Profile) -> None:
    """An event's instruction belongs to its program, where that is known."""
    from slipstream.profile.grouping import group_pairs

    events = profile.events
    _hold(not (events["execution"] < 0).any(), "events.execution has negative values")
    _, firsts = group_pairs(events["program"], events["instruction"])
    for row in firsts.tolist():
        name, instruction = events.text("program", row), events.text("instruction", row)
        if instruction and name in profile.programs:
            known = instruction in profile.programs[name]
            _hold(known, f"{instruction} is not an instruction of {name}")


def _check_steps(profile: Profile) -> None:
    """Steps of a device don't overlap, and each has its own number."""
    steps = profile.steps
    _hold(steps.basis in STEP_BASES, f"steps have the unknown basis {steps.basis!r}")
    _hold(bool(steps.rule), "steps don't name the rule that found them")
    _hold(_within(steps.device, len(profile.devices)), "a step belongs to no device")
    _hold(bool((steps.start_ps <= steps.end_ps).all()), "a step ends before it starts")
    for device in np.unique(steps.device).tolist():
        rows = np.flatnonzero(steps.device == device)
        name = profile.devices[device].name
        numbers = steps.number[rows]
        _hold(len(np.unique(numbers)) == len(rows), f"two steps of {name} share a number")
        order = rows[np.argsort(steps.start_ps[rows], kind="stable")]
        apart = steps.start_ps[order][1:] >= steps.end_ps[order][:-1]
        _hold(bool(apart.all()), f"two steps of {name} overlap")

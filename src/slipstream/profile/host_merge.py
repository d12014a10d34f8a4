"""Merge the profiles of several hosts into one, on one clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slipstream.profile.events import Array, Column, Table, Tags, Texts, joined
from slipstream.profile.one_run import APART_NS, Recorded, apart_ns, check_one_run
from slipstream.profile.profile import Profile, ProfileWarning, Programs

ONLY_WITHIN = (
    "on a timeline, only compare times within one host (`hosts` and `collectives` correct for it)"
)
"""what clocks that differ mean"""


def merge_hosts(profiles: Sequence[Profile], recorded: Sequence[Recorded] = ()) -> Profile:
    """One Profile of all hosts; times count from the earliest host's start.

    BadInput if the profiles can't be of one run. `recorded` tells that, where profiles hold only a
    part of their recordings.
    """
    if len(profiles) == 1:
        return profiles[0]
    texts = Texts()
    recorded = recorded or [Recorded.of(profile) for profile in profiles]
    doubts = check_one_run(recorded)
    shifts, warnings = clock_shifts(profiles, apart_ns(recorded))
    programs, renamed = _merge_programs(profiles)
    moved = [
        _moved(profile, offsets, texts, shift, renames)
        for profile, offsets, shift, renames in zip(
            profiles, _offsets(profiles), shifts, renamed, strict=True
        )
    ]
    return Profile(
        tuple(host for part in moved for host in part.hosts),
        tuple(device for part in moved for device in part.devices),
        tuple(lane for part in moved for lane in part.lanes),
        joined([part.events for part in moved], texts.values),
        joined([part.host_events for part in moved], texts.values),
        joined([part.transfers for part in moved], texts.values),
        programs,
        tuple(warning for part in moved for warning in part.warnings) + doubts + warnings,
    )


def clock_shifts(
    profiles: Sequence[Profile], apart: int
) -> tuple[list[int], tuple[ProfileWarning, ...]]:
    """How far to shift each host's times, in ps, and warnings about the clocks."""
    hosts = [profile.hosts[0] for profile in profiles]
    first = min((host.start_ns for host in hosts if host.start_ns is not None), default=0)
    unknown = [host.name for host in hosts if host.start_ns is None]
    if unknown:
        text = f"{', '.join(unknown)} did not record when profiling began"
    elif apart > APART_NS:
        text = (
            f"by their clocks, some hosts recorded {_long(apart)} after the others: either a clock "
            "is wrong, or these are two runs (then read each by itself)"
        )
    else:
        return [((host.start_ns or 0) - first) * 1000 for host in hosts], ()
    text += f", so each host's times count from its own start; {ONLY_WITHIN}"
    return [0] * len(hosts), (ProfileWarning("clock-skew", text),)


def _long(ns: int) -> str:
    return f"{ns / 3.6e12:,.0f} hours" if ns >= 3.6e12 else f"{ns / 6e10:,.0f} minutes"


Offsets = tuple[int, int, int]
"""number of hosts, devices and lanes in the preceding profiles"""


def _offsets(profiles: Sequence[Profile]) -> list[Offsets]:
    sizes = [(len(p.hosts), len(p.devices), len(p.lanes)) for p in profiles]
    sums = np.cumsum([(0, 0, 0), *sizes[:-1]], axis=0)
    return [(int(h), int(d), int(n)) for h, d, n in sums]


def _moved(
    profile: Profile, offsets: Offsets, texts: Texts, shift_ps: int, renamed: dict[str, str]
) -> Profile:
    host, device, lane = offsets
    return replace(
        profile,
        devices=tuple(replace(d, host=d.host + host) for d in profile.devices),
        lanes=tuple(
            replace(x, host=x.host + host, device=None if x.device is None else x.device + device)
            for x in profile.lanes
        ),
        events=_moved_table(profile.events, texts, shift_ps, lane, renamed),
        host_events=_moved_table(profile.host_events, texts, shift_ps, lane, {}),
        transfers=_moved_table(profile.transfers, texts, shift_ps, lane, {}),
    )


def _moved_table(
    table: Table, texts: Texts, shift_ps: int, lane: int, renamed: dict[str, str]
) -> Table:
    index = texts.map(table.texts)
    programs = texts.map([renamed.get(text, text) for text in table.texts]) if renamed else index

    def moved(column: Column, array: Array) -> Array:
        if column.text:
            return (programs if column.name == "program" else index)[array]
        if column.name == "start_ps":
            return array + shift_ps
        return (array + lane).astype(np.int32) if column.name == "lane" else array

    held = {c.name: c for c in table.columns}
    arrays = {name: moved(held[name], array) for name, array in table.arrays.items()}
    tags = table.tags
    if tags is not None:
        values = {name: moved(held[name], array) for name, array in tags.values.items()}
        tags = Tags(tags.of, values)
    return Table(table.columns, arrays, texts.values, tags)


def _merge_programs(profiles: Sequence[Profile]) -> tuple[Programs, list[dict[str, str]]]:
    """All programs; where two of one name differ, the host's name is appended to the later one's.

    Hosts of one run mostly have the same programs under the same ids.
    """
    merged = Programs()
    renamed: list[dict[str, str]] = []
    for profile in profiles:
        names: dict[str, str] = {}
        own = dict(profile.programs.readers)
        for name in profile.programs:
            if name in merged and not _same(merged, profile.programs, name):
                names[name] = _free(f"{name}@{profile.hosts[0].name}", merged)
                own[names[name]] = own.pop(name)
        renamed.append(names)
        merged = merged.with_others(Programs({k: v for k, v in own.items() if k not in merged}))
    return merged, renamed


def _free(name: str, taken: Programs) -> str:
    """The name, numbered if it is taken: several processes can share a host name."""
    names = (name, *(f"{name}#{number}" for number in range(2, len(taken) + 3)))
    return next(found for found in names if found not in taken)


def _same(one: Programs, other: Programs, name: str) -> bool:
    return one[name].content_hash == other[name].content_hash

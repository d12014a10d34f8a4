"""Recordings with something planted in them: an op slower or more, a copy unhidden, new names."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np

from recorded import protos
from slipstream.profile.events import Array, Table, joined
from slipstream.profile.profile import Profile, Programs
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message


def pushed(profile: Profile, more: Array) -> Array:
    """How much later each event starts where those before it take so much more."""
    order = np.argsort(profile.events["start_ps"], kind="stable")
    later = np.empty_like(more)
    later[order] = np.cumsum(more[order]) - more[order]
    return later


def stretched(profile: Profile, instruction: str, factor: float) -> Profile:
    """The same recording with one op's events that much longer, all else pushed back."""
    events = profile.events
    label = list(events.texts).index(instruction)
    more = np.where(events["instruction"] == label, events["duration_ps"] * (factor - 1), 0)
    start = events["start_ps"] + pushed(profile, more.astype(np.int64))
    longer = events["duration_ps"] + more.astype(np.int64)
    return replace(profile, events=events.replace(start_ps=start, duration_ps=longer))


def renamed(profile: Profile, recording: str, seed: int) -> tuple[Profile, dict[str, str]]:
    """The same recording with every instruction and computation of its programs called anew."""
    table: dict[str, str] = {}
    pick = random.Random(seed)
    programs = {}
    for name, data in protos(recording).items():
        proto = message("HloProto").FromString(data)
        for computation in proto.hlo_module.computations:
            computation.name = f"c.{pick.randrange(10**9)}"
            for one in computation.instructions:
                one.name = table.setdefault(one.name, f"i.{pick.randrange(10**9)}")
        made = proto.SerializeToString()
        programs[name] = lambda made=made: program_from_proto(made)
    events = profile.events
    texts = tuple(table.get(text, text) for text in events.texts)
    return replace(profile, events=events.replace(texts), programs=Programs(programs)), table


def with_kernel(profile: Profile, label: str, name: str, us: int) -> Profile:
    """An op more at the end of each step, which everything after it waits for."""
    events = profile.events
    texts = (*events.texts, label, name)
    steps = profile.steps
    lengths = events["start_ps"] + events["duration_ps"]
    ends = [int(lengths[lengths <= end].max()) for end in steps.end_ps.tolist()]
    later = sum((events["start_ps"] >= end).astype(np.int64) * us * 10**6 for end in ends)
    moved = events.replace(texts, start_ps=events["start_ps"] + later)
    order = np.argsort(events["start_ps"], kind="stable")
    places = np.searchsorted(lengths[order], ends)
    lasts = order[np.minimum(places, len(order) - 1)]
    added = moved.take(lasts)
    columns = {
        "start_ps": np.array(ends) + np.arange(len(ends)) * us * 10**6,
        "duration_ps": np.full(len(ends), us * 10**6),
        "instruction": np.full(len(ends), len(texts) - 2, np.int32),
        "name": np.full(len(ends), len(texts) - 1, np.int32),
    }
    both = joined([_plain(moved), _plain(added.replace(**columns))], texts)
    return replace(profile, events=both)


def _plain(table: Table) -> Table:
    return Table(table.columns, {c.name: table[c.name] for c in table.columns}, table.texts)


def exposed(profile: Profile, instruction: str) -> Profile:
    """The same recording, where all that starts after an op waits until that ends."""
    events = profile.events
    label = list(events.texts).index(instruction)
    waits = np.where(events["instruction"] == label, events["duration_ps"], 0)
    return replace(
        profile,
        events=events.replace(start_ps=events["start_ps"] + pushed(profile, waits)),
    )

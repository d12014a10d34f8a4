"""Exposed time of every collective and copy, and which compute ran beside it.

compute       ████████      ████
all-gather.1      ██████████            hidden by the two kernels, exposed between them
exposed               ░░░░░░
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array, distinct
from slipstream.profile.intervals import Union
from slipstream.profile.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.profile.nesting import own_intervals
from slipstream.profile.profile import Profile


@dataclass(frozen=True)
class Exposures:
    """Collectives and copies as columns, and which compute ran beside them."""

    row: Array
    """of the event; on lanes where operations nest, one event may be several stretches"""
    kind: Array
    duration_ps: Array
    exposed_ps: Array
    aside: Array
    """for each pair of an aside and a kernel beside it: the aside, as an index here"""
    hider: Array
    """row of the kernel"""
    both_ps: Array
    """how long both ran"""


def exposures(profile: Profile, whole: bool = False) -> Exposures:
    """Every collective and copy that starts in a step, with its exposed time."""
    owner, start, duration = own_intervals(profile)
    kind = kinds(profile)[owner]
    device = profile.event_devices[owner]
    counted = kind != COMPUTE
    if not whole:
        counted &= (profile.steps.rows_of(profile) < len(profile.steps))[owner]
    parts = []
    for number in distinct(device[counted]).tolist():
        # Masks of all events are dear: with one device there is no need for one.
        own = device == number if len(profile.devices) > 1 else np.ones(1, bool)
        compute = np.flatnonzero(own & (kind == COMPUTE))
        talking = np.flatnonzero(own & (kind == COMMUNICATION))
        rows = np.flatnonzero(own & counted)
        flat = _flat(owner[compute], start[compute], duration[compute])
        spans = (start[talking], duration[talking])
        parts.append(_beside(owner[rows], kind[rows], start[rows], duration[rows], flat, spans))
    return _joined(parts)


Flat = tuple[Array, Array, Array]
"""(row, start, end) of stretches that don't overlap, in order"""


def _flat(rows: Array, start: Array, duration: Array) -> Flat:
    """Compute of one device with one kernel at a time: where two run, the one that began last."""
    if (np.diff(start) < 0).any():
        order = np.argsort(start, kind="stable")
        rows, start, duration = rows[order], start[order], duration[order]
    end = start + duration
    if (start[1:] >= end[:-1]).all():
        return rows, start, end
    from slipstream.profile.grouping import innermost

    # Few kernels overlap others: only those need a closer look.
    opens = np.concatenate(([True], start[1:] >= np.maximum.accumulate(end)[:-1]))
    cluster = np.cumsum(opens) - 1
    alone = np.bincount(cluster)[cluster] == 1
    some = np.flatnonzero(~alone)
    owner, begins, ends = innermost(np.zeros(len(some), np.int32), start[some], duration[some])
    rows = np.concatenate((rows[alone], rows[some[owner]]))
    start = np.concatenate((start[alone], begins))
    end = np.concatenate((end[alone], ends))
    order = np.argsort(start, kind="stable")
    return rows[order], start[order], end[order]


def _beside(
    row: Array,
    kind: Array,
    start: Array,
    duration: Array,
    flat: Flat,
    talking: tuple[Array, Array],
) -> Exposures:
    hider, opens, closes = flat
    end = start + duration
    first = np.searchsorted(closes, start, "right")
    count = np.maximum(np.searchsorted(opens, end, "left") - first, 0)
    aside = np.repeat(np.arange(len(row)), count)
    beside = np.arange(len(aside)) - np.repeat(np.cumsum(count) - count - first, count)
    both = np.minimum(closes[beside], end[aside]) - np.maximum(opens[beside], start[aside])
    hidden = np.bincount(aside, both, len(row)).astype(np.int64)
    copies = np.flatnonzero(kind == COPY)
    if len(copies) and len(talking[0]):
        # What communication hides of a copy is hidden too: the step waits for the communication.
        busy = Union.of(
            np.concatenate((opens, talking[0])), np.concatenate((closes - opens, talking[1]))
        )
        hidden[copies] = busy.covered(start[copies], end[copies])
    return Exposures(row, kind, duration, duration - hidden, aside, hider[beside], both)


def _joined(parts: list[Exposures]) -> Exposures:
    if not parts:
        empty = np.empty(0, np.int64)
        return Exposures(*(empty,) * 7)
    places = np.cumsum([0, *(len(part.row) for part in parts[:-1])]).tolist()
    columns = [
        (p.row, p.kind, p.duration_ps, p.exposed_ps, p.aside + place, p.hider, p.both_ps)
        for p, place in zip(parts, places, strict=True)
    ]
    return Exposures(*(np.concatenate(column) for column in zip(*columns, strict=True)))

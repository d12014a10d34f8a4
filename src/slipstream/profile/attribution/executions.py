"""Executions of a program: find where its schedule starts over.

A device runs the launches of an execution in schedule order, so a new execution begins with an
instruction of the entry computation that is not later in the schedule than the one before it:

    entry:   copy.1  cb_1  cb_14 ×8  cb_45      copy.1  cb_1 …
    rank:       1      1      -        45   │      1      1        a drop begins an execution

Instructions inside loops don't count (rank -), nor do graphs launched from inside loops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from slipstream.native import native
from slipstream.profile.events import Array, Rows, Table, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program

_GRAPH_LABEL = re.compile(r"^command_buffer(?:[._]([0-9]{1,18}))?$")

NO_RANK = -1


def graph_number(label: str) -> int | None:
    """The number in `command_buffer_14`; None for other labels."""
    found = _GRAPH_LABEL.match(label)
    return int(found.group(1) or 0) if found else None


@native("i64(i64*, b1*, i64*, i64, i64, i64*, i32*)")
def _count(rank, is_graph, launch, rows, alone, last, numbers):  # type: ignore[no-untyped-def]
    """Execution number of each ranked event, in launch order."""
    number = 0
    last_launch = np.int64(-1)
    for i in range(rows):
        which = 1 if is_graph[i] else 0
        again = rank[i] < last[which]
        if rank[i] == last[which] and launch[i] != last_launch:
            # An operation may launch several kernels, but a graph launch is one launch.
            again = which == 1 or alone == 1
        if again:
            number += 1
            last[0] = -1
            last[1] = -1
        last[which] = rank[i]
        last_launch = launch[i]
        numbers[i] = number
    return number + 1


def recorded_executions(profile: Profile, rows: Rows) -> Array | None:
    """Execution number of each event of one program on one device, if the profiler recorded it.

    XLA:CPU runs an execution's operations in any order, but records the run of each; a TPU records
    when executions began. GPU streams record neither: None.
    """
    events = profile.events
    if all(device.kind == "gpu" for device in profile.devices):
        return None
    lanes = [profile.lanes[i] for i in np.flatnonzero(np.bincount(events["lane"][rows]))]
    if any(lane.role == "stream" for lane in lanes):
        return None
    start, run = events["start_ps"][rows], events["correlation"][rows]
    if run.all():
        _, inverse = np.unique(run, return_inverse=True)
        first = np.full(inverse.max() + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, inverse, start)
        return first.argsort(kind="stable").argsort()[inverse].astype(np.int32)
    begun = _marked(profile, lanes[0].device, events.texts[int(events["program"][rows][0])])
    if not len(begun):
        return None
    place = np.searchsorted(begun, start, side="right") - 1
    return np.maximum(place, 0).astype(np.int32)


def _marked(profile: Profile, device: int | None, program: str) -> Array:
    """Start of each execution of a program, from the device's `modules` lane."""
    events = profile.host_events
    lanes = [i for i, x in enumerate(profile.lanes) if (x.role, x.device) == ("modules", device)]
    fits = np.array([text == program for text in events.texts], bool)
    rows = np.flatnonzero(np.isin(events["lane"], lanes) & fits[events["name"]])
    return np.sort(events["start_ps"][rows])


def execution_starts(program: Program | None, labels: Sequence[str], events: Table) -> Array:
    """The launch key (see `launch_keys`) at which each execution but the first begins.

    `events` belong to one program on one device.
    """
    from slipstream.profile.grouping import rows_ranked

    ranks, graphs = _ranks(program, labels, events)
    if events.tags is not None and events.is_tagged("op"):
        rows = rows_ranked(events.tags.of, ranks[events.tagged("op")])
    else:
        rows = rows_ranked(events["op"], ranks)
    if not len(rows):
        return np.empty(0, np.int64)
    keys = launch_keys(events)[rows]
    order = np.argsort(keys, kind="stable")
    rows, keys = rows[order], keys[order]
    label = events.cells("op", rows)
    launch = events["correlation"][rows] if has_launches(events) else rows
    alone = len(distinct(label)) == 1
    numbers = np.empty(len(rows), np.int32)
    last = np.full(2, -1, np.int64)
    _count(ranks[label], graphs[label], launch, len(rows), int(alone), last, numbers)
    return keys[np.flatnonzero(np.diff(numbers)) + 1]


def launch_keys(events: Table) -> Array:
    """Keys that sort events in launch order: their launch, or their start if that is unknown.

    Streams run concurrently, but one thread launched all their work, in schedule order.
    """
    return events["correlation"] if has_launches(events) else events["start_ps"]


def has_launches(events: Table) -> bool:
    """Whether the profiler recorded launch ids."""
    launches = events["correlation"]
    return bool(launches[:1].any() or launches.any())


def used_texts(events: Table, column: str) -> list[int]:
    """Indices of the texts that occur in a column."""
    from slipstream.profile.grouping import group_counts

    if events.tags is not None and events.is_tagged(column):
        held = events.tagged(column)[events.tags.firsts >= 0]
        return sorted(set(held.tolist()))
    counts = group_counts(events[column], len(events.texts))
    found: list[int] = np.flatnonzero(counts).tolist()
    return found


def _ranks(program: Program | None, labels: Sequence[str], events: Table) -> tuple[Array, Array]:
    """(position in the entry's schedule or NO_RANK, whether it is a graph) of each label."""
    ranks = np.full(len(labels), NO_RANK, np.int64)
    graphs = np.zeros(len(labels), bool)
    present = used_texts(events, "op")
    entry = {i.name: i.position for i in program.entry.instructions} if program else {}
    for index in present:
        name = labels[index]
        number = graph_number(name)
        if number is not None:
            graphs[index] = True
            ranks[index] = number
        elif program is not None and name in program:
            start = program.starter(name)
            ranks[index] = entry.get(start.name if start else name, NO_RANK)
    if program is None and not graphs.any():
        _rank_unknown(ranks, present, events)
    if graphs.any():
        _leave_out_loops(ranks, graphs, _launch_counts(events, len(labels)))
    return ranks, graphs


def _launch_counts(events: Table, size: int) -> Array:
    """How often each label was launched; the kernels of one graph launch count once."""
    from slipstream.profile.grouping import group_pairs

    _, firsts = group_pairs(events["correlation"], events["op"])
    return np.bincount(events["op"][firsts], minlength=size)


def _rank_unknown(ranks: Array, present: list[int], events: Table) -> None:
    """Without the program, take the rarest labels for the entry, in order of appearance."""
    counts = np.bincount(events["op"], minlength=len(ranks))
    counted = [i for i in present if i]
    if not counted:
        return
    least = min(int(counts[i]) for i in counted)
    order = np.argsort(launch_keys(events), kind="stable")
    label = events["op"][order]
    for index in counted:
        if counts[index] == least:
            ranks[index] = int(np.argmax(label == index))


def _leave_out_loops(ranks: Array, graphs: Array, launches: Array) -> None:
    """Drop graphs launched twice as often as the rarest entry work: a loop launches them."""
    ranked = ranks != NO_RANK
    if not (ranked & graphs).any():
        return
    least = launches[ranked].min()
    ranks[ranked & graphs & (launches >= 2 * least)] = NO_RANK

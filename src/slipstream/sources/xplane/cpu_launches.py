"""Which host call launched each run of XLA:CPU: the profiler numbers runs, and calls not at all.

    python     ▐call▌ ▐call▌                 ▐call▌
    client              ████████ ███████            ███████     runs, each after its own call

Runs begin in the order of their calls, so each has the last call before it that no later run has.
"""

from __future__ import annotations

import re

import numpy as np

from slipstream.profile.events import Array, Table

_CALL = re.compile(r"Executable::ExecuteHelper")


def with_launches(events: Table, host_events: Table) -> tuple[Table, Table]:
    """Both tables with the same number, from 1, for a run's operations and the call of the run."""
    runs = events["correlation"]
    if not len(runs) or not runs.all():
        return events, host_events
    _, first, of = np.unique(runs, return_index=True, return_inverse=True)
    start = events["start_ps"][first]
    np.minimum.at(start, of, events["start_ps"])
    order = start.argsort(kind="stable")
    number = order.argsort(kind="stable") + 1
    launched = np.zeros(len(host_events), np.int64)
    calls = _calls(host_events)
    rows, which = _pairs(host_events["start_ps"][calls], start[order])
    launched[calls[rows]] = which + 1
    return events.replace(correlation=number[of]), host_events.replace(correlation=launched)


def _calls(host_events: Table) -> Array:
    """Rows of the calls that launch runs, in order of time."""
    is_call = np.array([_CALL.search(text) is not None for text in host_events.texts], bool)
    rows = np.flatnonzero(is_call[host_events["name"]])
    return rows[np.argsort(host_events["start_ps"][rows], kind="stable")]


def _pairs(calls: Array, runs: Array) -> tuple[Array, Array]:
    """(index of the call, index of the run) of each run that has a call; both in order of time."""
    latest = np.searchsorted(calls, runs, side="right") - 1
    # No call has two runs: from the last run on, each takes what the later ones left.
    places = np.arange(len(runs))
    free = np.minimum.accumulate((latest - places)[::-1])[::-1] + places
    found = np.flatnonzero(free >= 0)
    return free[found], found

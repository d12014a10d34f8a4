"""Where the time of a range went: by kind, and by op."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.profile.timeline.nesting import self_durations
from slipstream.serve.labels import EventNames
from slipstream.serve.scene import KINDS, Layer, Scene

TOP = 14


@dataclass(frozen=True)
class Totals:
    """Time and number of the events of each group in a window."""

    time_ps: Array
    count: Array


@inner
def _visible(start, duration, from_ps, to_ps):  # type: ignore[no-untyped-def]
    return min(start + duration, to_ps) - max(start, from_ps)


@native("i64(i64*, i64*, i64*, i32*, i64*, i64, i64, i64, i64, i64, f64*, i64*)")
def _add(  # type: ignore[no-untyped-def]
    starts, durations, own, groups, order, is_ordered, low, high, from_ps, to_ps, times, counts
):
    """Add up the events of one track in a window, counting only the part inside it."""
    for at in range(low, high):
        if starts[at] >= to_ps:
            break
        seen = _visible(starts[at], durations[at], from_ps, to_ps)
        if seen < 0 or (seen == 0 and durations[at] > 0):
            continue
        row = order[at] if is_ordered else at
        group = groups[row]
        counts[group] += 1
        if seen == durations[at]:
            times[group] += own[row]
        else:
            times[group] += own[row] * (seen / durations[at])
    return 0


def totals(layer: Layer, from_ps: int, to_ps: int) -> Totals:
    """Device time of each group; nested operations count their own time."""
    tracks, names = layer.pyramid.tracks, layer.names
    groups = names.groups
    size = len(names.firsts) if isinstance(names, EventNames) else len(layer.table.texts)
    times, counts = np.zeros(max(size, 1)), np.zeros(max(size, 1), np.int64)
    own = np.ascontiguousarray(self_durations(layer.member.profile))
    order = np.zeros(1, np.int64) if tracks.order is None else tracks.order
    for track in range(len(tracks)):
        low, high = int(tracks.bounds[track]), int(tracks.bounds[track + 1])
        # Ends are in order like starts, so that earlier events can be skipped.
        begun = low + int(np.searchsorted(tracks.start_ps[low:high], from_ps))
        while begun > low and tracks.start_ps[begun - 1] + tracks.duration_ps[begun - 1] > from_ps:
            begun -= 1
        _add(np.ascontiguousarray(tracks.start_ps), np.ascontiguousarray(tracks.duration_ps), own,
             groups, order, int(tracks.order is not None), begun, high, from_ps, to_ps,
             times, counts)  # fmt: skip
    return Totals(times, counts)


def summary(scene: Scene, from_us: float, to_us: float) -> dict[str, Any]:
    """For each profile: time by kind, and the ops with the most time.

    Times are sums over streams, which may run at once, and means over devices.
    """
    found = []
    for layer in scene.layers:
        if not layer.is_host and isinstance(layer.names, EventNames):
            window = (scene.ps(layer, from_us), scene.ps(layer, to_us))
            found.append(_member(layer, layer.names, totals(layer, *window)))
    return {"from_us": from_us, "to_us": to_us, "members": found}


def _member(layer: Layer, names: EventNames, found: Totals) -> dict[str, Any]:
    profile = layer.member.profile
    devices = max(1, len(set(profile.device_of_lane[layer.pyramid.tracks.lane].tolist())))
    per_device = devices * 1e6
    firsts = np.maximum(names.firsts, 0)
    kind = profile.event_kinds[firsts]
    by_kind = np.bincount(kind, found.time_ps, len(KINDS))
    texts = [names.text(g) if names.firsts[g] >= 0 else "" for g in range(len(firsts))]
    ops: dict[tuple[str, str], list[int]] = {}
    for group in np.flatnonzero(found.count).tolist():
        program = profile.events.text("program", int(firsts[group]))
        ops.setdefault((program, texts[group]), []).append(group)
    rows = [(float(found.time_ps[groups].sum()), groups) for groups in ops.values()]
    rows.sort(key=lambda row: -row[0])
    return {
        "name": layer.member.name,
        "devices": devices,
        "by_kind": {
            name: by_kind[number] / per_device for number, name in enumerate(KINDS[:3])
        },
        "events": int(found.count.sum()),
        "ops": [_op(names, row, kind, found, per_device) for row in rows[:TOP]],
        "more": max(0, len(rows) - TOP),
    }  # fmt: skip


def _op(
    names: EventNames, row: tuple[float, list[int]], kind: Array, found: Totals, scale: float
) -> dict[str, Any]:
    time_ps, groups = row
    main = max(groups, key=lambda group: found.time_ps[group])
    words = names.label(main)
    return {
        "name": names.text(main),
        "readable": words.description,
        "kind": KINDS[int(kind[main])],
        "us": time_ps / scale,
        "source": words.source,
        "description": words.scope,
    }

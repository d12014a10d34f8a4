"""Search: the slices whose name, scope, source line or description contains a text.

If there are too many, slices in the window come first, then the longest.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.serve.scene import Layer, Scene

MAX_HITS = 200
_IN_WINDOW = 61
"""the bit that marks keys of slices in the window"""


@inner
def _sink(keys, places, used):  # type: ignore[no-untyped-def]
    """Restore a min-heap whose first entry has changed."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= used:
            return 0
        if child + 1 < used and keys[child + 1] < keys[child]:
            child += 1
        if keys[at] <= keys[child]:
            return 0
        keys[at], keys[child] = keys[child], keys[at]
        places[at], places[child] = places[child], places[at]
        at = child


@native("i64(i64*, i64*, i32*, i64*, i64, b1*, i64, i64, i64, i64*, i64*, i64)")
def _longest(  # type: ignore[no-untyped-def]
    starts, durations, groups, order, is_ordered, wanted, rows, from_ps, to_ps, keys, places, most
):
    """Find the longest slices of wanted groups, those in a window first; return how many match.

    `keys` must be -1 at first. Slices in the window count as if they were far longer.
    """
    found = 0
    for at in range(rows):
        row = order[at] if is_ordered else at
        if not wanted[groups[row]]:
            continue
        found += 1
        key = durations[at]
        if starts[at] < to_ps and starts[at] + durations[at] > from_ps:
            key += np.int64(1) << _IN_WINDOW
        if key > keys[0]:
            keys[0] = key
            places[0] = at
            _sink(keys, places, most)
    return found


def search(scene: Scene, text: str, from_us: float, to_us: float) -> dict[str, Any]:
    """Hits in order of time, the index of the best, and the total number."""
    words = [word for word in text.lower().split() if word]
    total, rows = 0, []
    for layer in scene.all_layers if words else ():
        window = (scene.ps(layer, from_us), scene.ps(layer, to_us))
        count, keys, places = _matches(layer, words, *window)
        total += count
        rows += [(key, layer, place) for key, place in zip(keys, places, strict=True)]
    # Slices in the window first, then device events, hosts and structure, then the longest.
    rows.sort(key=lambda row: (-(row[0] >> _IN_WINDOW), _place(row[1]), -row[0]))
    hits = [_hit(scene, layer, place) for _, layer, place in rows[:MAX_HITS]]
    in_time = sorted(hits, key=lambda hit: hit["start_us"])
    return {"total": total, "best": in_time.index(hits[0]) if hits else 0, "hits": in_time}


def _place(layer: Layer) -> int:
    return 2 if layer.is_structure else int(layer.is_host)


def _matches(
    layer: Layer, words: list[str], from_ps: int, to_ps: int
) -> tuple[int, list[int], list[int]]:
    """(number of matches, keys and places of the best)."""
    texts = layer.names.searched
    wanted = np.array([all(word in text for word in words) for text in texts], np.bool_)
    if not wanted.any():
        return 0, [], []
    tracks = layer.pyramid.tracks
    keys, places = np.full(MAX_HITS, -1, np.int64), np.zeros(MAX_HITS, np.int64)
    order: Array = np.zeros(1, np.int64) if tracks.order is None else tracks.order
    count = _longest(
        np.ascontiguousarray(tracks.start_ps), np.ascontiguousarray(tracks.duration_ps),
        layer.names.groups, order, int(tracks.order is not None), wanted, len(tracks.start_ps),
        from_ps, to_ps, keys, places, MAX_HITS,
    )  # fmt: skip
    kept = keys >= 0
    return count, keys[kept].tolist(), places[kept].tolist()


def _hit(scene: Scene, layer: Layer, place: int) -> dict[str, Any]:
    tracks = layer.pyramid.tracks
    track = int(np.searchsorted(tracks.bounds, place, "right")) - 1
    row = int(tracks.rows(np.array([place]))[0])
    group = int(layer.names.groups[row])
    return {
        "lane": scene.id_of(layer, int(tracks.lane[track])),
        "depth": int(tracks.depth[track]),
        "start_us": float(scene.us(layer, tracks.start_ps[place : place + 1])[0]),
        "duration_us": int(tracks.duration_ps[place]) / 1e6,
        "name": layer.names.text(group),
        "readable": layer.names.readable(group),
    }

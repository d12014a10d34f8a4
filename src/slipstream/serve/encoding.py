"""Slices as one binary message to the viewer.

    length of the header, 8 bytes │ header: JSON, padded to 8 bytes │ columns, one after another

The header is {names, readable (what a name does, where that is known), descriptions (of the names),
kinds, lanes: [[lane, rows]…], steps}; the columns are those of `COLUMNS`, each over the rows of all
lanes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np

from slipstream.profile.events import Array
from slipstream.serve.scene import KINDS, STRUCTURE_KINDS, Layer, Scene, SceneLane
from slipstream.serve.tiles import Tiles, tiles

COLUMNS = (("start", "<f8"), ("duration", "<f8"), ("name", "<i4"), ("count", "<i4"),
           ("busy", "<f4"), ("kind", "<u1"), ("depth", "<u1"))  # fmt: skip
MAX_PIXELS = 8192
MAX_STEPS = 400


def slices(
    scene: Scene, from_us: float, to_us: float, pixels: int, lanes: Iterable[int],
    tops: Iterable[int] = (),
) -> bytes:  # fmt: skip
    """The slices of some lanes in a window; of the lanes in `tops`, only the first track."""
    pixels = max(1, min(pixels, MAX_PIXELS))
    names = _Names()
    parts: list[dict[str, Array]] = []
    counts: list[list[int]] = []
    for layer, chosen in _by_layer(scene, lanes, tops):
        tracks = np.concatenate([own for _, own in chosen])
        window = (scene.ps(layer, from_us), scene.ps(layer, to_us))
        found = tiles(layer.pyramid, tracks, *window, pixels)
        parts.append(_columns(scene, layer, found, names))
        sizes = np.bincount(found.track, minlength=len(layer.pyramid.tracks))
        counts += [[number, int(sizes[own].sum())] for number, own in chosen]
    header = {
        "names": names.texts,
        "readable": names.readable,
        "descriptions": names.descriptions,
        "kinds": KINDS + STRUCTURE_KINDS,
        "lanes": counts,
        "steps": scene.steps(from_us, to_us, MAX_STEPS),
    }
    return _packed(header, parts)


def _by_layer(
    scene: Scene, lanes: Iterable[int], tops: Iterable[int]
) -> list[tuple[Layer, list[tuple[int, Array]]]]:
    """By layer, the requested lanes and the tracks to show of each."""
    only_top = set(tops)
    known = scene.all_lanes
    wanted = sorted({*lanes, *only_top} & set(range(len(known))))
    found: dict[int, tuple[Layer, list[tuple[int, Array]]]] = {}
    for number in wanted:
        lane: SceneLane = known[number]
        own = lane.tracks[:1] if number in only_top else lane.tracks
        found.setdefault(id(lane.layer), (lane.layer, []))[1].append((number, own))
    return list(found.values())


def _columns(scene: Scene, layer: Layer, found: Tiles, names: _Names) -> dict[str, Array]:
    groups = layer.names.groups[layer.pyramid.tracks.rows(found.place)]
    span = np.maximum(found.duration_ps, 1)
    return {
        "start": scene.us(layer, found.start_ps),
        "duration": found.duration_ps / 1e6,
        "name": names.numbers(layer, groups),
        "count": found.count,
        "busy": np.minimum(found.busy_ps / span, 1.0),
        "kind": _kinds(layer, found),
        "depth": layer.pyramid.tracks.depth[found.track],
    }


def _kinds(layer: Layer, found: Tiles) -> Array:
    if not layer.is_structure:
        return found.kind
    from slipstream.serve.structure import kind_numbers

    return kind_numbers(layer, found.kind, layer.pyramid.tracks.lane[found.track])


class _Names:
    """The texts of one message, each once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.readable: list[str] = []
        self.descriptions: list[str] = []

    def numbers(self, layer: Layer, groups: Array) -> Array:
        used, which = np.unique(groups, return_inverse=True)
        first = len(self.texts)
        self.texts += [layer.names.text(group) for group in used.tolist()]
        self.readable += [layer.names.readable(group) for group in used.tolist()]
        self.descriptions += [layer.names.description(group) for group in used.tolist()]
        return which + first


def _packed(header: object, parts: list[dict[str, Array]]) -> bytes:
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    pieces = [len(text).to_bytes(8, "little"), text]
    for name, kind in COLUMNS:
        for part in parts:
            pieces.append(part[name].astype(kind).tobytes())
    return b"".join(pieces)

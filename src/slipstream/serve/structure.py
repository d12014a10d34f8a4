"""Lanes of structure above a device's streams: module, phase, loop turn, scope and source line.

They need every program's labels, for which the first view does not wait: the page asks for them
once it has drawn the streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from slipstream.analyses.structure import LEVELS, PATH, PHASE, Level, Structure, structure
from slipstream.profile.events import Array, Table
from slipstream.profile.semantics.names import PHASES
from slipstream.serve.labels import Names
from slipstream.serve.scene import KINDS, STRUCTURE_KINDS, Layer, Member, SceneLane
from slipstream.serve.tiles import pyramid
from slipstream.serve.tracks import Tracks

MAX_DEVICES = 64
"""devices whose structure is shown; the others run the same program"""


class SpanNames(Names):
    """The texts of spans; a span's text is its group."""

    def __init__(self, table: Table, text: Array, found: Structure) -> None:
        super().__init__(table)
        self.of, self.found = text, found

    @cached_property
    def groups(self) -> Array:
        return np.ascontiguousarray(self.of, np.int32)

    def text(self, group: int) -> str:
        return self.found.texts[group]

    def description(self, group: int) -> str:
        said = self.found.descriptions[group]
        return said if said != self.found.texts[group] else ""

    @cached_property
    def searched(self) -> list[str]:
        pairs = zip(self.found.texts, self.found.descriptions, strict=True)
        return [f"{text}\n{said}".lower() for text, said in pairs]


def structure_lanes(member: Member, group: dict[int, tuple[str, bool]]) -> Iterator[SceneLane]:
    """The lanes of a profile's devices; `group` has the name and state of each device's group."""
    for device in list(group)[:MAX_DEVICES]:
        found = structure(member.profile, device)
        if found.levels:
            layer = _layer(member, found)
            tracks = layer.pyramid.tracks
            for number in sorted(set(tracks.lane.tolist())):
                own = np.flatnonzero(tracks.lane == number)
                yield SceneLane(layer, number, own, *group[device], LEVELS[number])


def _layer(member: Member, found: Structure) -> Layer:
    """All levels of a device as tracks; the lane of a track is its level's number."""
    levels = sorted(found.levels, key=lambda one: (LEVELS.index(one.name), one.depth))
    start, duration, text = (
        np.concatenate([getattr(one, name) for one in levels])
        for name in ("start_ps", "duration_ps", "text")
    )
    kind = np.concatenate([_kinds(one) for one in levels])
    bounds = np.cumsum([0, *map(len, levels)])
    lanes = np.array([LEVELS.index(one.name) for one in levels], np.int64)
    depths = np.array([one.depth for one in levels], np.int64)
    tracks = Tracks(start, duration, kind, None, bounds, lanes, depths)
    names = SpanNames(member.profile.events, text, found)
    return Layer(member, member.profile.events, names, pyramid(tracks), False, True)


def _kinds(level: Level) -> Array:
    """Colours: of phases, one each; other levels are told apart by their names."""
    if level.kind is not None:
        return level.kind.astype(np.uint8)
    if level.name != PHASE:
        return np.zeros(len(level), np.uint8)
    return np.minimum(level.phase, len(PHASES) - 2).astype(np.uint8)


def kind_numbers(layer: Layer, kind: Array, lane: Array) -> Array:
    """The viewer's kind of each slice of a layer: an index into KINDS and STRUCTURE_KINDS."""
    if not layer.is_structure:
        return kind
    plain = len(KINDS) + STRUCTURE_KINDS.index("structure")
    of_phase = np.where(lane == LEVELS.index(PHASE), len(KINDS) + kind, plain)
    return np.where(lane == LEVELS.index(PATH), kind, of_phase)

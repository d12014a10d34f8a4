"""Tracks, tiles, totals and hits by plain Python: slow, and easy to believe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.serve.scene import Layer
from slipstream.serve.tiles import KINDS, pixel_ps
from slipstream.serve.tracks import HANDOVER_PS


@dataclass(frozen=True)
class Slice:
    row: int
    start: int
    duration: int
    kind: int

    @property
    def end(self) -> int:
        return self.start + self.duration


@dataclass(frozen=True)
class Tile:
    start: int
    duration: int
    row: int
    kind: int
    count: int
    busy: int


def plain_tracks(slices: Sequence[Slice], is_stream: bool) -> list[list[Slice]]:
    """The tracks of one lane: each slice on the first where it follows the last."""
    overlap = HANDOVER_PS if is_stream else 0
    tracks: list[list[Slice]] = []
    for one in sorted(slices, key=lambda s: (s.start, -s.duration, s.row)):
        for track in tracks:
            end = max(s.end for s in track)
            if one.start >= end - overlap and one.end >= end:
                track.append(one)
                break
        else:
            tracks.append([one])
    return tracks


def plain_tiles(track: Sequence[Slice], from_ps: int, to_ps: int, pixels: int) -> list[Tile]:
    """What one track shows in a window."""
    pixel = pixel_ps(from_ps, to_ps, pixels)
    blocks: list[list[Slice]] = []
    last = None
    for one in track:
        in_sight = one.start >= from_ps or one.end > from_ps
        if not in_sight or one.start >= to_ps:
            continue
        place = None if one.duration >= pixel else (one.start - from_ps) // pixel
        if place is not None and place == last:
            blocks[-1].append(one)
        else:
            blocks.append([one])
        last = place
    return [_tile(block) for block in blocks]


def _tile(block: Sequence[Slice]) -> Tile:
    longest = max(block, key=lambda s: s.duration)
    times = [sum(s.duration for s in block if s.kind == kind) for kind in range(KINDS)]
    return Tile(
        block[0].start,
        max(s.end for s in block) - block[0].start,
        longest.row,
        times.index(max(times)),
        len(block),
        sum(times),
    )


def plain_totals(layer: Layer, from_ps: int, to_ps: int) -> dict[int, tuple[float, int]]:
    """(time, events) of each group in a window, where no events nest."""
    table, found = layer.table, {}
    for row in range(len(table)):
        start, duration = int(table["start_ps"][row]), int(table["duration_ps"][row])
        seen = min(start + duration, to_ps) - max(start, from_ps)
        if start < to_ps and (seen > 0 or (seen == 0 and duration == 0)):
            group = int(layer.names.groups[row])
            time, count = found.get(group, (0.0, 0))
            found[group] = (time + seen, count + 1)
    return found

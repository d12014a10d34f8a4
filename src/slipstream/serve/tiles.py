"""Slices of a window, as wide as they are seen: what one answer to the viewer holds.

Slices of at least a pixel stay themselves. Of those narrower, all that begin in the same pixel of
a track become one block, called after the longest of them and of the kind with the most time:

    track   ▏▏ ▏▏▏█████████████ ▏▏▏ ▏▏▏▏▏▏
    pixels  ┆       ┆       ┆       ┆       ┆
    tiles   ▓▓▓▓▓▓█████████████ ▓▓▓ ▓▓▓▓▓▓         blocks of 5, 3 and 6

Where a pixel holds thousands, what is known of 64 and of 4096 slices together is taken, so that the
time an answer takes hangs on the pixels and not on the events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.serve.tracks import Tracks

KINDS = 4
"""compute, communication, copy, host"""
FANS = (64, 4096)
"""slices that one entry of a level stands for"""
_COLUMNS = 6


@dataclass(frozen=True)
class Tiles:
    """Slices and blocks, a row each, track after track."""

    track: Array
    start_ps: Array
    duration_ps: Array
    """of a block: from its first slice's start to its last one's end"""
    place: Array
    """of the slice; of a block, the place of its longest"""
    kind: Array
    count: Array
    busy_ps: Array
    """sum of the slices' durations"""

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True)
class Pyramid:
    """Tracks, with what groups of their slices have in common."""

    tracks: Tracks
    busy: tuple[Array, ...]
    """for each level, time by kind of each group"""
    longest: tuple[Array, ...]
    """for each level, the place of each group's longest slice"""


@native("i64(i64*, u8*, i64, i64, i64*, i64*)")
def _level(durations, kinds, rows, fan, busy, longest):  # type: ignore[no-untyped-def]
    """Time by kind and the longest slice of each whole group of `fan` slices."""
    groups = rows // fan
    for group in range(groups):
        best = group * fan
        for kind in range(KINDS):
            busy[group * KINDS + kind] = 0
        for row in range(group * fan, (group + 1) * fan):
            busy[group * KINDS + kinds[row]] += durations[row]
            if durations[row] > durations[best]:
                best = row
        longest[group] = best
    return groups


def pyramid(tracks: Tracks) -> Pyramid:
    """What an answer needs, computed once."""
    busy, longest = [], []
    durations, kinds = (np.ascontiguousarray(c) for c in (tracks.duration_ps, tracks.kind))
    for fan in FANS:
        groups = len(durations) // fan
        busy.append(np.zeros(max(groups, 1) * KINDS, np.int64))
        longest.append(np.zeros(max(groups, 1), np.int64))
        _level(durations, kinds, len(durations), fan, busy[-1], longest[-1])
    return Pyramid(tracks, tuple(busy), tuple(longest))


@inner
def _first_after(values, low, high, limit):  # type: ignore[no-untyped-def]
    """The first place from `low` whose value is not below the limit; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _close(out, found, size, sums):  # type: ignore[no-untyped-def]
    """Finish the open block: its kind is that with the most time."""
    best = 0
    total = sums[0]
    for kind in range(1, KINDS):
        total += sums[kind]
        if sums[kind] > sums[best]:
            best = kind
    out[3 * size + found] = best
    out[5 * size + found] = total
    return 0


@inner
def _group_fits(starts, longest, durations, at, high, fan, origin, pixel, bucket):  # type: ignore[no-untyped-def]
    """Whether the group that begins at a place lies in one pixel, all of it narrower."""
    if at % fan != 0 or at + fan > high:
        return False
    if durations[longest[at // fan]] >= pixel:
        return False
    return (starts[at + fan - 1] - origin) // pixel == bucket


@native("i64(i64*, i64*, u8*, i64*, i64*, i64*, i64*, i64, i64, i64, i64, i64, i64*, i64*, i64)")
def _tiles(  # type: ignore[no-untyped-def]
    starts, durations, kinds, busy0, longest0, busy1, longest1,
    low, high, from_ps, to_ps, pixel, sums, out, size,
):  # fmt: skip
    """Tiles of one track into columns of `size` rows; how many, or -1 where they don't fit."""
    found = -1
    open_bucket = np.int64(-(1 << 62))
    at = _first_after(starts, low, high, from_ps)
    # What began before and still runs is to be seen too; ends are in order like starts.
    while at > low and starts[at - 1] + durations[at - 1] > from_ps:
        at -= 1
    high = _first_after(starts, at, high, to_ps)
    while at < high:
        bucket = (starts[at] - from_ps) // pixel
        wide = durations[at] >= pixel
        if wide or bucket != open_bucket:
            if found >= 0:
                _close(out, found, size, sums)
            found += 1
            if found == size:
                return -1
            open_bucket = np.int64(-(1 << 62)) if wide else bucket
            out[found] = starts[at]
            out[1 * size + found] = 0
            out[2 * size + found] = at
            out[4 * size + found] = 0
            for kind in range(KINDS):
                sums[kind] = 0
        best = at
        step = 1
        if not wide and _group_fits(
            starts, longest1, durations, at, high, 4096, from_ps, pixel, bucket
        ):
            step = 4096
            best = longest1[at // 4096]
            for kind in range(KINDS):
                sums[kind] += busy1[at // 4096 * KINDS + kind]
        elif not wide and _group_fits(
            starts, longest0, durations, at, high, 64, from_ps, pixel, bucket
        ):
            step = 64
            best = longest0[at // 64]
            for kind in range(KINDS):
                sums[kind] += busy0[at // 64 * KINDS + kind]
        else:
            sums[kinds[at]] += durations[at]
        if durations[best] > durations[out[2 * size + found]]:
            out[2 * size + found] = best
        last = at + step - 1
        end = starts[last] + durations[last]
        out[1 * size + found] = max(out[1 * size + found], end - out[found])
        out[4 * size + found] += step
        at += step
    if found >= 0:
        _close(out, found, size, sums)
    return found + 1


def tiles(source: Pyramid, chosen: Array, from_ps: int, to_ps: int, pixels: int) -> Tiles:
    """The slices of some tracks between two times, on so many pixels."""
    tracks = source.tracks
    pixel = pixel_ps(from_ps, to_ps, pixels)
    columns = (tracks.start_ps, tracks.duration_ps, tracks.kind)
    plain = [np.ascontiguousarray(column) for column in columns]
    levels = [source.busy[0], source.longest[0], source.busy[1], source.longest[1]]
    sums = np.zeros(KINDS, np.int64)
    parts = []
    # A pixel holds two at the most: a block, and the wide slice after it.
    size = 2 * pixels + 8
    out = np.empty(_COLUMNS * size, np.int64)
    for track in chosen.tolist():
        low, high = int(tracks.bounds[track]), int(tracks.bounds[track + 1])
        while True:
            window = (low, high, from_ps, to_ps, pixel)
            found = _tiles(*plain, *levels, *window, sums, out, size)
            if found >= 0:
                break
            size *= 4
            out = np.empty(_COLUMNS * size, np.int64)
        parts.append(out.reshape(_COLUMNS, size)[:, :found].copy())
    whole = np.concatenate(parts, axis=1) if parts else np.empty((_COLUMNS, 0), np.int64)
    of = np.repeat(chosen, [part.shape[1] for part in parts])
    return Tiles(of, whole[0], whole[1], whole[2], whole[3], whole[4], whole[5])


def pixel_ps(from_ps: int, to_ps: int, pixels: int) -> int:
    """How long a pixel is; never less than a picosecond."""
    return max(1, -(-(to_ps - from_ps) // max(1, pixels)))

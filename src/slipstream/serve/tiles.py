"""The slices of a window, merged where they are narrower than a pixel.

Slices of at least a pixel stay as they are. Narrower ones that start in the same pixel of a track
become one block, named after the longest of them and of the kind with the most time:

    track   ▏▏ ▏▏▏█████████████ ▏▏▏ ▏▏▏▏▏▏
    pixels  ┆       ┆       ┆       ┆       ┆
    tiles   ▓▓▓▓▓▓█████████████ ▓▓▓ ▓▓▓▓▓▓         blocks of 5, 3 and 6

Sums over 64 and 4096 slices are computed beforehand, so that the time for an answer depends on the
pixels and not on the events.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.serve.tracks import Tracks

KINDS = 4
"""compute, communication, copy, host"""
GROUP, LARGE_GROUP = 64, 4096
"""slices in one group of each level"""
START, DURATION, PLACE, KIND, COUNT, BUSY = range(6)
"""columns that native code fills, of `size` rows each"""
_COLUMNS = 6
_NO_PIXEL = -(1 << 62)


@dataclass(frozen=True)
class Tiles:
    """Slices and blocks, one row each, track after track."""

    track: Array
    start_ps: Array
    duration_ps: Array
    """of a block: from the start of its first slice to the end of its last"""
    place: Array
    """place of the slice; of a block, of its longest slice"""
    kind: Array
    count: Array
    busy_ps: Array
    """sum of the slices' durations"""

    def __len__(self) -> int:
        return len(self.track)


@dataclass(frozen=True)
class Pyramid:
    """Tracks, with sums over groups of their slices."""

    tracks: Tracks
    busy: tuple[Array, ...]
    """for each level, the time by kind of each group"""
    longest: tuple[Array, ...]
    """for each level, the place of each group's longest slice"""


@native("i64(i64*, u8*, i64, i64, i64*, i64*)")
def _level(durations, kinds, rows, fan, busy, longest):  # type: ignore[no-untyped-def]
    """Sum time by kind, and find the longest slice, of each whole group of `fan` slices."""
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
    """The sums over groups, computed once."""
    busy, longest = [], []
    durations, kinds = (np.ascontiguousarray(c) for c in (tracks.duration_ps, tracks.kind))
    for fan in (GROUP, LARGE_GROUP):
        groups = len(durations) // fan
        busy.append(np.zeros(max(groups, 1) * KINDS, np.int64))
        longest.append(np.zeros(max(groups, 1), np.int64))
        _level(durations, kinds, len(durations), fan, busy[-1], longest[-1])
    return Pyramid(tracks, tuple(busy), tuple(longest))


@inner
def _first_after(values, low, high, limit):  # type: ignore[no-untyped-def]
    """The first place from `low` whose value is at least the limit; `high` if there is none."""
    while low < high:
        middle = (low + high) // 2
        if values[middle] < limit:
            low = middle + 1
        else:
            high = middle
    return low


@inner
def _close(out, found, size, sums):  # type: ignore[no-untyped-def]
    """Finish the open block: its kind is the one with the most time."""
    best = 0
    total = sums[0]
    for kind in range(1, KINDS):
        total += sums[kind]
        if sums[kind] > sums[best]:
            best = kind
    out[KIND * size + found] = best
    out[BUSY * size + found] = total
    return 0


@inner
def _open(out, found, size, start, place, sums):  # type: ignore[no-untyped-def]
    """Start a slice or block."""
    out[START * size + found] = start
    out[DURATION * size + found] = 0
    out[PLACE * size + found] = place
    out[COUNT * size + found] = 0
    for kind in range(KINDS):
        sums[kind] = 0
    return 0


@inner
def _add_group(sums, busy, group):  # type: ignore[no-untyped-def]
    """Add the time of a whole group to the open block."""
    for kind in range(KINDS):
        sums[kind] += busy[group * KINDS + kind]
    return 0


@inner
def _group_fits(starts, longest, durations, at, high, fan, origin, pixel, own_pixel):  # type: ignore[no-untyped-def]
    """Whether the group that starts at a place lies in one pixel, with no slice as wide."""
    if at % fan != 0 or at + fan > high:
        return False
    if durations[longest[at // fan]] >= pixel:
        return False
    return (starts[at + fan - 1] - origin) // pixel == own_pixel


@native("i64(i64*, i64*, u8*, i64*, i64*, i64*, i64*, i64, i64, i64, i64, i64, i64*, i64*, i64)")
def _tiles(  # type: ignore[no-untyped-def]
    starts, durations, kinds, busy0, longest0, busy1, longest1,
    low, high, from_ps, to_ps, pixel, sums, out, size,
):  # fmt: skip
    """Write the tiles of one track into columns of `size` rows; return how many, -1 if too many."""
    found = -1
    open_pixel = np.int64(_NO_PIXEL)
    at = _first_after(starts, low, high, from_ps)
    # Earlier slices that still run are visible, too; ends are in order like starts.
    while at > low and starts[at - 1] + durations[at - 1] > from_ps:
        at -= 1
    high = _first_after(starts, at, high, to_ps)
    while at < high:
        own_pixel = (starts[at] - from_ps) // pixel
        wide = durations[at] >= pixel
        if found < 0 or wide or own_pixel != open_pixel:
            if found >= 0:
                _close(out, found, size, sums)
            found += 1
            if found == size:
                return -1
            open_pixel = np.int64(_NO_PIXEL) if wide else own_pixel
            _open(out, found, size, starts[at], at, sums)
        best = at
        step = 1
        if not wide and _group_fits(
            starts, longest1, durations, at, high, LARGE_GROUP, from_ps, pixel, own_pixel
        ):
            step = LARGE_GROUP
            best = longest1[at // LARGE_GROUP]
            _add_group(sums, busy1, at // LARGE_GROUP)
        elif not wide and _group_fits(
            starts, longest0, durations, at, high, GROUP, from_ps, pixel, own_pixel
        ):
            step = GROUP
            best = longest0[at // GROUP]
            _add_group(sums, busy0, at // GROUP)
        else:
            sums[kinds[at]] += durations[at]
        if durations[best] > durations[out[PLACE * size + found]]:
            out[PLACE * size + found] = best
        last = at + step - 1
        end = starts[last] + durations[last]
        length = end - out[START * size + found]
        out[DURATION * size + found] = max(out[DURATION * size + found], length)
        out[COUNT * size + found] += step
        at += step
    if found >= 0:
        _close(out, found, size, sums)
    return found + 1


def tiles(source: Pyramid, chosen: Array, from_ps: int, to_ps: int, pixels: int) -> Tiles:
    """The slices of some tracks between two times, at a resolution of `pixels`."""
    tracks = source.tracks
    pixel = pixel_ps(from_ps, to_ps, pixels)
    columns = (tracks.start_ps, tracks.duration_ps, tracks.kind)
    plain = [np.ascontiguousarray(column) for column in columns]
    levels = [source.busy[0], source.longest[0], source.busy[1], source.longest[1]]
    sums = np.zeros(KINDS, np.int64)
    parts = []
    # A pixel holds at most two: a block, and the wide slice after it.
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
    return Tiles(of, *whole)


def pixel_ps(from_ps: int, to_ps: int, pixels: int) -> int:
    """The length of a pixel, at least one picosecond."""
    return max(1, -(-(to_ps - from_ps) // max(1, pixels)))

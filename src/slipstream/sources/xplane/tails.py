"""The tails of events: the bytes in which events of one instruction end, remembered by a hash.

Numba passes no structures, so a tail is a run of `TAIL_WIDTH` numbers in one array.
"""

from __future__ import annotations

import numpy as np

from slipstream.native import inner, word_at

MOST_TAILS = 4096
"""tails that are remembered"""
_LENGTH, _EVENT_ID, _SEEN, _PLACE, _TAG, _NEXT, TAIL_WIDTH = range(7)
"""a tail: its bytes, the event's metadata and stats before it, where it lies, its tag, and the
tail that followed it the last time"""


@inner
def _same_bytes(data, one, other, length):  # type: ignore[no-untyped-def]
    """Whether two runs of at least eight bytes are equal."""
    for i in range(length >> 3):
        if word_at(data, one + 8 * i) != word_at(data, other + 8 * i):
            return False
    return word_at(data, one + length - 8) == word_at(data, other + length - 8)


@inner
def _tail_slot(data, tail, length, event_id):  # type: ignore[no-untyped-def]
    """Where a tail of at least eight bytes would be remembered, by its bytes' hash."""
    code = np.uint64(event_id) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(length)
    for i in range(length >> 3):
        code = (code ^ word_at(data, tail + 8 * i)) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(29)
    code = (code ^ word_at(data, tail + length - 8)) * np.uint64(0xFF51AFD7ED558CCD)
    return TAIL_WIDTH * (np.int64(code >> np.uint64(40)) & (MOST_TAILS - 1))


@inner
def _is_tail(data, tail, length, event_id, seen, tails, slot):  # type: ignore[no-untyped-def]
    """Whether a slot remembers this tail, of such an event."""
    return (
        tails[slot + _LENGTH] == length
        and tails[slot + _EVENT_ID] == event_id
        and tails[slot + _SEEN] == seen
        and _same_bytes(data, tail, tails[slot + _PLACE], length)
    )


@inner
def find_tail(data, tail, end, event_id, seen, tails, previous):  # type: ignore[no-untyped-def]
    """(slot of a tail, its tag); the tag is -1 if the tail is not remembered there."""
    # What followed the previous event the last time mostly follows it again.
    slot = tails[previous + _NEXT]
    if _is_tail(data, tail, end - tail, event_id, seen, tails, slot):
        return slot, tails[slot + _TAG]
    slot = _tail_slot(data, tail, end - tail, event_id)
    if _is_tail(data, tail, end - tail, event_id, seen, tails, slot):
        return slot, tails[slot + _TAG]
    return slot, np.int64(-1)


@inner
def remember(tails, slot, tail, end, event_id, seen, tag):  # type: ignore[no-untyped-def]
    tails[slot + _LENGTH] = end - tail
    tails[slot + _EVENT_ID] = event_id
    tails[slot + _SEEN] = seen
    tails[slot + _PLACE] = tail
    tails[slot + _TAG] = tag


@inner
def follow(tails, previous, slot):  # type: ignore[no-untyped-def]
    """Remember that an event with this tail came after the previous one; returns the last tail."""
    if slot <= 0:
        return previous
    tails[previous + _NEXT] = slot
    return slot

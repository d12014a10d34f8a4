"""Millions of Perfetto packets from few templates.

Most packets differ only in their timestamp. Each distinct packet is built once, with a gap of fixed
size for the timestamp; native code then copies the templates and fills in the times.

    0a len │ 40 t t t t t t t t │ sequence, flags │ slots, track event
                 └─ gap ─┘        the same for all slices of one name on one track

A slot is a field of eight bytes that differs between packets: the id of an arrow, or the value of a
counter.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slipstream.native import native
from slipstream.outputs.wire import message, number
from slipstream.profile.events import Array

SEQUENCE = 1
STARTS_SEQUENCE, NEEDS_TEXTS = 1, 2
"""sequence flags: the first packet holds all texts, the others refer to them"""

_TIMESTAMP = b"\x40"
_GAP = b"\x80" * 7 + b"\x00"  # a varint may be padded; eight bytes hold 833 days of nanoseconds
_CHUNK = 100_000
_TAG, _SLOT = 2, 8
_NO_VALUES = np.empty(0, np.uint64)


def packet(*fields: bytes) -> bytes:
    """One packet of the trace."""
    return message(1, *fields)


class Packets:
    """Timed packets, kept as arrays of times and template numbers until they are written."""

    def __init__(self) -> None:
        self._templates: list[bytes] = []
        self._gaps: list[int] = []
        self._slots: list[int] = []
        self._slot_places: list[int] = []
        self._times: list[Array] = []
        self._numbers: list[Array] = []
        self._values: list[Array] = []

    def template(self, track_event: bytes, slots: bytes = b"") -> int:
        """Add a template for packets with this track event, and return its number.

        `slots` are the tags (`wire.fixed_tag`) of fields whose values differ between packets.
        """
        tags = [slots[at : at + _TAG] for at in range(0, len(slots), _TAG)]
        event = b"".join(tag + b"\0" * _SLOT for tag in tags) + track_event
        payload = number(10, SEQUENCE) + number(13, NEEDS_TEXTS) + message(11, event)
        template = packet(_TIMESTAMP, _GAP, payload)
        self._templates.append(template)
        self._gaps.append(len(template) - len(payload) - len(_GAP))
        self._slots.append(len(tags))
        self._slot_places.append(len(template) - len(event) + _TAG)
        return len(self._templates) - 1

    def add(self, times_ns: Array, numbers: Array, values: Array = _NO_VALUES) -> None:
        """Add packets: their times, their templates, and the values of all their slots in order."""
        self._times.append(times_ns)
        self._numbers.append(numbers)
        self._values.append(values)

    def assembled(self) -> Iterator[bytes]:
        """The packets in order of time; packets of the same time in the order they were added."""
        if not self._times:
            return
        times, numbers = np.concatenate(self._times), np.concatenate(self._numbers)
        order = np.argsort(times, kind="stable")
        lengths = np.array([len(t) for t in self._templates])
        slots = np.array(self._slots)
        counts = slots[numbers]
        firsts = np.cumsum(counts) - counts
        text = np.frombuffer(b"".join(self._templates), np.uint8)
        places = (np.cumsum(lengths) - lengths, lengths, np.array(self._gaps))
        values = np.concatenate(self._values).view(np.int64)
        for begin in range(0, len(order), _CHUNK):
            rows = order[begin : begin + _CHUNK]
            own = (numbers[rows], times[rows], firsts[rows])
            out = np.empty(int(lengths[own[0]].sum()), np.uint8)
            slotted = (slots, np.array(self._slot_places), values)
            _fill(text, *places, *slotted, *(c.astype(np.int64) for c in own), len(rows), out)
            yield out.tobytes()


@native("i64(u8*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64*, i64, u8*)")
def _fill(  # type: ignore[no-untyped-def]
    text, begins, lengths, gaps, slots, slot_places, values, numbers, times, firsts, rows, out,
):  # fmt: skip
    """Copy the template of each packet, and fill in its time and slots."""
    at = 0
    for row in range(rows):
        number = numbers[row]
        for i in range(lengths[number]):
            out[at + i] = text[begins[number] + i]
        time = times[row]
        for i in range(8):
            more = 0x80 if i < 7 else 0
            out[at + gaps[number] + i] = (time >> (7 * i)) & 0x7F | more
        for slot in range(slots[number]):
            value = values[firsts[row] + slot]
            place = at + slot_places[number] + slot * 10
            for i in range(8):
                out[place + i] = (value >> (8 * i)) & 0xFF
        at += lengths[number]
    return at

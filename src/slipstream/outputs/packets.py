"""Millions of Perfetto packets from few templates.

Packets differ in little but their timestamp: each distinct packet is built once, with a gap of
fixed size for the timestamp, and all of them are then filled in as arrays.

    0a len │ 40 t t t t t t t t │ sequence, flags │ track event
                 └─ gap ─┘        the same for all slices of one name on one track
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slipstream.outputs.wire import message, number
from slipstream.profile.events import Array

SEQUENCE = 1
STARTS_SEQUENCE, NEEDS_TEXTS = 1, 2
"""sequence flags: the first packet brings all texts, the others rely on it"""

_TIMESTAMP = b"\x40"
_GAP = b"\x80" * 7 + b"\x00"  # a varint may be padded; eight bytes hold 833 days of nanoseconds
_CHUNK = 100_000


def packet(*fields: bytes) -> bytes:
    """One packet of the trace."""
    return message(1, *fields)


class Packets:
    """Timed packets, kept as arrays of times and template numbers until they are written."""

    def __init__(self) -> None:
        self._templates: list[bytes] = []
        self._gaps: list[int] = []
        self._times: list[Array] = []
        self._numbers: list[Array] = []

    def template(self, track_event: bytes) -> int:
        """Number of the packet that says `track_event` at a time yet to be filled in."""
        said = number(10, SEQUENCE) + number(13, NEEDS_TEXTS) + message(11, track_event)
        template = packet(_TIMESTAMP, _GAP, said)
        self._templates.append(template)
        self._gaps.append(len(template) - len(said) - len(_GAP))
        return len(self._templates) - 1

    def add(self, times_ns: Array, numbers: Array) -> None:
        self._times.append(times_ns)
        self._numbers.append(numbers)

    def assembled(self) -> Iterator[bytes]:
        """The packets by time; of those at one time, first those that were added first."""
        if not self._times:
            return
        times, numbers = np.concatenate(self._times), np.concatenate(self._numbers)
        order = np.argsort(times, kind="stable")
        lengths = np.array([len(t) for t in self._templates])
        for begin in range(0, len(order), _CHUNK):
            rows = order[begin : begin + _CHUNK]
            yield self._filled(times[rows], numbers[rows], lengths).tobytes()

    def _filled(self, times: Array, numbers: Array, lengths: Array) -> Array:
        sizes = lengths[numbers]
        offsets = np.cumsum(sizes) - sizes
        out = np.empty(int(sizes.sum()), np.uint8)
        gaps = np.empty(len(times), np.int64)
        for used in np.unique(sizes).tolist():
            rows = np.flatnonzero(sizes == used)
            distinct, which = np.unique(numbers[rows], return_inverse=True)
            texts = b"".join(self._templates[n] for n in distinct)
            block = np.frombuffer(texts, np.uint8).reshape(len(distinct), used)
            out[offsets[rows][:, None] + np.arange(used)] = block[which]
            gaps[rows] = offsets[rows] + self._gaps[distinct[0]]
        for place in range(len(_GAP)):
            bits = (times >> (7 * place)) & 0x7F
            out[gaps + place] = bits | (0x80 if place < len(_GAP) - 1 else 0)
        return out

"""A plane's metadata: names of its events and stats, and its own stats.

    XPlane         { event_metadata=4: {key=1, value=2}*, stat_metadata=5: same, stats=6: XStat* }
    XEventMetadata { name=2, display_name=4, stats=5: XStat* }
    XStatMetadata  { name=2 }
    XStat          { metadata_id=1, double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7 }

Protobuf could read this too, but importing it takes longer than reading all of this.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.errors import BadInput
from slipstream.sources import wire
from slipstream.sources.wire import Places

Value = int | float | str
Rows = list[tuple[int, ...]]
_EVENTS, _STATS, _OWN = 4, 5, 6
_NAME, _TITLE, _EVENT_STATS = 2, 4, 5
_DOUBLE, _UINT64, _INT64, _TEXT, _REF = 2, 3, 4, 5, 7


@dataclass(frozen=True)
class EventMetadata:
    """One kind of event of a plane: its names, and the stats that all its events share."""

    name: str = ""
    display_name: str = ""
    stats: dict[str, Value] = field(default_factory=dict)


class Metadata:
    """The metadata of one plane, by id."""

    def __init__(self, path: Path, data: Any, rows: Rows) -> None:
        self.path, self.data = path, data
        places: dict[int, Places] = {_EVENTS: [], _STATS: [], _OWN: []}
        for number, kind, length, payload in rows:
            if number in places and kind == wire.BYTES:
                places[number].append((payload, length))
        self.stat_names = {key: e.name for key, e in self._entries(places[_STATS]).items()}
        self.events = self._entries(places[_EVENTS])
        own = self._stats(places[_OWN])
        self.stats = {name: value for _, name, value in own}

    def _entries(self, places: Places) -> dict[int, EventMetadata]:
        """A map's messages by key; those of stats only have a name."""
        keys = [0] * len(places)
        values: Places = [(at, 0) for at, _ in places]
        for i, number, kind, value, at in self._fields(places, "a map of XPlane"):
            if (number, kind) == (1, wire.VARINT):
                keys[i] = value
            elif (number, kind) == (2, wire.BYTES):
                values[i] = (at, value)
        names, titles = [""] * len(places), [""] * len(places)
        stats: dict[tuple[int, int], int] = {}
        for i, number, kind, length, at in self._fields(values, "XEventMetadata"):
            if kind != wire.BYTES:
                continue
            if number == _NAME:
                names[i] = wire.text(self.data, at, length)
            elif number == _TITLE:
                titles[i] = wire.text(self.data, at, length)
            elif number == _EVENT_STATS:
                stats[at, length] = i
        shared: dict[int, dict[str, Value]] = {}
        owners = list(stats.values())
        for i, name, stated in self._stats(list(stats)):
            shared.setdefault(owners[i], {})[name] = stated
        nothing: dict[str, Value] = {}
        return {
            key: EventMetadata(names[i], titles[i], shared.get(i, nothing))
            for i, key in enumerate(keys)
        }

    def _stats(self, places: Places) -> Iterator[tuple[int, str, Value]]:
        """(index of the message, name, value) of stats; stats of bytes are skipped."""
        keys = [0] * len(places)
        values: list[Value | None] = [None] * len(places)
        for i, number, kind, content, at in self._fields(places, "XStat"):
            if (number, kind) == (1, wire.VARINT):
                keys[i] = content
            elif number > 1:
                values[i] = self._value(number, kind, content, at)
        for i, value in enumerate(values):
            if value is not None:
                yield i, self.stat_names.get(keys[i], ""), value

    def _value(self, number: int, kind: int, content: int, place: int) -> Value | None:
        if (number, kind) == (_DOUBLE, wire.FIXED64):
            found: float = struct.unpack("<d", bytes(self.data[place : place + 8]))[0]
            return found
        if (number, kind) == (_UINT64, wire.VARINT):
            return content % (1 << 64)
        if (number, kind) == (_INT64, wire.VARINT):
            return content
        if (number, kind) == (_TEXT, wire.BYTES):
            return wire.text(self.data, place, content)
        if (number, kind) == (_REF, wire.VARINT):
            return self.stat_names.get(content, "")
        return None

    def _fields(self, places: Places, what: str) -> Rows:
        rows, at, status = wire.fields_of(self.data, places)
        if status != wire.OK:
            raise broken(self.path, at, status, what)
        return rows


def fields(
    path: Path,
    data: Any,
    start: int,
    end: int,
    what: str,
    wanted: int = wire.ALL,
    least_bytes: int = 1,
) -> Rows:
    """Fields of a message: (number, wire type, value or length, payload offset)."""
    rows, at, status = wire.fields(data, start, end, wanted, least_bytes)
    if status != wire.OK:
        raise broken(path, at, status, what)
    return rows


def broken(path: Path, at: int, status: int, what: str) -> BadInput:
    """The error for bytes that are not valid in this format."""
    return BadInput(
        f"{path} is not a complete XPlane file: at byte {at:,}, inside {what}, expected "
        f"{wire.PROBLEMS[status]}; was it cut short while copying? copy or record it again"
    )

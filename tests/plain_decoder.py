"""The XPlane decoder's plain twin: protobuf and Python loops, slow and easy to believe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from slipstream.sources.proto_schema import message


@dataclass(frozen=True)
class Event:
    plane: str
    line: str
    name: str
    start_ps: int
    duration_ps: int
    stats: list[tuple[str, str, Any]]
    """(name, kind, value), in the order of the file"""

    def number(self, stat: str) -> int | None:
        found = [v for n, kind, v in self.stats if n == stat and kind in ("uint64", "int64")]
        return int64(found[-1]) if found else None

    def text(self, *stats: str) -> str | None:
        found = [v for n, kind, v in self.stats if n in stats and kind in ("str", "ref")]
        return found[-1] if found else None


def int64(value: int) -> int:
    return (value + 2**63) % 2**64 - 2**63


def events(data: bytes, base_ns: int = 0) -> Iterator[Event]:
    """Every event of a file, plane by plane and line by line."""
    for plane in message("XSpace").FromString(data).planes:
        texts = {key: value.name for key, value in plane.stat_metadata.items()}
        names = {key: value.name for key, value in plane.event_metadata.items()}
        for line in plane.lines:
            base_ps = (line.timestamp_ns - base_ns) * 1000
            for event in line.events:
                start = int64(base_ps + event.offset_ps)
                stats = [_stat(stat, texts) for stat in event.stats]
                name = names.get(event.metadata_id, "")
                label = line.display_name or line.name
                yield Event(plane.name, label, name, start, event.duration_ps, stats)


def _stat(stat: Any, texts: dict[int, str]) -> tuple[str, str, Any]:
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind) if kind else None
    if kind == "ref_value":
        value = texts.get(int64(value), "")
    return texts.get(stat.metadata_id, ""), (kind or "").removesuffix("_value"), value

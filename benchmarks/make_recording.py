"""A recording of any size, made from a real one: its steps again and again, on one clock."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

from slipstream.sources.proto_schema import message

DATA = Path(__file__).parent.parent / "tests" / "data"


def make_recording(
    source: Path,
    target: Path,
    events: int,
    period_ps: int | None = None,
    one_step: bool = False,
) -> int:
    """Write a recording with at least `events` device events; returns how many there are.

    Its steps repeat after `period_ps`; by default, as soon as they can. With `one_step` one
    annotation contains them all.
    """
    space = message("XSpace").FromString(gzip.decompress(source.read_bytes()))
    device = next(plane for plane in space.planes if plane.name.startswith("/device:GPU"))
    host = next(plane for plane in space.planes if plane.name == "/host:CPU")
    lines = [(device, line) for line in device.lines]
    one = sum(len(line.events) for _, line in lines)
    times = -(-events // one)
    period_ps = period_ps or _period_ps(device)
    launches = 1 + max(_launches(device))
    with target.open("wb") as file:
        for plane in space.planes:
            if plane is not device and plane is not host:
                file.write(_field(1, plane.SerializeToString()))
        marks = _annotations_only(host, times, period_ps, one_step)
        file.write(_field(1, marks.SerializeToString()))
        file.write(_field(1, _repeated(device, times, period_ps, launches)))
        rest = message("XSpace")(hostnames=space.hostnames)
        file.write(rest.SerializeToString())
    return one * times


def _period_ps(device):
    ends = [
        line.timestamp_ns * 1000 + event.offset_ps + event.duration_ps
        for line in device.lines
        for event in line.events
    ]
    starts = [
        line.timestamp_ns * 1000 + event.offset_ps for line in device.lines for event in line.events
    ]
    return max(ends) - min(starts) + 10**9


def _launches(device):
    ids = [key for key, value in device.stat_metadata.items() if value.name == "correlation_id"]
    for line in device.lines:
        for event in line.events:
            yield from (s.uint64_value for s in event.stats if s.metadata_id in ids)


def _annotations_only(host, times, period_ps, one_step):
    """The host plane without its API calls: only the step annotations, repeated."""
    steps = [key for key, value in host.event_metadata.items() if value.name == "train"]
    out = message("XPlane")()
    out.CopyFrom(host)
    del out.lines[:]
    for line in host.lines:
        marks = [event for event in line.events if event.metadata_id in steps]
        if not marks:
            continue
        new = out.lines.add(id=line.id, name=line.name, timestamp_ns=line.timestamp_ns)
        if one_step:
            new.events.add().CopyFrom(marks[0])
            new.events[0].duration_ps += times * period_ps
            continue
        number = next(k for k, v in host.stat_metadata.items() if v.name == "step_num")
        for i in range(times):
            for event in marks:
                copy = new.events.add()
                copy.CopyFrom(event)
                copy.offset_ps += i * period_ps
                for stat in copy.stats:
                    if stat.metadata_id == number:
                        stat.int64_value += i * len(marks)
    return out


def _repeated(device, times, period_ps, launches):
    header = message("XPlane")()
    header.CopyFrom(device)
    del header.lines[:]
    (launch,) = [k for k, v in device.stat_metadata.items() if v.name == "correlation_id"]
    parts = [header.SerializeToString()]
    for line in device.lines:
        top = message("XLine")()
        top.CopyFrom(line)
        del top.events[:]
        body = [top.SerializeToString()]
        block = message("XLine")(events=line.events)
        stats = [s for e in block.events for s in e.stats if s.metadata_id == launch]
        for _ in range(times):
            body.append(block.SerializeToString())
            for event in block.events:
                event.offset_ps += period_ps
            for stat in stats:
                stat.uint64_value += launches
        whole = b"".join(body)
        parts.append(_field(3, whole))
    return b"".join(parts)


def _field(number, payload):
    length = len(payload)
    varint = bytearray()
    while length > 0x7F:
        varint.append(length & 0x7F | 0x80)
        length >>= 7
    varint.append(length)
    return bytes((number << 3 | 2,)) + bytes(varint) + payload


if __name__ == "__main__" and len(sys.argv) == 4:
    print(make_recording(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])))

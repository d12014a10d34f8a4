"""Reads Perfetto traces with the protobuf runtime: shares nothing with the writer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_VARINT, _TEXT, _MESSAGE = 4, 9, 11  # uint64, string, message
_FIXED, _DOUBLE = 6, 1
_MESSAGES = {
    "Interned": {"iid": (1, _VARINT), "name": (2, _TEXT)},
    "Annotation": {"name_iid": (1, _VARINT), "string_value_iid": (17, _VARINT)},
    "Event": {
        "category_iids": (3, _VARINT),
        "debug_annotations": (4, "Annotation"),
        "type": (9, _VARINT),
        "name_iid": (10, _VARINT),
        "track_uuid": (11, _VARINT),
        "double_counter_value": (44, _DOUBLE),
        "flow_ids": (47, _FIXED),
        "terminating_flow_ids": (48, _FIXED),
    },
    "Counter": {"unit_name": (6, _TEXT)},
    "Process": {"pid": (1, _VARINT), "process_name": (6, _TEXT)},
    "Thread": {"pid": (1, _VARINT), "tid": (2, _VARINT), "thread_name": (5, _TEXT)},
    "Track": {
        "uuid": (1, _VARINT),
        "name": (2, _TEXT),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
        "parent_uuid": (5, _VARINT),
        "counter": (8, "Counter"),
    },
    "InternedData": {
        "event_categories": (1, "Interned"),
        "event_names": (2, "Interned"),
        "debug_annotation_names": (3, "Interned"),
        "debug_annotation_string_values": (29, "Interned"),
    },
    "Packet": {
        "timestamp": (8, _VARINT),
        "trusted_packet_sequence_id": (10, _VARINT),
        "track_event": (11, "Event"),
        "interned_data": (12, "InternedData"),
        "sequence_flags": (13, _VARINT),
        "track_descriptor": (60, "Track"),
    },
    "Trace": {"packet": (1, "Packet")},
}
_REPEATED = {
    "packet",
    "category_iids",
    "flow_ids",
    "terminating_flow_ids",
    "debug_annotations",
    "event_categories",
    "event_names",
    "debug_annotation_names",
    "debug_annotation_string_values",
}


@dataclass(frozen=True)
class Slice:
    process: str
    track: str
    name: str
    category: str
    start_ns: int
    end_ns: int
    depth: int
    notes: dict[str, str]


@dataclass(frozen=True)
class Trace:
    slices: list[Slice]
    arrows: list[tuple[Slice, Slice]]
    counters: dict[tuple[str, str, str], list[tuple[int, float]]]
    """(process, track, unit) to (time, value)"""


def read(data: bytes) -> list[Slice]:
    """All slices, closed as a viewer closes them: the innermost open one of the track first."""
    return read_all(data).slices


def read_all(data: bytes) -> Trace:
    """Slices, arrows and counters."""
    trace = trace_class()()
    trace.ParseFromString(data)
    texts: dict[str, dict[int, str]] = defaultdict(dict)
    tracks, processes = {}, {}
    for packet in trace.packet:
        for field, entries in packet.interned_data.ListFields():
            texts[field.name].update({entry.iid: entry.name for entry in entries})
        if packet.HasField("track_descriptor"):
            track = packet.track_descriptor
            assert track.uuid not in tracks
            tracks[track.uuid] = track
            if track.HasField("process"):
                processes[track.process.pid] = track.process.process_name
    assert trace.packet[0].sequence_flags == 1
    return _Reader(texts, tracks, processes).read(trace)


class _Reader:
    def __init__(self, texts, tracks, processes) -> None:
        self.texts, self.tracks, self.processes = texts, tracks, processes
        self.leaving: dict[int, Slice] = {}
        self.ending: dict[int, Slice] = {}

    def read(self, trace) -> Trace:
        stacks, found, last = defaultdict(list), [], 0
        counters = defaultdict(list)
        for packet in trace.packet:
            assert packet.trusted_packet_sequence_id == 1
            if not packet.HasField("track_event"):
                continue
            assert packet.sequence_flags == 2
            assert packet.timestamp >= last
            last, event = packet.timestamp, packet.track_event
            stack = stacks[event.track_uuid]
            if event.type == 1:
                stack.append(packet)
            elif event.type == 4:
                track = self.tracks[event.track_uuid]
                key = (self._process(track), track.name, track.counter.unit_name)
                counters[key].append((packet.timestamp, event.double_counter_value))
            else:
                assert event.type == 2
                opened = stack.pop()
                found.append(self._slice(opened, packet.timestamp, len(stack)))
        assert not any(stacks.values())
        assert self.leaving.keys() == self.ending.keys()
        arrows = [(self.leaving[number], self.ending[number]) for number in sorted(self.leaving)]
        return Trace(found, arrows, dict(counters))

    def _slice(self, opened, end: int, depth: int) -> Slice:
        event, track = opened.track_event, self.tracks[opened.track_event.track_uuid]
        names, values = (
            self.texts[f"debug_annotation_{sort}"] for sort in ("names", "string_values")
        )
        notes = {names[n.name_iid]: values[n.string_value_iid] for n in event.debug_annotations}
        made = Slice(
            self._process(track),
            track.name or track.thread.thread_name,
            self.texts["event_names"][event.name_iid],
            self.texts["event_categories"][event.category_iids[0]],
            opened.timestamp,
            end,
            depth,
            notes,
        )
        for numbers, ends in (
            (event.flow_ids, self.leaving),
            (event.terminating_flow_ids, self.ending),
        ):
            for number in numbers:
                assert number not in ends
                ends[number] = made
        return made

    def _process(self, track) -> str:
        while not track.HasField("thread") and not track.HasField("process"):
            track = self.tracks[track.parent_uuid]
        pid = track.thread.pid if track.HasField("thread") else track.process.pid
        return self.processes[pid]


def trace_class():
    file = descriptor_pb2.FileDescriptorProto(name="reader.proto", package="reader")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            described = message.field.add(
                name=field, number=number, label=3 if field in _REPEATED else 1
            )
            described.type = kind if isinstance(kind, int) else _MESSAGE
            if not isinstance(kind, int):
                described.type_name = f".reader.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("reader.Trace"))

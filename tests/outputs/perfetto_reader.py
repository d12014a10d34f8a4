"""Reads Perfetto traces with the protobuf runtime: shares nothing with the writer."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_VARINT, _TEXT, _MESSAGE = 4, 9, 11  # uint64, string, message
_MESSAGES = {
    "Interned": {"iid": (1, _VARINT), "name": (2, _TEXT)},
    "Annotation": {"name_iid": (1, _VARINT), "string_value_iid": (17, _VARINT)},
    "Event": {
        "category_iids": (3, _VARINT),
        "debug_annotations": (4, "Annotation"),
        "type": (9, _VARINT),
        "name_iid": (10, _VARINT),
        "track_uuid": (11, _VARINT),
    },
    "Process": {"pid": (1, _VARINT), "process_name": (6, _TEXT)},
    "Thread": {"pid": (1, _VARINT), "tid": (2, _VARINT), "thread_name": (5, _TEXT)},
    "Track": {
        "uuid": (1, _VARINT),
        "name": (2, _TEXT),
        "process": (3, "Process"),
        "thread": (4, "Thread"),
        "parent_uuid": (5, _VARINT),
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


def read(data: bytes) -> list[Slice]:
    """All slices, closed as a viewer closes them: the innermost open one of the track first."""
    trace = _trace_class()()
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
    return _slices(trace, texts, tracks, processes)


def _slices(trace, texts, tracks, processes) -> list[Slice]:
    stacks, found, last = defaultdict(list), [], 0
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
            continue
        assert event.type == 2
        opened = stack.pop()
        track = tracks[event.track_uuid]
        thread = (tracks[track.parent_uuid] if track.parent_uuid else track).thread
        notes = {
            texts["debug_annotation_names"][note.name_iid]: texts["debug_annotation_string_values"][
                note.string_value_iid
            ]
            for note in opened.track_event.debug_annotations
        }
        found.append(
            Slice(
                processes[thread.pid],
                track.name or thread.thread_name,
                texts["event_names"][opened.track_event.name_iid],
                texts["event_categories"][opened.track_event.category_iids[0]],
                opened.timestamp,
                packet.timestamp,
                len(stack),
                notes,
            )
        )
    assert not any(stacks.values())
    return found


def _trace_class():
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

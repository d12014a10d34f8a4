"""The fast decoder against its plain twin, and against files that are not what they claim."""

from __future__ import annotations

import gzip
import random
import re
import resource
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import plain_decoder
from builders import STEP, Ref, Unsigned, hlo, space
from slipstream.errors import BadInput
from slipstream.profile.events import Texts
from slipstream.profile.validation import validate
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message
from slipstream.sources.xplane import lines as xlines
from slipstream.sources.xplane.events import MOST_TAGS
from slipstream.sources.xplane.reader import StatColumns, decode, read_xspace

OWN, SHARED = ("correlation_id", "step_num"), ("program_id",)
NUMBERS = (*OWN, *SHARED)
TEXTS = {"op": ("hlo_op",), "details": ("kernel_details", "memcpy_details")}
STATS = StatColumns(OWN, SHARED, TEXTS)
NAMES = (*NUMBERS, *TEXTS["op"], *TEXTS["details"], "unread", "")


def assert_same(data: bytes, base_ns: int = 0) -> int:
    """Both decoders say the same of every event of a file; how many events they say it of."""
    array = np.frombuffer(data, np.uint8)
    found = read_xspace(Path("built.xplane.pb"), array)
    expected = list(plain_decoder.events(data, base_ns))
    row = 0
    for plane in found.planes:
        texts = Texts()
        columns = decode(found, plane, plane.lines, STATS, texts, base_ns=base_ns)
        tag = columns.tag
        count = len(tag)
        wanted = expected[row : row + count]
        row += count
        assert [e.plane for e in wanted] == [plane.name] * count
        assert [e.line for e in wanted] == [plane.lines[i].name for i in columns.line[tag]]
        assert [e.name for e in wanted] == [plane.events[i].name for i in columns.metadata[tag]]
        assert [e.start_ps for e in wanted] == columns.start_ps.tolist()
        assert [e.duration_ps for e in wanted] == columns.duration_ps.tolist()
        for name in NUMBERS:
            told = [e.number(name) for e in wanted]
            assert [value or 0 for value in told] == columns.number(name).tolist()
            assert [value is not None for value in told] == columns.has(name)[tag].tolist()
        for column, names in TEXTS.items():
            told = [e.text(*names) for e in wanted]
            held = columns.texts.get(column, np.zeros(len(columns.line), int))
            values = [texts.values[i] for i in held[tag]]
            assert [value or "" for value in told] == values
            assert [value is not None for value in told] == columns.has(column)[tag].tolist()
    assert row == len(expected)
    return row


int64s = st.one_of(
    st.integers(0, 6),
    st.integers(2**20 - 2, 2**20 + 2),
    st.sampled_from([-(2**63), -1, 2**63 - 1]),
    st.integers(-(2**63), 2**63 - 1),
)
words = st.text(max_size=6) | st.sampled_from(["fusion.1", "x" * 300, "é", ""])
unknown_fields = st.sampled_from(
    [b"", b"\x98\x06\x05", b"\x9a\x06\x02hi", b"\x9d\x06abcd", b"\x99\x06abcdefgh"]
)


@st.composite
def spaces(draw: st.DrawFn) -> bytes:
    """Any XSpace that protobuf writes."""
    found = message("XSpace")()
    for _ in range(draw(st.integers(1, 3))):
        plane = found.planes.add(name=draw(words))
        stat_ids = draw(st.lists(int64s, max_size=8, unique=True))
        for key in stat_ids:
            plane.stat_metadata[key].name = draw(st.sampled_from(NAMES) | words)
        event_ids = draw(st.lists(int64s, max_size=4, unique=True))
        for key in event_ids:
            plane.event_metadata[key].name = draw(words)
        for _ in range(draw(st.integers(0, 3))):
            line = plane.lines.add(name=draw(words), timestamp_ns=draw(int64s))
            line.display_name = draw(st.just("") | words)
            for _ in range(draw(st.integers(0, 6))):
                _draw_event(draw, line.events.add(), event_ids, stat_ids)
            line.MergeFromString(draw(unknown_fields))
        plane.MergeFromString(draw(unknown_fields))
    found.MergeFromString(draw(unknown_fields))
    return found.SerializeToString()


def _draw_event(draw: st.DrawFn, event: object, event_ids: list[int], stat_ids: list[int]) -> None:
    event.metadata_id = draw(st.sampled_from(event_ids) if event_ids else int64s)
    event.duration_ps = draw(int64s)
    setattr(event, draw(st.sampled_from(["offset_ps", "num_occurrences"])), draw(int64s))
    for _ in range(draw(st.integers(0, 5))):
        known = st.sampled_from(stat_ids) if stat_ids else int64s
        stat = event.stats.add(metadata_id=draw(known | int64s))
        kind = draw(st.sampled_from(["", "double", "uint64", "int64", "str", "bytes", "ref"]))
        if kind in ("uint64", "ref"):
            value = draw(known | int64s) % 2**64
        elif kind == "int64":
            value = draw(int64s)
        elif kind == "double":
            value = draw(st.floats())
        else:
            value = draw(words) if kind == "str" else b"bytes"
        if kind:
            setattr(stat, f"{kind}_value", value)
        stat.MergeFromString(draw(unknown_fields))
    event.MergeFromString(draw(unknown_fields))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(spaces(), st.sampled_from([0, 10**18]))
def test_both_decoders_say_the_same(data: bytes, base_ns: int) -> None:
    assert_same(data, base_ns)


def test_a_line_of_several_chunks() -> None:
    """Chunks are decoded by several threads, each with texts of its own."""
    built = space()
    line = built.gpu().line("Stream #1(Kernel)", 5)
    for i in range(40):
        details = {"kernel_details": f"regs:{i}"} if i % 3 else {}
        line.kernel(f"k{i % 7}", i, 2, f"fusion.{i % 5}", correlation=i, **details)
    one = [event.SerializeToString() for event in line.proto.events]
    count = 2 * 65536 + 11
    del line.proto.events[:]
    head = line.proto.SerializeToString()
    events = b"".join(b"\x22" + _varint(len(e)) + e for e in (one * (count // 40 + 1))[:count])
    body = head + events
    plane = built.gpu().proto
    del plane.lines[:]
    inside = plane.SerializeToString() + b"\x1a" + _varint(len(body)) + body
    assert assert_same(b"\x0a" + _varint(len(inside)) + inside) == count


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_events_that_end_alike(draws: st.DataObject) -> None:
    """Most events end in bytes that were seen before; what is their own may stand anywhere."""
    found = message("XSpace")()
    plane = found.planes.add(name="/device:GPU:0")
    for key, name in enumerate((*NAMES[:-1], "context_id"), start=1):
        plane.stat_metadata[key].name = name
    for key in (1, 2):
        plane.event_metadata[key].name = f"kernel{key}"
    line = plane.lines.add(name="Stream #1(Kernel)")
    # Few stats of few values each, so that many events are alike but for a number or two.
    stats = [(key, value) for key in plane.stat_metadata for value in (1, 2, 300, 2**40)]
    endings = draws.draw(st.lists(st.lists(st.sampled_from(stats), max_size=6), max_size=4))
    for _ in range(40):
        event = line.events.add(metadata_id=draws.draw(st.integers(1, 2)), offset_ps=7)
        own = draws.draw(st.lists(st.sampled_from(stats), max_size=2))
        for key, value in (*own, *draws.draw(st.sampled_from([*endings, []]))):
            stat = event.stats.add(metadata_id=key)
            kind = "int64_value" if plane.stat_metadata[key].name in NUMBERS else "ref_value"
            setattr(stat, kind, value)
    assert_same(found.SerializeToString())


@pytest.mark.parametrize("misleading", [False, True])
def test_a_line_walked_by_several_threads(monkeypatch, misleading: bool) -> None:
    """Where the walks don't meet, the line is walked from its start."""
    monkeypatch.setattr(xlines, "LONG_PART", 100)
    built = space()
    line = built.gpu().line("Stream #1(Kernel)", 5, display_name="the title")
    # An event that holds what looks like many events.
    fake = b"".join(b"\x22\x04\x08\x01\x10\x05" for _ in range(80)).decode()
    for i in range(400):
        line.kernel("k", i, 2, "fusion.1", **({"tf_op": fake} if misleading else {}))
    data = np.frombuffer(line.proto.SerializeToString(), np.uint8)
    alone = xlines.scan_line(data, 0, len(data), 10**6)
    assert alone[1] == [400]
    for parts in (2, 3, 7):
        starts, counts, *rest = xlines.scan_line(data, 0, len(data), 30, parts)
        assert sum(counts) == 400 and len(counts) > 12
        assert rest == list(alone[2:])
        for start, count in zip(starts, counts, strict=True):
            walked = xlines.scan_line(data, start, len(data), count)
            assert (walked[0][0], walked[1][0]) == (start, count)


def test_more_tags_than_one_call_holds() -> None:
    """Each event is of a program of its own."""
    built = space()
    line = built.gpu().line("Stream #1(Kernel)", 5)
    count = MOST_TAGS + 100
    for i in range(count):
        line.event("k", i, 2, program_id=Unsigned(i))
    assert assert_same(built.proto.SerializeToString()) == count


def test_fields_that_come_in_an_unusual_order() -> None:
    built = space()
    line = built.host().line("after its events").event("a", 1, 2).event("b", 3, 4)
    first, second = (b"\x22" + _varint(len(e)) + e for e in map(_bytes, line.proto.events))
    del line.proto.events[:]
    body = first + _bytes(line.proto) + second
    plane = built.host().proto
    del plane.lines[:]
    inside = b"\x1a" + _varint(len(body)) + body + _bytes(plane)
    assert assert_same(b"\x0a" + _varint(len(inside)) + inside) == 2


def _bytes(proto: object) -> bytes:
    return proto.SerializeToString()


@pytest.mark.parametrize("name", ["single", "nccl2_lhs_r0", "convolution_graphs"])
def test_real_recordings(data: Path, name: str) -> None:
    assert assert_same(gzip.decompress((data / f"{name}.xplane.pb.gz").read_bytes())) > 1000


# Files that are not what they claim.


def load_or_refuse(path: Path) -> bool:
    """Load a file that may be broken: it loads as a sound profile, or the error says enough."""
    try:
        found = load(path)
    except BadInput as error:
        text = str(error)
        assert str(path) in text
        size = path.stat().st_size
        assert all(int(n.replace(",", "")) <= size for n in re.findall(r"at byte ([\d,]+)", text))
        assert "byte" in text or "empty" in text or "gzip" in text, text
        assert "expected" in text or "record it again" in text or "copy it again" in text, text
        return False
    validate(found)
    return True


def small_recording() -> bytes:
    """A bit of everything a recording may hold, in few bytes."""
    built = space().environment(1_700_000_000 * 10**9).note(hostname="a", warning="dropped 3")
    built.versions(jax_version="0.11.2")
    built.program(STEP, hlo("jit_step", ["dot.1", "all-reduce.2"]))
    stream = built.gpu().line("Stream #1(Kernel)", 100)
    tpu = built.tpu()
    tpu.line("Steps").event("7", 0, 50)
    tpu.line("XLA Modules").event("jit_step(1)", 0, 50)
    ops = tpu.line("XLA Ops")
    thread = built.host().line("python", 100)
    for step in range(3):
        at, first = 100 * step, 10 * step + 1
        stream.kernel("dot_1", at, 20, "dot.1", correlation=first, kernel_details="regs:3")
        stream.kernel("ncclDevKernel", at + 20, 9, "all-reduce.2", correlation=first + 1)
        ops.event("%dot.1 = f32[8] dot(%p)", at, 5, "dot.1")
        thread.annotation(step, at, 30).launch(first, at).launch(first + 1, at + 2)
        thread.transfer(at + 9, 5, dcn_label=Ref("all-reduce"), dcn_chunk=step)
    return built.bytes()


SMALL = small_recording()


@settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.binary(max_size=80))
def test_random_bytes(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "random.xplane.pb"
    path.write_bytes(data)
    load_or_refuse(path)


@settings(
    max_examples=300,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.integers(0, 8 * len(SMALL) - 1), min_size=1, max_size=4))
def test_flipped_bits(tmp_path: Path, places: list[int]) -> None:
    data = bytearray(SMALL)
    for place in places:
        data[place // 8] ^= 1 << place % 8
    path = tmp_path / "flipped.xplane.pb"
    path.write_bytes(data)
    load_or_refuse(path)


def test_every_truncation_of_a_small_recording(tmp_path: Path) -> None:
    path = tmp_path / "cut.xplane.pb"
    loaded = 0
    for size in range(0, len(SMALL), 3):
        path.write_bytes(SMALL[:size])
        loaded += load_or_refuse(path)
    # Only cuts between two planes leave a whole file.
    assert loaded <= 6


def test_a_real_recording_cut_short_or_flipped(data: Path, tmp_path: Path) -> None:
    whole = gzip.decompress((data / "attention_graphs.xplane.pb.gz").read_bytes())
    path = tmp_path / "broken.xplane.pb"
    chance = random.Random(7)
    for _ in range(12):
        path.write_bytes(whole[: chance.randrange(len(whole))])
        load_or_refuse(path)
    for _ in range(30):
        flipped = bytearray(whole)
        for _ in range(chance.randrange(1, 6)):
            flipped[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
        path.write_bytes(flipped)
        load_or_refuse(path)


def test_the_error_says_where_and_what(tmp_path: Path) -> None:
    path = tmp_path / "cut.xplane.pb"
    path.write_bytes(SMALL[:-2])
    with pytest.raises(BadInput) as caught:
        load(path)
    start = str(caught.value)
    assert start.startswith(f"{path} is not a complete XPlane file: at byte ")
    assert "expected a field that ends inside its message" in start


def test_a_length_beyond_the_file_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "huge.xplane.pb"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for claim in (2**60, 2**31, 2**63 + 5, 2**64 - 1):
        for nesting in (b"\x0a", b"\x0a\x0c\x1a", b"\x0a\x0e\x1a\x0c\x22", b"\x0a\x0e\x22\x0c\x12"):
            path.write_bytes(nesting + _varint(claim) + b"\x00" * 8)
            assert not load_or_refuse(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * (1 if sys.platform == "darwin" else 1024) < 64 * 2**20


def recording_of(event: bytes, count: int) -> bytes:
    """One line of a GPU, with the same event again and again."""
    line = b"\x12\x09Stream #1" + event * count
    plane = b"\x12\x0d/device:GPU:0\x1a" + _varint(len(line)) + line
    return b"\x0a" + _varint(len(plane)) + plane


@pytest.mark.parametrize("count", [10_000, 100_000])
@pytest.mark.parametrize("event", [b"\x22\x00", b"\x22\x02\x08\x01", b"\x22\x04\x08\x01\x10\x05"])
def test_events_without_a_name_or_a_time_are_refused_if_they_are_many(
    tmp_path: Path, event: bytes, count: int
) -> None:
    """20 MB of events of two bytes took half a gigabyte."""
    path = tmp_path / "a.xplane.pb"
    path.write_bytes(recording_of(event, count))
    if count > 10_000 and len(event) < 6:
        with pytest.raises(BadInput, match="inside XLine, expected fewer fields, of more bytes"):
            load(path)
    else:
        assert len(load(path).events) == count


def test_a_number_where_a_program_should_be(tmp_path: Path) -> None:
    """A field of the right number and the wrong type is unknown, not a place in the file."""
    entry = b"\x08\x01\x10" + _varint(2**40)  # key 1, and a value that is a varint
    metadata = b"\x12\x0e/host:metadata" + b"\x22" + _varint(len(entry)) + entry
    path = tmp_path / "typed.xplane.pb"
    path.write_bytes(b"\x0a" + _varint(len(metadata)) + metadata)
    assert load_or_refuse(path)


def test_stats_of_the_wrong_kind(tmp_path: Path) -> None:
    """What should be a number is text, and the other way round."""
    built = space()
    built.plane("Task Environment", profile_start_time="soon")
    built.plane("/host:metadata", jax_version=5)
    gpu = built.plane("/device:GPU:0", gpu_device_name=7.5, device_vendor=3)
    stream = gpu.line("Stream #1")
    stream.event("k", 1, 2, hlo_op=3, program_id="one", correlation_id=2.5, hlo_module=b"m")
    built.tpu().line("Steps").event("9" * 30, 0, 5)
    found = load(built.write(tmp_path / "kinds.xplane.pb"))
    validate(found)
    assert found.hosts[0].start_ns is None
    assert found.events["correlation"].tolist() == [0]


def test_times_beyond_64_bits_do_not_raise(tmp_path: Path) -> None:
    for start in (float("nan"), float("inf"), Unsigned(2**64 - 1)):
        built = space()
        built.plane("Task Environment", profile_start_time=start)
        built.gpu().line("Stream #1", -(2**63)).kernel("k", 0, 1, "dot.1")
        validate(load(built.write(tmp_path / "late.xplane.pb")))


def test_negative_durations_are_counted_as_none_and_said(tmp_path: Path) -> None:
    built = space()
    built.gpu().line("Stream #1").kernel("a", 0, -5, "dot.1").kernel("b", 1, 2, "dot.1")
    built.host().line("python").event("f", 3, -1)
    found = load(built.write(tmp_path / "negative.xplane.pb"))
    validate(found)
    assert found.events["duration_ps"].tolist() == [0, 2_000_000]
    assert [w.message for w in found.warnings if w.code == "negative-durations"] == [
        "negative.xplane.pb: 2 events end before they start; durations below 0 are counted as 0"
    ]

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import STEP as BUILT
from builders import profile
from outputs.perfetto.perfetto_reader import Slice, read, read_all
from outputs.results import STEP, small_profile, table
from slipstream.outputs.perfetto.trace import perfetto_bytes, write_perfetto
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS
from slipstream.profile.profile import Device, Host, Lane, Profile
from slipstream.sources.load import load

GPU = "/device:GPU:0 NVIDIA H200"
COMPUTE = "Stream #14(Compute)"


def _device(track: str, name: str, start: int, end: int, **notes: str) -> Slice:
    return Slice(GPU, track, name, "device", start, end, 0, {**notes, "program": STEP})


def _host(name: str, start: int, end: int, depth: int) -> Slice:
    return Slice("host worker-0", "python", name, "host", start, end, depth, {})


def test_a_trace_says_what_the_profile_says(tmp_path):
    write_perfetto(small_profile(), tmp_path / "a.pftrace")
    found = read((tmp_path / "a.pftrace").read_bytes())
    gemm = {"kernel": "gemm_kernel", "op": "dot.1", "details": "grid:4"}
    side = {"kernel": "side_kernel", "op": "command_buffer_0"}
    copy = {"kernel": "MemcpyD2H", "details": "size:128"}
    expected = [
        _device("Stream #15(MemcpyD2H)", "MemcpyD2H", 0, 4000, **copy),
        _device(COMPUTE, "dot.1", 1000, 11_000, **gemm),
        _device(COMPUTE, "dot.1", 11_000, 16_000, **gemm),
        _device(f"{COMPUTE}, overlapping 1", "add.2", 13_000, 22_000, **side),
        Slice(GPU, "steps", "step 0", "step", 0, 22_000, 0, {}),
        _host("train", 0, 30_000, 0),
        _host("PjitFunction(step)", 0, 8000, 1),
        _host("wait", 8000, 30_000, 1),
        _host("marker", 8000, 8000, 2),
        _host('said "so", twice', 9000, 10_000, 2),
    ]
    assert sorted(found, key=_by_place) == sorted(expected, key=_by_place)
    assert [path.name for path in tmp_path.iterdir()] == ["a.pftrace"]


def _by_place(found: Slice) -> tuple[str, str, int, str]:
    return found.process, found.track, found.start_ns, found.name


def test_an_empty_profile_is_a_trace_without_slices():
    assert read(b"".join(perfetto_bytes(Profile((), (), ())))) == []


def test_events_before_the_origin_move_everything_by_as_much():
    events = [
        {"start_ps": -5000, "duration_ps": 2000, "name": "early"},
        {"start_ps": 1000, "duration_ps": 2000, "name": "late"},
    ]
    profile = _one_lane(events, "stream")
    found = read(b"".join(perfetto_bytes(profile)))
    assert [(s.name, s.start_ns, s.end_ns) for s in found] == [("early", 0, 2), ("late", 6, 8)]


def test_long_names_and_late_times_survive():
    name = "fusion_" * 3000
    start_ns = 2**54
    events = [{"start_ps": start_ns * 1000 // 8, "duration_ps": 8000, "name": name}]
    (found,) = read(b"".join(perfetto_bytes(_one_lane(events, "stream"))))
    assert (found.name, found.start_ns) == (name, start_ns // 8)


intervals = st.lists(
    st.tuples(st.integers(0, 40), st.integers(0, 12), st.sampled_from("abc")), max_size=30
)


@given(intervals, st.sampled_from(["stream", "thread"]))
def test_any_overlap_keeps_every_time_and_name(times, role):
    rows = [{"start_ps": s * 1000, "duration_ps": d * 1000, "name": n} for s, d, n in times]
    found = read(b"".join(perfetto_bytes(_one_lane(rows, role))))
    assert sorted((s.start_ns, s.end_ns, s.name) for s in found) == sorted(
        (start, start + length, name) for start, length, name in times
    )
    if role == "stream":
        assert all(s.depth == 0 for s in found)


def _one_lane(rows: list[dict], role: str) -> Profile:
    columns = EVENT_COLUMNS if role == "stream" else HOST_COLUMNS
    made = table(columns, rows)
    lane = Lane("lane", 0, 0 if role == "stream" else None, role)
    device = Device("/device:GPU:0", 0, 0, "gpu")
    kind = {"events": made} if role == "stream" else {"host_events": made}
    return Profile((Host("h", "f"),), (device,), (lane,), **kind)


def test_many_events_are_written_in_pieces():
    count = 60_000
    profile = small_profile()
    arrays = {
        c.name: np.resize(profile.events[c.name], count).astype(c.dtype) for c in EVENT_COLUMNS
    }
    arrays["start_ps"] = np.arange(count) * 2_000_000
    arrays["duration_ps"] = np.full(count, 1_000_000)
    profile = profile.with_events(profile.events.replace(**arrays))
    found = read(b"".join(perfetto_bytes(profile)))
    assert sum(s.category == "device" for s in found) == count


def test_a_known_program_names_its_slices():
    built = profile().annotation(0, 0, 60).kernel("dot.1", 40).all_reduce(30, hidden=10)
    found = read(b"".join(perfetto_bytes(built.build())))
    named = {s.name: s.notes for s in found if s.category == "device"}
    assert list(named) == ["x @ y · dot.1", "all-reduce 32 B · all-reduce.1"]
    assert named["x @ y · dot.1"] == {
        "instruction": "dot.1",
        "phase": "other",
        "category": "matmul",
        "kernel": "dot_1",
        "op": "dot.1",
        "program": BUILT,
    }


def test_a_recording_says_where_slices_come_from(data):
    found = read(b"".join(perfetto_bytes(load(data / "off_default.xplane.pb.gz"))))
    copies = [s for s in found if s.name == "copy to host 134 MB · wrapped_dynamic-update-slice"]
    assert len(copies) == 24
    assert {(s.notes["source"], s.notes["op"]) for s in copies} == {
        ("dev_off.py:18", "command_buffer_14")
    }


def test_counters_of_a_device():
    """
    compute        ████████████████████████████████████████
    communication                                ███████████████
    µs             0         10        20        30        40        50
    """
    built = profile().kernel("dot.1", 40).all_reduce(15, hidden=10)
    found = read_all(b"".join(perfetto_bytes(built.build()))).counters
    told = {
        (track, unit): [(time / 1000, value) for time, value in values]
        for (_, track, unit), values in found.items()
    }
    assert told == {
        ("busy", "%"): [(0, 100), (40, 50), (50, 0)],
        ("compute", "%"): [(0, 100), (40, 0)],
        ("communication", "%"): [(0, 0), (30, 100), (40, 50), (50, 0)],
        ("link, each way", "GB/s"): [(30, pytest.approx(32 / 15e3)), (45, 0)],
    }

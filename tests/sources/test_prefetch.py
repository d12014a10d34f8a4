"""Files that are walked before they are read: the same profile, the same errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from slipstream.errors import BadInput
from slipstream.sources import prefetch
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message
from slipstream.sources.xplane import lines as xlines
from slipstream.sources.xplane.metadata import Metadata, fields

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """A recording whose lines all count as long."""
    monkeypatch.setattr(xlines, "LONG_PART", 1 << 10)
    monkeypatch.setattr(prefetch, "LONG_PART", 1 << 10)
    monkeypatch.setattr(prefetch, "_PREFETCHED", {})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(gzip.decompress((DATA / "off_lhs_nocb.xplane.pb.gz").read_bytes()))
    return path


def test_a_prefetched_file_reads_the_same(recording) -> None:
    plain = load(recording)
    prefetch.prefetch(str(recording))
    ((reading, _),) = prefetch._PREFETCHED.values()
    found = load(str(recording))
    assert len(reading.walk._scans) >= 5
    assert found is not plain
    assert found.events.texts == plain.events.texts
    for column in plain.events.columns:
        assert np.array_equal(found.events[column.name], plain.events[column.name])


def test_what_was_prefetched_is_used_once(recording) -> None:
    """A file that is recorded again is read again, not from the old mapping."""
    prefetch.prefetch(str(recording))
    before = load(str(recording))
    assert not prefetch._PREFETCHED
    other = gzip.decompress((DATA / "off_default.xplane.pb.gz").read_bytes())
    recording.with_suffix(".new").write_bytes(other)
    recording.with_suffix(".new").rename(recording)
    after = load(str(recording))
    assert after.events.texts != before.events.texts
    prefetch.prefetch(str(recording))
    assert prefetch.take_prefetched(recording) is None
    assert load(str(recording), run="any").events.texts == after.events.texts
    assert prefetch.take_prefetched(str(recording)) is not None


def test_a_file_that_is_cut_short_is_still_an_error(recording) -> None:
    whole = recording.read_bytes()
    recording.write_bytes(whole[: len(whole) * 3 // 4])
    prefetch.prefetch(str(recording))
    with pytest.raises(BadInput, match="is not a complete XPlane file"):
        load(str(recording))


def test_what_is_short_or_packed_is_not_walked(recording) -> None:
    packed = recording.with_suffix(".gz")
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    assert prefetch.walk_file(str(packed)) is None
    recording.write_bytes(b"\x0a\x00")
    assert prefetch.walk_file(str(recording)) is None


@pytest.mark.parametrize(
    "name", ["off_lhs_nocb", "off_default", "attention_graphs", "nccl2_lhs_r0", "single"]
)
def test_metadata_is_what_protobuf_reads(name: str) -> None:
    raw = gzip.decompress((DATA / f"{name}.xplane.pb.gz").read_bytes())
    data = np.frombuffer(raw, np.uint8)
    expected = message("XSpace").FromString(raw).planes
    path = Path(name)
    places = [
        (p, n) for number, _, n, p in fields(path, data, 0, len(data), "XSpace") if number == 1
    ]
    for plane, (at, length) in zip(expected, places, strict=True):
        found = Metadata(path, data, fields(path, data, at, at + length, "XPlane"))
        names = {key: value.name for key, value in plane.stat_metadata.items()}
        assert found.stat_names == names
        assert {key: (e.name, e.display_name, e.stats) for key, e in found.events.items()} == {
            key: (e.name, e.display_name, stats(e.stats, names))
            for key, e in plane.event_metadata.items()
        }
        assert found.stats == stats(plane.stats, names)


def stats(found, names):
    """Stats by name, as protobuf has them."""
    values = {}
    for stat in found:
        kind = stat.WhichOneof("value")
        if kind == "ref_value":
            values[names.get(stat.metadata_id, "")] = names.get(stat.ref_value, "")
        elif kind not in (None, "bytes_value"):
            values[names.get(stat.metadata_id, "")] = getattr(stat, kind)
    return values

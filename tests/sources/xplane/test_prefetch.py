"""Files that are walked before they are read: the same profile, the same errors."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from slipstream.errors import BadInput
from slipstream.sources.load import load, read_ahead
from slipstream.sources.proto_schema import message
from slipstream.sources.xplane import lines as xlines
from slipstream.sources.xplane import prefetch
from slipstream.sources.xplane.metadata import Metadata, fields

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def recording(tmp_path, monkeypatch):
    """A recording whose lines all count as long."""
    monkeypatch.setattr(xlines, "LONG_PART", 1 << 10)
    monkeypatch.setattr(prefetch, "LONG_PART", 1 << 10)
    monkeypatch.setattr(prefetch, "_WALKS", {})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(gzip.decompress((DATA / "off_lhs_nocb.xplane.pb.gz").read_bytes()))
    return path


def test_a_file_that_was_walked_reads_the_same(recording) -> None:
    plain = load(recording)
    prefetch.walk_ahead(str(recording))
    (walk,) = prefetch._WALKS.values()
    read_ahead(str(recording))
    found = load(str(recording))
    assert len(walk.scans) >= 5
    assert found.events.texts == plain.events.texts
    for column in plain.events.columns:
        assert np.array_equal(found.events[column.name], plain.events[column.name])


def test_a_file_that_is_cut_short_is_still_an_error(recording) -> None:
    whole = recording.read_bytes()
    recording.write_bytes(whole[: len(whole) * 3 // 4])
    prefetch.walk_ahead(str(recording))
    with pytest.raises(BadInput, match="is not a whole XPlane file"):
        load(recording)


def test_what_is_short_or_packed_is_not_walked(recording) -> None:
    packed = recording.with_suffix(".gz")
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    prefetch.walk_ahead(str(packed))
    recording.write_bytes(b"\x0a\x00")
    prefetch.walk_ahead(str(recording))
    assert not prefetch._WALKS


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

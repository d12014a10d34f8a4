"""Segments against the events they come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import profile
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.profile.timeline.nesting import self_intervals
from slipstream.profile.timeline.segments import ANY_KIND, kind_mask
from slipstream.sources.load import load


@pytest.mark.parametrize("name", ["nccl2_lhs_r0", "off_default", "off_lhs_nocb"])
def test_stretches_of_a_recording_are_its_events_in_order(data: Path, name: str):
    found = load(data / f"{name}.xplane.pb.gz")
    row, start, duration = self_intervals(found)
    order = np.lexsort((row, start))
    seen = found.segments
    assert seen.row.tolist() == row[order].tolist()
    assert seen.start_ps.tolist() == start[order].tolist()
    assert seen.duration_ps.tolist() == duration[order].tolist()
    assert seen.kind.tolist() == kinds(found)[row[order]].tolist()
    assert seen.ends.tolist() == [len(row)]


def test_devices_one_after_another():
    built = profile(known=False).kernel("b.1", 10).at(0).kernel("a.1", 5, lane="other")
    built.device("GPU:1").at(3).all_reduce(7)
    found = built.build()
    parts = dict(found.segments.by_device())
    assert {device: len(part) for device, part in parts.items()} == {0: 2, 1: 1}
    assert [part.union().length for part in parts.values()] == [10 * 10**6, 7 * 10**6]
    assert parts[1].union(kind_mask(COMPUTE, COPY)).length == 0
    assert parts[1].union(kind_mask(COMMUNICATION)).length == 7 * 10**6
    (covered,) = parts[0].covered([ANY_KIND], np.array([2 * 10**6]), np.array([4 * 10**6]))
    assert covered.tolist() == [2 * 10**6]


def test_an_empty_profile_has_none():
    assert not len(profile().build().segments)

"""Hosts beside each other: clocks, skew, stragglers."""

from __future__ import annotations

from pathlib import Path

import pytest

from analyses.pax import both
from analyses.test_collectives import SKEW, two_hosts
from builders import profile
from slipstream.analyses.hosts import HostRow, hosts


def test_the_whole_table_of_two_hosts():
    found = hosts(two_hosts(late=30.0))
    assert (found.hosts, found.devices, found.clock, found.matched) == (2, 2, "collectives", 6)
    assert found.alignment_us == found.alignment_95_us == pytest.approx(0.0, abs=1e-6)
    assert found.compute_spread == pytest.approx(130 / 115 - 1)
    model = "NVIDIA H200"
    assert found.rows == (
        HostRow("host", "GPU:0", model, 6, 200.0, 100.0, 50.0, 50.0, 0.0, 0.0, 0.0, 0.0,
                pytest.approx(30.0)),
        HostRow("other", "GPU:1", model, 6, 200.0, 130.0, 20.0, 50.0, SKEW, 0.0, 1.0,
                pytest.approx(30.0), 0.0),
    )  # fmt: skip
    # It is late because it computes longer.
    assert [row.device for row in found.slow] == ["GPU:1"]


def test_one_device_has_nothing_to_compare_with():
    found = hosts(profile().kernel("dot.1", 10).build())
    assert (found.clock, found.matched, found.alignment_us) == ("one", 0, None)
    assert found.notes == ("one device was recorded: there is nothing to compare it with",)


def test_hosts_without_a_common_collective():
    built = profile().kernel("dot.1", 10).host("other").device("GPU:1").execution_of()
    built.kernel("dot.1", 10)
    assert hosts(built.build()).clock == "recorded"
    found = hosts(built.warn("clock-skew").build())
    assert (found.clock, found.rows[1].clock_offset_us) == ("unknown", None)
    assert "no collective was recorded by two devices" in found.notes[0]


def test_the_two_processes_of_pax(external: Path):
    found = hosts(both(external))
    assert (found.hosts, found.clock, found.matched) == (2, "collectives", 92)
    assert found.alignment_us == pytest.approx(0.96, abs=0.01)
    first, second = found.rows
    assert second.clock_offset_us == pytest.approx(-28541, abs=1)
    # Both compute equally long: whoever comes late was held up by its host.
    assert found.compute_spread < 0.01
    assert found.slow == ()
    assert first.last_share == pytest.approx(64 / 92)

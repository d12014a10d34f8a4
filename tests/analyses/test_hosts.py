"""Hosts compared: clocks, skew, stragglers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.pax import both
from analyses.test_collectives import GATHER, SKEW, two_hosts
from builders import STEP, profile
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
    assert [(one.row.device, one.others_us) for one in found.slow] == [("GPU:1", 100.0)]


@pytest.mark.parametrize(
    ("other", "slow"),
    [
        ([102] * 6, []),  # 2% longer
        ([90, 140, 95, 130, 99, 150], []),  # longer on the whole, but not in every step
        ([108] * 6, ["GPU:1"]),
    ],
)
def test_a_device_is_slow_if_it_computes_noticeably_longer_in_its_steps(other, slow):
    built = profile()
    for _ in range(6):
        built.kernel("dot.1", 100).idle(100).execution_of()
    built.host("other").device("GPU:1")
    for us in other:
        built.execution_of().kernel("dot.1", us).idle(100)
    assert [one.row.device for one in hosts(built.build()).slow] == slow


@given(
    st.lists(st.tuples(st.integers(60, 90), st.integers(60, 90)), min_size=3, max_size=6),
    st.integers(-400, 400),
)
def test_two_hosts_counted_plainly(computing, ahead):
    """Both gather when the last has computed, for 20 µs; one clock is ahead of the other."""
    built = profile().with_program(STEP, GATHER)
    for number in (0, 1):
        if number:
            built.host("other").device("GPU:1").execution_of()
        for step, works in enumerate(computing):
            end = 200 * step + max(works) + 20
            built.at(200 * step + ahead * number).kernel("dot.1", works[number])
            built.all_reduce(end - 200 * step - works[number], op="all-gather.1").execution_of()
    found = hosts(built.build())
    assert found.matched == len(computing)
    middle = [float(np.median([works[number] for works in computing])) for number in (0, 1)]
    assert [row.compute_us for row in found.rows] == middle
    assert found.compute_spread == pytest.approx(max(middle) / np.mean(middle) - 1)
    assert found.rows[1].clock_offset_us == pytest.approx(ahead, abs=1e-6)
    for number, row in enumerate(found.rows):
        late = [works[number] - works[1 - number] for works in computing]
        caused = sum(one for one in late if one > 0)
        waited = sum(-one for one in late if one < 0)
        assert row.waited_us == pytest.approx(waited / len(computing), abs=1e-6)
        assert row.caused_us == pytest.approx(caused / len(computing), abs=1e-6)


def test_one_device_has_nothing_to_compare_with():
    found = hosts(profile().kernel("dot.1", 10).build())
    assert (found.clock, found.matched, found.alignment_us) == ("one", 0, None)
    assert found.notes == ("only one device was recorded: there is nothing to compare it with",)


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

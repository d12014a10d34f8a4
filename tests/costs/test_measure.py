"""What an instruction's kernels take, as events of streams."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import builders
from slipstream.costs.extract import extract_costs
from slipstream.costs.measure import added_ps
from slipstream.sources.load import load


def test_kernels_that_overlap_on_a_stream_count_once() -> None:
    found = builders.profile().kernel("one", 10).at(6).kernel("two", 8).at(7).kernel("three", 2)
    profile = found.at(20).kernel("four", 5).build()
    added = added_ps(profile) / 1e6
    rows = range(len(profile.events))
    names = {profile.events.text("name", row): added[row] for row in rows}
    assert names == {"one": 10, "two": 4, "three": 0, "four": 5}


def test_kernels_that_compute_side_by_side_share_the_time() -> None:
    """Communication and copies beside them do not: those are to be hidden behind compute."""
    built = builders.profile().kernel("one", 12).at(4).kernel("two", 12, lane="Stream #2")
    profile = built.at(0).all_reduce(16).at(0).copy(16).build()
    added = added_ps(profile) / 1e6
    names = {profile.events.text("name", row): added[row] for row in range(len(profile.events))}
    assert [names.pop("one"), names.pop("two")] == [8, 8]
    assert list(names.values()) == [16, 16]


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(1, 20), st.integers(1, 3)),
        min_size=1,
        max_size=12,
    )
)
def test_what_all_add_is_the_time_in_which_something_runs(
    events: list[tuple[int, int, int]],
) -> None:
    built = builders.profile()
    for number, (start, length, stream) in enumerate(events):
        built = built.at(start).kernel(f"k{number}", length, lane=f"Stream #{stream}")
    covered = {tick for start, length, _ in events for tick in range(start, start + length)}
    added = added_ps(built.build())
    assert (added >= 0).all()
    assert abs(added.sum() - len(covered) * 1_000_000) <= len(events)  # rounded


def test_a_kernel_that_waits_for_the_one_before_it_costs_what_it_adds(data: Path) -> None:
    """JAX without CUDA graphs launches the next kernel early; it sits there for 700 µs."""
    profile = load(data / "accuracy/mixer.unscheduled.xplane.pb.gz")
    (program, *_) = extract_costs(profile).programs
    assert program.costs["loop_subtract_fusion.10"].us < 10
    events = profile.events
    rows = [r for r in range(len(events)) if events.text("instruction", r).startswith("loop_sub")]
    assert max(events["duration_ps"][rows]) > 700e6
    busy = np.median(profile.runs.end_ps - profile.runs.start_ps) / 1e6
    assert program.total_us < busy

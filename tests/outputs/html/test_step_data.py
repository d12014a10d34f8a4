"""The step of a page's timeline: which it is, what is thinned, who is whose partner."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import profile
from slipstream.analyses.slack import slack
from slipstream.outputs.formatting import time_text
from slipstream.outputs.html.sections.timeline import timeline_section
from slipstream.outputs.html.step_data import LaneSlices, StepView, _thin, _thinned, window
from slipstream.sources.load import load


def lane(starts, durations, kinds) -> LaneSlices:
    columns = [np.array(c, np.int64) for c in (starts, durations)]
    size = len(starts)
    rows = np.arange(size)
    return LaneSlices(0, *columns, rows, np.array(kinds, np.int64), np.ones(size, np.int64), rows)


def plainly_thinned(found: LaneSlices, grain: float) -> list[tuple[int, int, int, int]]:
    """(start, duration, longest event, count) of each slice, one event at a time."""
    blocks: list[list[int]] = []
    for at in range(len(found.start)):
        before = blocks[-1][-1] if blocks else None
        joins = (
            before is not None
            and max(found.duration[at], found.duration[before]) < grain
            and found.start[at] // grain == found.start[before] // grain
            and found.kind[at] == found.kind[before]
        )
        blocks[-1].append(at) if joins else blocks.append([at])
    made = []
    for block in blocks:
        end = max(int(found.start[at] + found.duration[at]) for at in block)
        longest = max(block, key=lambda at: (found.duration[at], -at))
        start = int(found.start[block[0]])
        made.append((start, end - start, longest, len(block)))
    return made


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(1, 30), st.integers(0, 2)), max_size=60),
    st.integers(1, 40),
)
def test_thinning_is_what_it_says(events, grain):
    """The fast way and the plain way agree, and no event is lost."""
    if not events:
        return
    gaps, durations, kinds = zip(*events, strict=True)
    starts = np.cumsum(gaps) + np.concatenate(([0], np.cumsum(durations)[:-1]))
    found = lane(starts, durations, kinds)
    thin = _thin(found, grain)
    columns = (thin.start, thin.duration, thin.row, thin.count)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == plainly_thinned(found, grain)
    assert thin.count.sum() == len(events)


def test_a_step_that_fits_is_not_thinned():
    found = lane([0, 10], [5, 5], [0, 0])
    assert _thinned([found], 2, 100) == ([found], 0.0)
    thin, grain = _thinned([lane(range(0, 1000, 2), [1] * 500, [0] * 500)], 50, 1000)
    assert len(thin[0].start) <= 50 and grain > 0 and thin[0].count.sum() == 500


def test_the_median_step_is_shown():
    built = profile()
    for us in (100, 300, 110, 105, 120):
        built.execution_of().kernel("dot.1", us)
    found = built.build()
    shown = window(found)
    walls = {
        int(number): int(end - start)
        for number, start, end in zip(
            found.steps.number, found.steps.start_ps, found.steps.end_ps, strict=True
        )
    }
    assert shown is not None
    assert walls[shown.number] == sorted(walls.values())[(len(walls) - 1) // 2]
    view = StepView(found, shown)
    assert view.events == 1 and view.data({(view.labels[0][2]): 7}, {})["labels"][0][2] == 7


def test_no_steps_no_step():
    assert window(profile().build()) is None


def test_a_collective_leads_to_what_waits_for_it():
    built = profile()
    for _ in range(3):
        built.execution_of().kernel("dot.1", 50).all_reduce(20).kernel("dot.2", 30)
    found = built.build()
    shown = window(found)
    assert shown is not None
    view = StepView(found, shown)
    keys = {key[1]: key for _, _, key in view.labels if key is not None}
    data = view.data({}, {keys["all-reduce.1"]: "dot.2"})
    starts = {
        view.labels[label][0]: (one["id"], int(start))
        for one in data["lanes"]
        for label, start in zip(one["labels"], np.cumsum(one["starts"]), strict=True)
    }
    links = [link for one in data["lanes"] for link in one["partners"]]
    target = next(place for name, place in starts.items() if "dot_2" in name or "dot.2" in name)
    assert links == [[0, *target]]


def test_a_step_is_as_long_as_on_its_median_device():
    """On the first device alone, step 3 would be the one of median length."""
    built = profile()
    for device, lengths in enumerate(((50, 40, 60, 44), (52, 60, 40, 70), (56, 60, 40, 70))):
        if device:
            built.device(f"GPU:{device}")
        at = 5 * device
        for us in lengths:
            built.at(at).execution_of().kernel("dot.1", us)
            at += us
    found = built.build()
    shown = window(found)
    assert shown is not None and found.steps.typical == shown.number == 0
    assert (shown.lengths_us, shown.span_us) == ((50.0, 52.0, 56.0), 66.0)
    lede = timeline_section(found, StepView(found, shown)).lede
    assert lede == (
        "Step 0, of median length: 52 µs on its median device, 50 µs to 56 µs on all 3. The "
        "devices don't start together, so 3 events span 66 µs. Click a slice for its source, "
        "cost, slack and partner."
    )
    assert slack(found).step == 0


def test_devices_in_step_have_one_length():
    built = profile()
    for device in range(2):
        if device:
            built.device("GPU:1").at(0)
        for _ in range(3):
            built.execution_of().kernel("dot.1", 100)
    found = built.build()
    shown = window(found)
    assert shown is not None
    lede = timeline_section(found, StepView(found, shown)).lede
    assert str(lede).startswith(
        f"Step {shown.number}, of median length: 2 events in {time_text(shown.span_us)}. Click"
    )


def test_the_step_of_eight_devices_is_the_one_of_median_length(external):
    """Steps of 1 to 45 ms; on the first device of this step 17, on the second 35 ms."""
    found = load(external / "jax_mi300_8gpu.xplane.pb")
    shown = window(found)
    assert shown is not None and shown.number == 0
    lede = str(timeline_section(found, StepView(found, shown)).lede)
    assert lede.startswith(
        "Step 0, of median length: 17.6 ms on its median device, 13.6 ms to 35.1 ms on all 8. "
        "The devices don't start together, so 47 events span 35.5 ms."
    )

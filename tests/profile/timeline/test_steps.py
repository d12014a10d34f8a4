"""Where steps begin and end, by annotations or by executions, and what is left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PS, STEP, profile, space
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.steps import Steps
from slipstream.profile.validation import validate
from slipstream.sources.load import load

HOTTEST = f"executions of {STEP}, the program with the most device time"


def rows(found: Profile) -> list[tuple[int, int, float, float]]:
    """(device, number, start, end) of each step, in µs."""
    validate(found)
    steps = found.steps
    times = ((steps.start_ps / PS).tolist(), (steps.end_ps / PS).tolist())
    return list(zip(steps.device.tolist(), steps.number.tolist(), *times, strict=True))


def run(built, at: float, *spans: float):
    """One execution: a kernel of each length, back to back."""
    built.at(at)
    for number, span in enumerate(spans, 1):
        built.kernel(f"dot.{number}", span)
    return built.execution_of()


def test_a_step_lasts_until_the_next_one_begins():
    built = profile()
    for at in (0, 25, 50):
        run(built, at, 10, 10)
    found = built.build()
    assert rows(found) == [(0, 0, 0, 25), (0, 1, 25, 50), (0, 2, 50, 70)]
    assert (found.steps.basis, found.steps.rule) == ("executions", HOTTEST)
    assert found.steps.count == 3


def test_the_program_with_the_most_time_makes_the_steps():
    built = profile()
    for at in (0, 100, 200):
        run(built, at, 10, 40)
        for more in (60, 65, 70):
            built.execution_of("jit_small(2)").at(at + more).kernel("add.1", 2).execution_of()
    found = built.build()
    assert rows(found) == [(0, 0, 0, 100), (0, 1, 100, 200), (0, 2, 200, 250)]
    # What other programs do between counts to the step; after the last one there is no step.
    assert np.bincount(found.steps.of_events(found)).tolist() == [5, 5, 2, 3]


def test_a_function_that_is_compiled_again_for_each_step():
    """Each program runs once; together they are the steps of one function."""
    built = profile()
    for number, at in enumerate((0, 25, 50)):
        built.execution_of(f"jit_step({number})").at(at).kernel("dot.1", 10).kernel("dot.2", 10)
        built.execution_of("jit_small(9)").kernel("add.1", 1)
    found = built.build()
    assert rows(found) == [(0, 0, 0, 25), (0, 1, 25, 50), (0, 2, 50, 70)]
    again = "jit_step, compiled again for each"
    assert found.steps.rule == f"executions of {again}, the program with the most device time"
    # Annotations count all of them, even if one program runs more than once.
    built.execution_of("jit_step(0)").at(75).kernel("dot.1", 10).kernel("dot.2", 10)
    assert built.build().steps.count == 2
    for number, at in enumerate((0, 25, 50, 75)):
        built.annotation(number, at, 24)
    assert built.build().steps.number.tolist() == [0, 1, 2, 3]


def test_a_slow_first_step_is_warm_up():
    built = profile()
    for at, span in ((0, 40), (50, 20), (75, 20), (100, 20)):
        run(built, at, span)
    found = built.build()
    assert rows(found) == [(0, 1, 50, 75), (0, 2, 75, 100), (0, 3, 100, 120)]
    assert found.steps.rule == f"{HOTTEST}; left out: 1 slow first step (warm-up)"


def test_of_two_steps_neither_is_warm_up():
    assert len(rows(run(run(profile(), 0, 40), 50, 20).build())) == 2


def test_executions_cut_off_by_the_recording():
    built = profile().kernel("dot.2", 4).execution_of()
    for at in (10, 30, 50):
        run(built, at, 8, 8)
    found = built.at(70).kernel("dot.1", 3).build()
    assert rows(found) == [(0, 0, 10, 30), (0, 1, 30, 50), (0, 2, 50, 66)]
    assert found.steps.rule == f"{HOTTEST}; left out: 2 executions cut off by the recording"


def test_an_execution_that_is_short_in_the_middle_stays():
    built = profile()
    for number, at in enumerate((0, 20, 40, 60)):
        run(built, at, *((8, 8) if number != 1 else (8,)))
    assert len(rows(built.build())) == 4


def test_a_pause_between_steps_belongs_to_none():
    built = profile()
    for at in (0, 25, 50, 1000, 1025, 1050):
        run(built, at, 10, 10)
    found = built.build()
    assert rows(found)[2:4] == [(0, 2, 50, 70), (0, 3, 1000, 1025)]
    assert found.steps.rule == f"{HOTTEST}; left out: 1 pause between steps"


def test_a_long_step_is_no_pause():
    built = profile()
    for at, span in ((0, 20), (20, 20), (40, 200), (240, 20), (260, 20)):
        run(built, at, span)
    found = built.build()
    assert rows(found)[2] == (0, 2, 40, 240)
    assert found.steps.rule == HOTTEST


def test_a_long_step_that_the_next_one_overtakes_ends_there():
    """Work of one execution may still run on another stream when the next begins."""
    built = profile()
    for number, at in enumerate((0, 20, 40, 200, 220, 240)):
        built.at(at).kernel("dot.1", 10)
        built.all_reduce(10 if number != 2 else 170).execution_of()
    found = built.build()
    assert rows(found)[2:4] == [(0, 2, 40, 200), (0, 3, 200, 220)]


# Annotations.


def test_steps_that_wait_for_their_results_are_their_annotations():
    built = profile()
    for number, at in enumerate((0, 30, 60), 7):
        run(built, at + 5, 10, 10).annotation(number, at, 28)
    found = built.build()
    assert rows(found) == [(0, 7, 0, 30), (0, 8, 30, 60), (0, 9, 60, 88)]
    assert (found.steps.basis, found.steps.rule) == ("annotations", "step annotations")


def test_a_first_annotation_that_compiles_is_warm_up():
    built = profile()
    for number, (at, span) in enumerate(((0, 500), (500, 30), (530, 30), (560, 30))):
        run(built, at + span - 25, 10, 10).annotation(number, at, span)
    found = built.build()
    assert [row[1] for row in rows(found)] == [1, 2, 3]
    assert found.steps.rule == "step annotations; left out: 1 slow first step (warm-up)"


def dispatched_early(launches: bool) -> Profile:
    """The host runs ahead: all annotations are over before the device has begun its second step.

    host     ▐0▌▐1▌▐2▌
    device      ▐──0──▌▐──1──▌▐──2──▌
    """
    built = profile()
    for number in range(3):
        built.annotation(number, 2 * number, 1.5)
        if launches:
            for place in (1, 2):
                built.launch(2 * number + place, 2 * number + 0.1 * place)
        run(built, 3 + 20 * number, 10, 10)
    return built.build()


def test_launches_tell_which_annotation_an_execution_is_of():
    found = dispatched_early(launches=True)
    assert rows(found) == [(0, 0, 3, 23), (0, 1, 23, 43), (0, 2, 43, 63)]
    assert found.steps.basis == "annotations"


def test_without_launches_only_the_times_tell():
    assert [row[1] for row in rows(dispatched_early(launches=False))] == [1, 2]


def test_an_annotation_that_launched_nothing_is_no_step():
    built = profile()
    for number, at in enumerate((0, 2, 4, 6)):
        built.annotation(number, at, 1.5)
        if number != 1:
            built.launch(built.correlation + 1, at + 0.1).launch(built.correlation + 2, at + 0.2)
            run(built, 5 + 20 * number, 10, 10)
    assert [row[1] for row in rows(built.build())] == [0, 2, 3]


def test_a_step_whose_annotation_the_recording_cut_off_is_no_step():
    """Profiling stopped inside the last annotation: it was not recorded, its work was."""
    built = profile()
    for number in range(3):
        if number < 2:
            built.annotation(number, 30 * number, 28)
        for place in (1, 2):
            built.launch(2 * number + place, 30 * number + 0.1 * place)
        run(built, 30 * number + 5, 10, 10)
    found = built.build()
    assert [row[1] for row in rows(found)] == [0, 1]
    assert np.bincount(found.steps.of_events(found)).tolist() == [2, 2, 2]


def test_launches_of_other_threads_do_not_count():
    built = profile()
    for number in range(3):
        at = 30 * number
        built.annotation(number, at, 28).launch(99 + number, at + 1, "another thread")
        run(built, at + 5, 10, 10)
    assert [row[1] for row in rows(built.build())] == [0, 1, 2]


def test_several_executions_in_one_step():
    """Gradient accumulation: a step runs its program three times."""
    built = profile()
    for number in range(3):
        built.annotation(number, 100 * number, 95)
        for part in range(3):
            run(built, 100 * number + 30 * part + 2, 10, 10)
    found = built.build()
    assert rows(found) == [(0, 0, 0, 100), (0, 1, 100, 200), (0, 2, 200, 295)]
    assert np.bincount(found.steps.of_events(found)).tolist() == [6, 6, 6]


def test_annotations_that_all_have_one_number_are_counted():
    built = profile()
    for number in range(3):
        run(built, 30 * number + 5, 10, 10).annotation(0, 30 * number, 28)
    assert [row[1] for row in rows(built.build())] == [0, 1, 2]


def test_work_before_the_first_annotation_is_in_no_step():
    built = run(profile(), 0, 10, 10)
    for number, at in enumerate((50, 80, 110)):
        run(built, at + 5, 10, 10).annotation(number, at, 28)
    found = built.build()
    assert rows(found)[0] == (0, 0, 50, 80)
    assert found.steps.of_events(found).tolist()[:2] == [3, 3]


# Several devices.


def test_every_device_has_its_own_steps():
    built = profile()
    for device, late in (("GPU:0", 0), ("GPU:1", 3)):
        if device != "GPU:0":
            built.device(device).execution_of()
        for at in (0, 25, 50):
            run(built, at + late, 10, 10)
    found = built.build()
    assert rows(found) == [
        (0, 0, 0, 25), (0, 1, 25, 50), (0, 2, 50, 70),
        (1, 0, 3, 28), (1, 1, 28, 53), (1, 2, 53, 73),
    ]  # fmt: skip
    assert found.steps.count == 3


def test_one_annotation_counts_for_all_devices_of_its_host():
    built = profile()
    for number, at in enumerate((0, 30, 60)):
        built.annotation(number, at, 28)
    for at in (0, 30, 60):
        run(built, at + 5, 10, 10)
    built.device("GPU:1").execution_of()
    for at in (0, 30, 60):
        run(built, at + 7, 10, 10)
    found = built.build()
    assert [row[:2] for row in rows(found)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]


def test_where_one_host_has_no_annotations_executions_tell():
    built = profile()
    for number, at in enumerate((0, 30, 60), 5):
        run(built, at + 5, 10, 10).annotation(number, at, 28)
    built.host("other").device("GPU:0").execution_of()
    for at in (0, 30, 60):
        run(built, at, 10, 10)
    found = built.build()
    assert found.steps.basis == "executions"
    assert {row[1] for row in rows(found)} == {0, 1, 2}


# None.


def without_programs(built) -> Profile:
    found = built.build()
    zeros = np.zeros_like(found.events["program"])
    return replace(found, events=found.events.replace(program=zeros, instruction=zeros))


def test_without_programs_the_whole_recording_is_one():
    built = profile().at(5).kernel("a", 10).idle(30).kernel("b", 10)
    built.device("GPU:1").execution_of().at(1).kernel("a", 2)
    found = without_programs(built)
    assert rows(found) == [(0, 0, 5, 55), (1, 0, 1, 3)]
    assert found.steps.basis == "recording"
    assert found.steps.rule == "the whole recording: it contains no program"


def test_of_a_profile_without_events():
    found = profile().build()
    assert rows(found) == []
    assert found.steps.basis == "recording"


def test_tpu_steps_without_numbers_are_counted(tmp_path):
    built = space()
    for ordinal in range(2):
        line = built.tpu(ordinal).line("Steps")
        line.event("step", 50, 40).event("step", 0, 40)
        built.tpu(ordinal).line("XLA Ops").event("dot.1", 0, 30).event("dot.1", 50, 30)
    found = load(built.write(tmp_path / "tpu.xplane.pb"))
    assert rows(found) == [(0, 0, 0, 40), (0, 1, 50, 90), (1, 0, 0, 40), (1, 1, 50, 90)]


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=5),
    st.lists(st.tuples(st.integers(0, 1), st.integers(-5, 50)), max_size=12),
)
def test_events_belong_to_the_step_in_which_they_start(gaps, starts):
    built = profile()
    for device, start in sorted(starts):
        if device and len(built.devices) == 1:
            built.device("GPU:1").execution_of()
        built.at(start).kernel("dot.1", 1)
    found = built.build()
    edges = np.cumsum([value for gap in gaps for value in gap]).reshape(-1, 2) * PS
    device = np.zeros(len(edges), np.int32)
    steps = Steps("executions", "", device, np.arange(len(edges)), edges[:, 0], edges[:, 1])
    expected = []
    for lane, start in zip(found.event_devices, found.events["start_ps"], strict=True):
        inside = [i for i, (a, b) in enumerate(edges) if lane == 0 and a <= start < b]
        expected.append(inside[0] if inside else len(edges))
    assert steps.of_events(found).tolist() == expected


@pytest.mark.parametrize("count", [1, 2, 7])
def test_counts_of_few_steps(count):
    built = profile()
    for number in range(count):
        run(built, 30 * number, 10, 10)
    assert built.build().steps.count == count

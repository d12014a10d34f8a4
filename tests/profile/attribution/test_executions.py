"""Where one execution of a program ends and the next begins."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import STEP, Ref, profile, program, space
from slipstream.profile.attribution.attribution import attribute
from slipstream.profile.attribution.executions import graph_number
from slipstream.profile.validation import validate
from slipstream.sources.load import load


def executions(names, prog=None, launches=None):
    """Execution numbers of events with these labels, one after another."""
    built = profile(known=False)
    if prog is not None:
        built.with_program(STEP, prog)
    for place, name in enumerate(names):
        launch = place + 1 if launches is None else launches[place]
        built.kernel(name, 10, "kernel", instruction="", correlation=launch)
    found = attribute(built.build())
    validate(found)
    return found.events["execution"].tolist()


@pytest.mark.parametrize(
    "label, number",
    [
        ("command_buffer", 0),
        ("command_buffer.3", 3),
        ("command_buffer_14", 14),
        ("command_buffer_14x", None),
        ("command_buffer_" + "9" * 19, None),
        ("command_buffer_" + "9" * 5000, None),
        ("fusion.1", None),
        ("", None),
    ],
)
def test_labels_of_graphs(label, number):
    assert graph_number(label) == number


def test_a_drop_in_the_schedule_begins_an_execution():
    prog = program(STEP, ["copy.1", "dot.2", "add.3"])
    names = ["dot.2", "add.3", "copy.1", "dot.2", "add.3", "copy.1"]
    assert executions(names, prog) == [0, 0, 1, 1, 1, 2]


def test_a_program_of_one_instruction():
    assert executions(["dot.1"] * 3, program(STEP, ["dot.1"])) == [0, 1, 2]
    # Without launch numbers, as on TPUs, each event is a launch of its own.
    assert executions(["dot.1"] * 3, program(STEP, ["dot.1"]), [0, 0, 0]) == [0, 1, 2]


def test_an_instruction_that_launches_several_kernels_goes_on():
    prog = program(STEP, ["dot.1", "add.2"])
    assert executions(["dot.1", "dot.1", "add.2", "dot.1", "dot.1"], prog) == [0, 0, 0, 1, 1]


def test_instructions_of_loops_do_not_count():
    prog = program(STEP, ["copy.1", "while.2", "add.9"], {"while.2": (3, ["dot.3", "exp.4"])})
    once = ["copy.1", *["dot.3", "exp.4"] * 3, "add.9"]
    assert executions(once * 2, prog) == [0] * 8 + [1] * 8
    # A recording that begins inside a loop: its first events are of the execution that they end.
    assert executions(once[4:] + once, prog) == [0] * 4 + [1] * 8


def test_unlabelled_events_belong_to_what_came_before():
    prog = program(STEP, ["copy.1", "dot.2"])
    assert executions(["copy.1", "", "dot.2", "", "copy.1", ""], prog) == [0, 0, 0, 0, 1, 1]


def test_graphs_and_the_graphs_of_loops():
    prog = program(STEP, ["copy.1", "add.2"])
    once = ["command_buffer_1"] * 2 + ["command_buffer_14"] * 3 * 2 + ["command_buffer_45"] * 2
    # Kernels of one graph launch share its number.
    launches = [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    both = [*launches, *(n + 5 for n in launches)]
    assert executions(once * 2, prog, both) == [0] * 10 + [1] * 10


def test_a_graph_that_is_all_of_the_program():
    names = ["command_buffer"] * 6
    assert executions(names, program(STEP, ["dot.1"]), [1, 1, 2, 2, 3, 3]) == [0, 0, 1, 1, 2, 2]
    assert executions(names, None, [1, 1, 2, 2, 3, 3]) == [0, 0, 1, 1, 2, 2]


def test_without_the_program_the_rarest_labels_tell():
    once = ["copy.1", "dot.2", "dot.2", "add.3"]
    assert executions(once * 3) == [0] * 4 + [1] * 4 + [2] * 4


@given(st.integers(1, 5), st.integers(1, 4), st.integers(2, 6))
def test_any_schedule_that_repeats(runs, trips, entry):
    names = [f"op.{i}" for i in range(entry)]
    prog = program(STEP, [*names, "while.99", "end.1"], {"while.99": (trips, ["body.1"])})
    once = [*names, *["body.1"] * trips, "end.1"]
    expected = [run for run in range(runs) for _ in once]
    assert executions(once * runs, prog) == expected


def test_a_tpu_marks_its_executions(tmp_path):
    """Asynchronous operations start when they do: their place in the schedule tells nothing."""
    built = space()
    tpu = built.tpu()
    modules, ops, later = (tpu.line(n) for n in ("XLA Modules", "XLA Ops", "Async XLA Ops"))
    labels = {"program_id": 1, "hlo_module": Ref("jit_step")}
    for at in (0, 100, 200):
        modules.event(STEP, at, 60)
        ops.event("copy-start.1", at, 1, **labels).event("dot.2", at + 1, 40, **labels)
        later.event("copy-start.1", at + 20, 30, **labels)
    found = load(built.write(tmp_path / "tpu.xplane.pb"))
    validate(found)
    assert found.events["execution"].tolist() == [0, 0, 1, 1, 2, 2, 0, 1, 2]

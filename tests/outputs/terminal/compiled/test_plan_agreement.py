"""Predicted and measured, side by side."""

from slipstream.outputs.terminal.compiled.plan_agreement import agreement_lines
from slipstream.results.planning import MEASURED, Agreement, Candidate, MachinePlan, PlanCounts
from slipstream.results.tuning import OK


def measured(number, predicted, step, **more):
    choices = {"batch": number + 1, "remat": "full"}
    return Candidate(number, choices, OK, step, work=64.0, predicted_us=predicted, **more)


def test_a_table_of_what_was_measured_and_how_far_predictions_are_off():
    candidates = (
        measured(0, 90e3, 100e3, basis=MEASURED, memory_bytes=10**9, measured_memory_bytes=10**9),
        measured(1, 99e3, 90e3, basis=MEASURED, memory_bytes=2 * 10**9),
        measured(2, None, 80e3),
    )
    found = Agreement(2, 0, 0.1, 0.1, None, 0.111, text="predicted steps are off by 10%")
    plan = MachinePlan("H200", 1, candidates, candidates[1], (), (), PlanCounts(3), agreement=found)
    assert [line.rstrip() for line, _ in agreement_lines(plan, 100)] == [
        "",
        "#  predicted  measured   error  memory  measured  error",
        "1      99 ms     90 ms  +10.0%    2 GB         –      –  batch=2",
        "0      90 ms    100 ms  -10.0%    1 GB      1 GB  +0.0%  batch=1",
    ]


def test_nothing_is_said_of_a_plan_without_measurements():
    plan = MachinePlan("H200", 1, (measured(2, None, 80e3),), None, (), (), PlanCounts(1))
    assert agreement_lines(plan, 100) == []

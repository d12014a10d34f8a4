"""Candidates of a plan measured on eight devices of the CPU, and the plan ranked again."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.errors import BadInput, Missing
from slipstream.plan.measure import measuring
from slipstream.plan.measure.measure import check_same_target, measure
from slipstream.plan.measure.selection import MeasureOptions, chosen
from slipstream.plan.plan_folder import read_plan
from slipstream.plan.plans import show
from slipstream.results.planning import INVALID, MEASURED, SIMULATED
from slipstream.results.tuning import CRASH, OK, REFUSED

QUICK = MeasureOptions(best=3, bad=1, rounds=2, steps=2, timeout_s=120)


def test_the_best_few_and_one_that_should_be_bad_are_measured(planned):
    # Predicted upside down: what takes longest is said to be fastest.
    folder = planned([({"work": n}, 100.0 / n, 64.0) for n in (1, 2, 3, 4, 5)])
    seen = []
    plan = measure(folder, QUICK, use_gpu=False, on_result=lambda one, _: seen.append(one.number))
    (machine,) = plan.machines
    assert sorted(seen) == [0, 2, 3, 4]
    by_work = {one.choices["work"]: one for one in machine.candidates}
    assert {n: one.basis for n, one in by_work.items()} == {
        1: MEASURED, 2: SIMULATED, 3: MEASURED, 4: MEASURED, 5: MEASURED,
    }  # fmt: skip
    for n in (1, 3, 4, 5):
        one = by_work[n]
        assert one.status == OK and one.predicted_us == 100.0 / n
        assert 0 < one.low_us <= one.step_us <= one.high_us
        assert one.work_per_s == pytest.approx(64e6 / one.step_us)
        assert one.measured_memory_bytes > 64 * 64 * 4 / 8
    measured = [one for one in machine.candidates if one.basis == MEASURED]
    assert machine.best == max(measured, key=lambda one: one.work_per_s)
    assert machine.agreement.measured == 4 and machine.agreement.failed == 0
    assert machine.agreement.recommended_behind >= 0
    assert show(folder) == plan
    result = CliRunner().invoke(app, ["plan", "show", str(folder), "--json"])
    shown = json.loads(result.stdout)
    assert shown["best"]["basis"] == MEASURED and shown["agreement"]["measured"] == 4
    # Measured once is measured.
    seen.clear()
    measure(folder, QUICK, use_gpu=False, on_result=lambda one, _: seen.append(one.number))
    assert seen == []


def test_a_budget_that_ends_early_leaves_what_was_measured(planned, monkeypatch):
    monkeypatch.setattr(measuring, "PORTION", 2)
    window = measuring.Measuring._window

    def last_window(self, *given):
        window(self, *given)
        self._end = 0.0

    monkeypatch.setattr(measuring.Measuring, "_window", last_window)
    folder = planned([({"work": n}, 10.0 * n, 64.0) for n in (1, 2, 3)])
    (machine,) = measure(folder, replace(QUICK, bad=0), use_gpu=False).machines
    found = {one.choices["work"]: one.basis for one in machine.candidates}
    assert found == {1: MEASURED, 2: MEASURED, 3: SIMULATED}
    # The next call goes on with the others.
    (machine,) = measure(folder, replace(QUICK, bad=0), use_gpu=False).machines
    assert {one.basis for one in machine.candidates} == {MEASURED}
    assert machine.agreement.measured == 3


def test_a_cpu_is_never_taken_for_the_gpu_of_a_plan(planned, monkeypatch):
    folder = planned([({"work": 1}, 100.0, 64.0)])
    with pytest.raises(Missing, match=r"JAX sees no GPU here \(8 × cpu\)"):
        CliRunner().invoke(app, ["plan", "measure", str(folder)], catch_exceptions=False)


def test_candidates_that_fail_are_told_and_the_others_go_on(planned):
    folder = planned(
        [
            ({"trouble": "crash"}, 10.0, 64.0),
            ({"trouble": "raises"}, 20.0, 64.0),
            ({"trouble": "refused"}, 30.0, 64.0),
            ({}, 40.0, 64.0),
        ]
    )
    options = MeasureOptions(is_all=True, rounds=1, steps=1, timeout_s=120)
    (machine,) = measure(folder, options, use_gpu=False).machines
    found = {one.choices["trouble"]: one for one in machine.candidates}
    statuses = {name: one.status for name, one in found.items()}
    assert statuses == {"crash": CRASH, "raises": INVALID, "refused": REFUSED, "none": OK}
    assert found["raises"].why == "ValueError: work must divide the batch"
    assert "code 3" in found["crash"].why
    assert machine.best.choices["trouble"] == "none"
    assert machine.agreement.failed == 3


@pytest.mark.parametrize(
    ("machines", "use_gpu", "said"),
    [
        (("8xH200",), True, "is for 8 × NVIDIA H200, and JAX sees no GPU here (8 × cpu); copy"),
        (("4xH200", "16xH200"), False, "is for 4 × NVIDIA H200 or 16 × NVIDIA H200, and JAX sees"),
    ],
)
def test_another_machine_is_named_with_what_to_do(planned, machines, use_gpu, said):
    folder = planned([({"work": 1}, 100.0, 64.0)], machines)
    with pytest.raises(Missing) as raised:
        measure(folder, QUICK, use_gpu=use_gpu)
    assert said in str(raised.value) and f"slipstream plan measure {folder}" in str(raised.value)


def test_a_plan_that_can_t_be_measured_is_not_made(tmp_path, monkeypatch):
    monkeypatch.setattr("slipstream.plan.measure.measure.visible_gpu", lambda: None)
    arguments = ["plan", "model.py:build", "--measure", "--study", str(tmp_path / "plan")]
    with pytest.raises(Missing, match="no GPU is visible .* slipstream plan measure .*plan$"):
        CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert not (tmp_path / "plan").exists()


def test_a_target_that_would_be_built_otherwise_is_not_measured(planned, monkeypatch, tmp_path):
    folder = planned([({"work": 1}, 100.0, 64.0)])
    read = tmp_path / "sizes.json"
    read.write_text("1")
    inputs = TargetInputs((str(read), "/elsewhere/model.py"), ("MODEL_SIZE", "XLA_FLAGS"))
    config = replace(read_plan(folder), inputs=inputs.state())
    monkeypatch.setenv("XLA_FLAGS", "--other")
    check_same_target(folder, config)
    monkeypatch.setenv("MODEL_SIZE", "8b")
    with pytest.raises(BadInput, match="was not set for the plan; run: env -u MODEL_SIZE slip"):
        check_same_target(folder, config)
    config = replace(config, inputs=inputs.state())
    monkeypatch.setenv("MODEL_SIZE", "70b")
    with pytest.raises(BadInput, match=r"=70b here, but was 8b .*; run: MODEL_SIZE=8b slipstream"):
        check_same_target(folder, config)
    monkeypatch.setenv("MODEL_SIZE", "8b")
    read.write_text("2")
    with pytest.raises(BadInput, match="sizes.json has changed"):
        check_same_target(folder, config)


def test_variables_that_are_places_may_differ_between_machines(planned, monkeypatch):
    folder = planned([({"work": 1}, 100.0, 64.0)])
    monkeypatch.setenv("PATH", "/here/bin:/usr/bin")
    monkeypatch.setenv("SOME_CONFIG", "/here/config.yaml")
    inputs = TargetInputs((), ("PATH", "SOME_CONFIG")).state()
    monkeypatch.setenv("PATH", "/there/bin:/bin:")
    monkeypatch.delenv("SOME_CONFIG")
    check_same_target(folder, replace(read_plan(folder), inputs=inputs))


def test_those_that_should_be_bad_are_spread_over_the_ranking(planned):
    folder = planned([({"work": n}, float(n), 64.0) for n in range(1, 13)])
    (machine,) = show(folder).machines

    def works(**options):
        found = chosen(machine, "work/s", MeasureOptions(**options))
        return [one.choices["work"] for one in found]

    assert works() == [1, 2, 3, 4, 8, 12]
    assert works(best=2, bad=0) == [1, 2]
    assert works(best=1, bad=3) == [1, 5, 8, 12]
    assert works(is_all=True) == list(range(1, 13))
    assert works(best=20) == list(range(1, 13))

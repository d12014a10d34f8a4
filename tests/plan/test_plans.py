"""Plans of a small model with real compiles: search, failures, resuming."""

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.cli.plan.common import resumable
from slipstream.errors import BadInput, CheckFailed
from slipstream.plan.plan_folder import read_plan
from slipstream.plan.plans import PlanOptions, plan, resume, show
from slipstream.plan.search.objective import Objective
from slipstream.results.planning import TIME

TARGET = f"{Path(__file__).parent / 'choices_target.py'}:build"


def make(folder, *, target=TARGET, on="4xH100", where="", vary=(), **options):
    machines = tuple(on.split(",")) if on else ()
    given = PlanOptions(on=machines, where=where, vary=vary, folder=folder, **options)
    return plan(target, given)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan") / "plan"
    return make(folder, vary=("goes_wrong=no", "batch=1,4"), where="keep == 'ALL' or batch == 4")


def test_every_combination_is_settled_and_the_best_has_the_most_work_per_second(good):
    (found,) = good.machines
    # (data, tensor) is 4×1 or 2×2; (keep, batch) has 3; unused 2.
    assert found.counts.combinations == len(found.candidates) == 2 * 3 * 2
    assert {one.status for one in found.candidates} == {"ok", "same program"}
    assert found.stopped_because == "every setting of the space was tried"
    assert good.unit == "tokens" and good.objective == "work/s"
    best = found.best
    assert best.work == best.choices["batch"] * best.choices["data"] * 32
    assert best.work_per_s == max(one.work_per_s for one in found.candidates)
    assert best.work_per_s == pytest.approx(best.work / best.step_us * 1e6)
    assert best.low_us <= best.step_us <= best.high_us
    assert sum(best.parts_us.values()) == pytest.approx(best.step_us)
    assert 0 < best.memory_bytes < found.memory_limit_bytes < found.memory_capacity_bytes


def test_choices_that_change_nothing_give_the_same_program(good):
    (found,) = good.machines
    by_choices = {json.dumps({**one.choices, "unused": 0}): [] for one in found.candidates}
    for one in found.candidates:
        by_choices[json.dumps({**one.choices, "unused": 0})].append(one)
    for first, second in by_choices.values():
        assert first.step_us == second.step_us
        assert second.same_program_as is not None or first.same_program_as is not None
    assert found.counts.same >= 6


def test_a_plan_is_read_again_as_it_was(good):
    again = show(Path(good.folder))
    assert again == good


def test_a_finished_plan_is_resumed_without_a_compile(good, monkeypatch):
    monkeypatch.setattr("slipstream.compiler.session.CompilerSession.compile", None)
    assert resume(Path(good.folder)).machines == good.machines


def test_a_target_that_changed_is_not_mixed_with_what_is_known(good, monkeypatch):
    inputs = read_plan(Path(good.folder)).inputs
    assert str(Path(TARGET.partition(":")[0])) in inputs["files"]
    monkeypatch.setenv("XLA_FLAGS", "--xla_gpu_enable_triton_gemm=false")
    with pytest.raises(BadInput, match="XLA_FLAGS has changed since the plan.*slipstream plan "):
        resume(Path(good.folder))


@pytest.fixture(scope="module")
def bad(tmp_path_factory):
    folder = tmp_path_factory.mktemp("plan") / "plan"
    return make(
        folder,
        on="1xH100,2xH100",
        vary=("batch=1", "keep=ALL", "unused=false", "goes_wrong=no,raises,dies,large"),
    )


def test_combinations_that_fail_say_why_and_the_rest_goes_on(bad):
    for found in bad.machines:
        seen = {one.choices["goes_wrong"]: one for one in found.candidates}
        assert found.best.choices["goes_wrong"] == "no"
        assert seen["raises"].status == "invalid"
        line = Path(TARGET.rpartition(":")[0]).name
        assert seen["raises"].why.startswith("ValueError: batch 1 is not what I want (" + line)
        assert seen["dies"].status == "crash" and "code 3" in seen["dies"].why
        assert seen["large"].status == "does not fit" and "TB of" in seen["large"].why
        statuses = Counter(one.status for one in found.candidates)
        assert found.counts.failed == statuses["invalid"] + statuses["crash"]
        assert found.counts.bounded == statuses["does not fit"]


def test_several_machines_are_compared(bad):
    assert [one.machine for one in bad.scaling] == ["1xH100", "2xH100"]
    assert [one.devices for one in bad.scaling] == [1, 2]
    assert bad.scaling[0].efficiency == 1
    assert bad.reasons[0].startswith("from 1 to 2 devices, with ")
    assert all(one.same_work for one in bad.strong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": TARGET.replace(":build", ":nothing")}, "has nothing that may vary.*--vary"),
        ({"target": TARGET.replace(":build", ":biuld")}, "no function biuld; did you mean build"),
        ({"vary": ("bacth=1",)}, "no argument 'bacth'; did you mean batch"),
        ({"vary": ("tensor=3",)}, "no combination is possible on 4xH100.*does not divide"),
        ({"where": "tensr == 1"}, "no choice 'tensr'; did you mean tensor"),
        ({"where": "batch > 8"}, "no combination is possible on 4xH100: .*batch > 8 is not true"),
        ({"objective": Objective("speed")}, "no objective 'speed'"),
        ({"where": "devices == 3", "vary": ("tensor=1,3",)}, r"on 4xH100: --where: devices == 3"),
        ({"objective": Objective(work="bacth * 2")}, "--work .* no choice 'bacth'; did you mean"),
        ({"objective": Objective(work="batch *")}, "--work 'batch \\*' can't be read"),
        ({"on": "4xH1000"}, "H1000"),
        ({"on": ""}, "--on names no machine"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(tmp_path, options, message):
    with pytest.raises(BadInput, match=message):
        make(tmp_path / "plan", **options)
    assert not (tmp_path / "plan").exists()


def test_an_interrupted_plan_says_how_to_go_on(good, tmp_path, capsys):
    with pytest.raises(KeyboardInterrupt), resumable(Path(good.folder), "my plan"):
        raise KeyboardInterrupt
    assert "continue with: slipstream plan resume 'my plan'" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt), resumable(tmp_path, "none"):
        raise KeyboardInterrupt
    assert capsys.readouterr().err == ""


def test_a_plan_without_anything_to_run_fails_for_scripts(tmp_path):
    source = tmp_path / "never.py"
    source.write_text(
        "from typing import Literal\n\n\n"
        "def build(devices, *, batch: Literal[1, 2] = 1):\n"
        "    raise ValueError('batch is odd')\n"
    )
    arguments = ["plan", f"{source}:build", "--on", "2xH100", "--study", str(tmp_path / "plan")]
    result = CliRunner().invoke(app, [*arguments, "--json"])
    found = json.loads(result.stdout)
    assert found["best"] is None and {one["status"] for one in found["candidates"]} == {"invalid"}
    assert isinstance(result.exception, CheckFailed)
    assert str(result.exception).startswith("found no combination that can be run on 2xH100")


def test_a_folder_with_a_plan_is_not_overwritten(good):
    with pytest.raises(BadInput, match="already holds a plan; .*plan resume"):
        make(Path(good.folder))


def test_work_that_is_said_and_a_global_batch(tmp_path):
    objective = Objective(TIME, work="batch * data * 10", unit="images", global_batch=80.0)
    found = make(
        tmp_path / "plan",
        vary=("goes_wrong=no", "batch=1,2,3", "keep=ALL", "unused=false", "tensor=1"),
        objective=objective,
    )
    assert found.unit == "images" and found.global_batch == 80
    by_batch = {one.choices["batch"]: one for one in found.machines[0].candidates}
    assert (by_batch[1].accumulate, by_batch[2].accumulate) == (2, 1)
    assert by_batch[3].status == "invalid" and "a step does 120 images" in by_batch[3].why
    assert found.machines[0].best.choices["batch"] == 2

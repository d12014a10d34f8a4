"""Flags of the best layouts, in the plan's own folder and database."""

from pathlib import Path

import pytest

from slipstream.plan.plans import PlanOptions, plan, show
from slipstream.plan.search.flags import FLAGS
from slipstream.tune.studies import show as show_study

TARGET = f"{Path(__file__).parents[1] / 'choices_target.py'}:build"
VARY = ("tensor=1", "batch=1,4", "keep=ALL", "unused=false", "goes_wrong=no")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("flags") / "plan"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("slipstream.plan.search.flags.TRIALS", 3)
        return plan(TARGET, PlanOptions(on=("2xH100",), vary=VARY, folder=folder, flags=1))


def test_the_best_layout_has_a_study_of_its_flags(tuned):
    (machine,) = tuned.machines
    (folder,) = (Path(tuned.folder) / FLAGS / "2xH100").iterdir()
    study = show_study(folder)
    assert study.baseline.step_us == pytest.approx(machine.best.step_us)
    assert study.stopped_because == "3 candidates were tried"
    # In the plan's database, beside its own studies.
    assert not (folder / "study.sqlite3").exists()
    if study.best.settings:
        assert machine.best.flags and machine.best.flags_step_us == study.best.step_us
        assert any(f"tune show {folder}" in reason for reason in machine.reasons)
    others = [one for one in machine.candidates if one.number != machine.best.number]
    assert all(not one.flags for one in others)


def test_the_plan_is_read_again_with_its_flags(tuned):
    assert show(Path(tuned.folder)) == tuned

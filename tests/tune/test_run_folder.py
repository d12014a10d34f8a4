"""A folder of `slipstream run` as a target: its program, its costs and its job; and `--costs`."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.simulate.recorded import recorded_costs
from slipstream.sources.load import load
from slipstream.tune.apply import winning_settings
from slipstream.tune.measure.backends import _costs_file
from slipstream.tune.run_folder import as_target, job_spec, recorded_job
from slipstream.tune.space.space import SpaceOptions
from slipstream.tune.studies import TuneOptions, measure, show, tune
from slipstream.tune.study_folder import read_study

# Runs are to die with us, which is arranged between fork and exec.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*")
RECORDING = "single.xplane.pb.gz"


@pytest.fixture
def run(tmp_path: Path, data: Path) -> Path:
    """What `slipstream run` leaves, with a recording of a GPU."""
    import jax
    import jax.numpy as jnp

    folder = tmp_path / "run"
    rank = folder / "profile" / "rank0"
    (rank / "programs").mkdir(parents=True)
    lowered = jax.jit(lambda w, x: jnp.tanh(x @ w)).lower(*[jnp.ones((64, 64))] * 2)
    (rank / "programs" / "jit_f.stablehlo").write_text(lowered.as_text())
    recording = rank / "profiles" / "before" / "plugins" / "profile" / "now"
    recording.mkdir(parents=True)
    shutil.copy(data / RECORDING, recording / RECORDING)
    job = {
        "command": ["sh", "-c", "exit $CODE"],
        "cwd": str(tmp_path),
        "environment": {"CODE": "3"},
    }
    (folder / "run.json").write_text(json.dumps(job))
    return folder


def order(folder: Path, **more) -> TuneOptions:
    return TuneOptions(
        "1xH200", trials=2, folder=folder, jobs=1, space=SpaceOptions(only=("costs",)), **more
    )


def test_a_run_is_tuned_with_its_costs_and_measured_by_its_own_job(run, tmp_path, data):
    study = tmp_path / "study"
    job = job_spec(str(run), (), 5, 12)
    assert (job.command, job.environment, job.steps) == (
        ("sh", "-c", "exit $CODE"),
        {"CODE": "3"},
        12,
    )
    with pytest.raises(BadInput, match="can't be measured as it is: the job ended with code 3"):
        tune(str(run), order(study, measure=job))
    facts = read_study(study)
    assert facts.costs == str(run / "profile" / "rank0" / "profiles" / "before")
    # The screen is done all the same, and goes by the recording.
    found = show(study)
    assert [dict(one.settings) for one in found.trials] == [{}, {"costs": "on"}]
    assert {one.status for one in found.trials} <= {"ok", "same program"}
    assert (found.baseline.basis, found.stopped_because) == ("simulated", "2 candidates were tried")
    file = _costs_file(study, facts)
    assert file == study / "costs.pb"
    costs = recorded_costs(str(data / RECORDING), load).for_scheduler
    assert len(recorded_costs(str(file), pytest.fail).costs) == len(costs)
    won = replace(found, best=replace(found.trials[1], settings={"costs": "on"}))
    assert [one.value for one in winning_settings(won).chosen] == [str(file)]
    # The same costs, by the file: another study of the same folder's program.
    other = tmp_path / "other"
    again = tune(as_target(str(run))[0], order(other, costs=str(file)))
    assert [dict(one.settings) for one in again.trials] == [{}, {"costs": "on"}]
    assert read_study(other).costs == str(file)
    with pytest.raises(BadInput, match="can't be run: it has no arguments"):
        measure(other)


def test_folders_without_a_run_are_refused(tmp_path, run):
    assert as_target("x.py:build") == ("x.py:build", None)
    assert recorded_job(str(tmp_path)) is None and job_spec("x.py:build", (), 5, 10).command == ()
    with pytest.raises(BadInput, match="is a folder without a program"):
        as_target(str(tmp_path))
    # A run without a profile has its program elsewhere; what a CPU took says nothing about a GPU.
    (run / "profile").rename(run / "compare")
    program, costs = as_target(str(run))
    assert program.endswith("compare/rank0/programs/jit_f.stablehlo") and costs is not None
    done = {"format": 1, "files": {}, "facts": {"platform": "cpu"}}
    (run / "compare" / "rank0" / "done.json").write_text(json.dumps(done))
    assert as_target(str(run))[1] is None


@pytest.mark.parametrize(
    "facts",
    [{}, {"command": 3}, {"command": [3]}, {"cwd": 3}, {"environment": {"A": 3}}],
    ids=["nothing", "number", "numbers", "cwd", "environment"],
)
def test_a_run_without_a_job_that_can_be_started(tmp_path, facts):
    job = {"command": ["python"], "cwd": "/", "environment": {"A": "b"}} if facts else {}
    (tmp_path / "run.json").write_text(json.dumps(job | facts))
    assert recorded_job(str(tmp_path)) is None

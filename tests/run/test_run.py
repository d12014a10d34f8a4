"""`slipstream run` on a real job: the phases, the folder, the receipt, and doing it again."""

import json
import re
import shutil
import sys

import pytest
from typer.testing import CliRunner

from run_jobs import Started, conclude, run, train
from slipstream.cli.main import app
from slipstream.costs.files import read_costs
from slipstream.diagnosis.diagnose import diagnose
from slipstream.experiment.receipt import read_receipt
from slipstream.run.run_dir import done_facts, read_json
from slipstream.sources.hlo.reader import read_program
from slipstream.sources.load import load
from slipstream.tune.run_folder import as_target, recorded_job

ALL_PHASES = ["1 check", "2 profile", "3 costs", "4 compile", "5 compare", "verdict"]
FLAGS = "--xla_cpu_multi_thread_eigen=false"
SECRET = "hunter2hunter2"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def job():
    return [sys.executable, "train.py", "30", "--api-key", SECRET, f"--db=pg://me:{SECRET}@host/x"]


@pytest.fixture(scope="module")
def first(place, job):
    more = {"MY_SETTING": SECRET, "NCCL_DEBUG": "WARN"}
    return run(place / "out", job, "--flags", FLAGS, "--rounds", "8", cwd=place, **more)


@pytest.fixture
def again(first, tmp_path):
    """The folder of the first run, to run in again."""
    return shutil.copytree(first.folder, tmp_path / "again")


def test_the_job_prints_and_ends_as_without_us(first):
    assert first.is_as_without_us(), first.err
    assert first.steps > 30


def test_the_phases_are_told_in_order(first):
    assert first.phases == ALL_PHASES
    assert "steps 5–7 of jit_f captured" in first.err


def test_it_names_the_receipt_and_what_to_do_next(first):
    said = " ".join(first.err.split())
    assert "receipt out/receipt.html next " in said
    assert "slipstream diagnose out shows what slows the step" in said
    assert ("the same command again runs" in said) == (first.receipt["chosen"] != "original")
    assert diagnose(load(first.folder)).program


def test_the_receipt_holds_every_arm_and_the_way_to_repeat_it(first, job):
    receipt = first.receipt
    assert next(iter(receipt)) == "verdict"
    names = [arm["name"] for arm in receipt["arms"]]
    assert names == [
        "original", "costs", "no command buffers", "costs, no command buffers",
        "xla_cpu_multi_thread_eigen=False",
    ]  # fmt: skip
    assert receipt["basis"] == "measured"
    assert receipt["repeat"]["job"] == [*job[:3], "--api-key", "***", "--db=pg://host/x"]
    assert receipt["repeat"]["environment"]["NCCL_DEBUG"] == "WARN"
    assert receipt["pgle"]["applied"] is False
    assert "only XLA:GPU's scheduler takes costs" in receipt["pgle"]["why"]
    assert receipt["overlap"]["before"]["wall"] > 0
    assert read_receipt(first.folder).verdict == receipt["verdict"]


def test_secrets_are_only_where_the_job_is_started_from(first, job):
    """`tune` starts the command in run.json again; nobody else can read that file."""
    files = [file for file in first.folder.rglob("*") if file.is_file()]
    assert [f.name for f in files if SECRET.encode() in f.read_bytes()] == ["run.json"]
    assert json.loads((first.folder / "run.json").read_text())["command"] == job
    private = {"run.json", "receipt.json", "receipt.html", "comparison.json"}
    modes = {file.name: file.stat().st_mode & 0o777 for file in files if file.name in private}
    assert modes == dict.fromkeys(private, 0o600)


def test_the_folder_holds_what_other_commands_read(first):
    profile = first.folder / "profile" / "rank0"
    facts = done_facts(profile)
    assert facts["program"] == "jit_f"
    assert facts["steps"] == [5, 7]
    assert len(load(profile / "profiles" / "before").events)
    program = read_program(profile / "programs" / "jit_f.hlo.pb")
    assert program.name == "jit_f"
    assert (profile / "programs" / "jit_f.stablehlo").read_bytes().startswith(b"ML\xefR")
    table = read_costs(first.folder / "costs" / "costs.pb")
    assert set(table.of(None)) <= {i.name for i in program.entry.instructions}


def test_the_folder_is_a_target_of_predict_and_tune(first, job, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program, recording = as_target(str(first.folder))
    assert program == str(first.folder / "profile" / "rank0" / "programs" / "jit_f.stablehlo")
    assert recording is None  # what a CPU took says nothing about a GPU
    assert recorded_job(str(first.folder)).command == tuple(job)
    words = ["predict", str(first.folder), "--on", "1xH200", "--json"]
    predicted = CliRunner().invoke(app, words, catch_exceptions=False)
    assert json.loads(predicted.stdout)["program"] == "jit_f"


def test_what_is_done_is_not_done_again(again, place, job):
    stamp = again / "profile" / "rank0" / "done.json"
    before = stamp.stat().st_mtime_ns
    done = run(again, job, "--json", cwd=place)
    assert done.code == 0
    assert stamp.stat().st_mtime_ns == before
    assert done.err.count("from an earlier run") == 2
    # With --json stdout is the receipt's, and the job's own goes to stderr.
    assert json.loads(done.out)["verdict"] == done.receipt["verdict"]
    assert re.search(r"^end \d+ ", done.err, re.MULTILINE)


@pytest.mark.parametrize("chosen", ["original", "no command buffers"])
def test_a_verdict_is_not_sought_again(again, place, job, chosen):
    conclude(again, chosen)
    started = Started(again, job, "--flags", FLAGS, cwd=place)
    started.wait_for("compare", "applied")
    started.let_end()
    done = started.wait()
    assert done.is_as_without_us(), done.err
    said = "nothing beats the original" if chosen == "original" else f"{chosen} is faster: it runs"
    assert f"5 compare  as an earlier run found, {said}" in done.err
    assert "verdict" not in done.phases


def test_a_verdict_whose_launcher_was_gone_gets_its_receipt(again, place, job):
    """The job came to its verdict after `slipstream run` had been killed."""
    conclude(again, "original")
    (again / "receipt.json").unlink()
    started = Started(again, job, "--flags", FLAGS, cwd=place)
    started.wait_for("compare", "applied")
    started.let_end()
    done = started.wait()
    assert done.is_as_without_us(), done.err
    assert read_json(again / "receipt.json")["verdict"] == "faster"


def test_a_verdict_on_another_program_counts_for_nothing(again, tmp_path):
    conclude(again, "original")
    train(tmp_path, size=40, name="other.py")
    job = [sys.executable, "other.py", "30"]
    done = run(again, job, "--flags", FLAGS, "--rounds", "8", cwd=tmp_path)
    assert done.is_as_without_us(size=40), done.err
    assert "the profile was of another program" in done.err
    assert "as an earlier run found" not in done.err
    assert done.receipt["arms"]


def test_other_flags_make_another_profile(again, place, job):
    stamp = again / "profile" / "rank0" / "done.json"
    before = stamp.stat().st_mtime_ns
    flags = "--xla_cpu_multi_thread_eigen=true"
    other = run(again, job, "--rounds", "8", cwd=place, XLA_FLAGS=flags)
    assert "made with other flags, another jaxlib" in other.err
    assert stamp.stat().st_mtime_ns != before
    assert done_facts(stamp.parent)["xla_flags"] == flags


def test_the_job_is_started_once(first):
    assert not (first.folder / "profile" / "rank0" / "output.txt").exists()
    assert done_facts(first.folder / "compare" / "rank0")["reused_profile"] is False
    assert read_json(first.folder / "run.json")["profile_first"] is False


def test_with_profile_first_the_job_is_started_twice(place, job, tmp_path):
    out = tmp_path / "twice"
    done = run(out, job, "--profile-first", "--flags", FLAGS, "--rounds", "8", cwd=place)
    assert done.is_as_without_us(), done.err
    assert done.phases == ALL_PHASES
    assert (out / "profile" / "rank0" / "output.txt").read_text().startswith("step 1 ")
    assert (out / "profile" / "rank0" / "log.txt").stat().st_mode & 0o777 == 0o600
    assert len(done.receipt["arms"]) == 5
    assert done_facts(out / "compare" / "rank0")["reused_profile"] is True


def test_settings_that_would_end_the_job_are_refused_before_it_starts(tmp_path):
    job = [sys.executable, "-c", "open('started', 'w')"]
    flags = "--xla_gpu_enable_async_all_gather=true"
    done = run(tmp_path / "refused", job, cwd=tmp_path, XLA_FLAGS=flags)
    assert done.code == 2
    assert "would end it" in done.err and "xla_gpu_enable_async_all_gather" in done.err
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--capture", "5"), "expected START:COUNT"),
        (("--preset", "gpuu"), "there is no preset 'gpuu'"),
        (("--flags", "--xla_gpu_nonsense=1"), "xla_gpu_nonsense"),
        (("--in-place", "--simulate", "8xH200"), "--simulate and --in-place can't be combined"),
        (("--in-place", "--profile-first"), "--profile-first and --in-place can't be combined"),
        (("--in-place", "--nsys"), "--nsys and --in-place can't be combined"),
    ],
)
def test_bad_options_say_what_is_expected(tmp_path, options, said):
    done = run(tmp_path / "bad", ["true"], *options, cwd=tmp_path)
    assert done.code == 2
    assert said in done.err


def test_a_command_that_is_not_there(tmp_path):
    done = run(tmp_path / "none", ["no-such-command"], cwd=tmp_path)
    assert done.code == 2
    assert "no-such-command can't be started" in done.err

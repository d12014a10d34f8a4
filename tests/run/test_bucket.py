"""`slipstream run --out s3://…`: the job as ever, and its folder in the bucket."""

import signal
import sys
from pathlib import Path

import fsspec
import pytest
from typer.testing import CliRunner

from run_jobs import OVER, Started, run_short, train, wait_until
from s3_server import S3Server
from slipstream import BadInput
from slipstream.cli.main import app
from slipstream.reading import object_or_none
from slipstream.remote.mirroring import local_folder
from slipstream.remote.paths import RemotePath
from slipstream.tune.run_folder import as_target, job_spec, recorded_job

URL = "s3://bucket/runs/exp7"
SECRET = "hunter2hunter2"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    train(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_run_is_in_the_bucket_and_every_command_reads_it(s3: S3Server, place: Path) -> None:
    job = [sys.executable, "train.py", "30", "--api-key", SECRET]
    local = local_folder(URL, "slipstream-run")
    started, status = Started(RemotePath(URL), job, cwd=place), local / "compare/rank0/status.json"
    started.let_end_when(lambda: (object_or_none(status) or {}).get("state") in OVER)
    done = started.wait()
    assert done.is_as_without_us(), done.err
    assert local.is_dir() and not (place / "s3:").exists()
    assert f"this run works in {local} and is copied to {URL}" in " ".join(done.err.split())
    assert f"copied; see: slipstream summary {URL}" in done.err
    keys = [key.removeprefix("runs/exp7/") for key in s3.keys("runs/exp7")]
    assert {"run.json", "receipt.json", "receipt.html", "costs/costs.pb"} <= set(keys)
    assert "lock" not in keys
    assert not [key for key in keys if SECRET.encode() in s3.get(f"runs/exp7/{key}")]
    summary = CliRunner().invoke(app, ["summary", URL])
    assert summary.exit_code == 0 and "XLA:CPU" in summary.output and "train.py" in summary.output
    shown = CliRunner().invoke(app, ["costs", "show", f"{URL}/costs/costs.pb"])
    assert shown.exit_code == 0, shown.output
    assert as_target(URL)[0].startswith(f"{URL}/profile/rank0/programs/")
    found = recorded_job(URL)
    assert found is not None and list(found.command[1:]) == ["train.py", "30", "--api-key", "***"]
    with pytest.raises(BadInput, match="credentials are not in s3://bucket/runs/exp7"):
        job_spec(URL, (), 5, 10)
    (place / "other").mkdir()
    train(place / "other")
    second = run_short(RemotePath(URL), job, cwd=place / "other")
    assert second.is_as_without_us() and second.err.count("from an earlier run") == 2, second.err


def test_a_job_that_fails_fails_as_ever_and_is_copied(s3: S3Server, place: Path) -> None:
    (place / "fail.py").write_text("raise SystemExit(7)\n")
    done = run_short(RemotePath(URL), [sys.executable, "fail.py"], cwd=place)
    assert done.code == 7
    assert "runs/exp7/run.json" in s3.keys("runs")


def test_a_run_that_is_killed_is_copied(s3: S3Server, place: Path) -> None:
    (place / "wait.py").write_text("import time\ntime.sleep(300)\n")
    started = Started(RemotePath(URL), [sys.executable, "wait.py"], cwd=place)
    started.wait_until(lambda: (local_folder(URL, "slipstream-run") / "run.json").exists())
    started.send(signal.SIGKILL)
    wait_until(lambda: "runs/exp7/run.json" in s3.keys("runs"))
    started.end_all()


def test_a_bucket_that_is_not_there_costs_the_job_nothing(s3: S3Server, place: Path) -> None:
    url = "s3://nobucket/exp7"
    done = run_short(RemotePath(url), [sys.executable, "train.py", "30"], cwd=place)
    assert done.is_as_without_us(), done.err
    local = local_folder(url, "slipstream-run")
    assert (local / "receipt.json").exists()
    text = " ".join(done.err.split())
    assert "there is no bucket nobucket" in text and f"everything is in {local}" in text


def test_a_url_that_never_works_is_refused_before_the_job_starts(place: Path) -> None:
    (place / "job.py").write_text("open('started', 'w')\n")
    words = ["run", "--out", "nosuch://b/x", "--", sys.executable, "job.py"]
    with pytest.raises(BadInput, match="nosuch:// is no protocol that fsspec knows"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    assert not (place / "started").exists()


def test_memory_gets_a_copy_too(place: Path) -> None:
    (place / "job.py").write_text("print('hello')\n")
    words = ["run", "--out", "memory://runs/m", "--", sys.executable, "job.py"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "/runs/m/run.json" in fsspec.filesystem("memory").find("/runs/m")

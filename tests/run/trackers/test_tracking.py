"""Trackers get the receipt of a job, and can't harm it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from xprof.profile_plugin import ProfilePlugin
from xprof.server import DataProvider
from xprof.standalone.base_plugin import TBContext

from run_jobs import LONGEST_S, OTHER, Started, conclude, run, train
from s3_server import S3Server
from slipstream.errors import BadInput
from slipstream.run.trackers.tensorboard import TensorBoard, writer_of_this_process
from slipstream.run.trackers.tracked import Tracked
from slipstream.run.trackers.tracking import parse_track

OPTIONS = (*OTHER, "--rounds", "8")
WRITER = "from tensorboardX import SummaryWriter\nwriter = SummaryWriter('logs')\n"


def with_writer(folder: Path) -> list[str]:
    """A job that has TensorBoard's events open."""
    job = train(folder)
    job.write_text(WRITER + job.read_text())
    return [sys.executable, str(job), "5"]


def test_a_job_with_a_writer_is_found(tmp_path: Path) -> None:
    started = Started(tmp_path / "out", with_writer(tmp_path), *OPTIONS, cwd=tmp_path)
    started.let_end_when((tmp_path / "logs" / "slipstream" / "report.html").exists)
    done = started.wait()
    assert done.is_as_without_us(), done.err
    assert "track      TensorBoard in logs\n" in done.err
    assert "not tracked" not in done.err
    assert (
        "also logged to TensorBoard in logs; to leave that: --track none" in (done.receipt["notes"])
    )
    logs = tmp_path / "logs"
    found = EventAccumulator(str(logs / "slipstream")).Reload()
    assert found.Tensors("slipstream/verdict")[0].tensor_proto.string_val == [
        done.receipt["verdict"].encode()
    ]
    pages = {file.name for file in (logs / "slipstream").iterdir()}
    assert {"receipt.html", "receipt.json", "report.html"} <= pages
    assert "jit_f" in (logs / "slipstream" / "report.html").read_text()
    # The job's own run is as it wrote it.
    assert EventAccumulator(str(logs)).Reload().Tags()["scalars"] == []
    xprof = ProfilePlugin(TBContext(str(logs), DataProvider(str(logs)), TBContext.Flags(False)))
    assert any(run.startswith("slipstream_before_") for run in xprof.generate_runs())


def test_a_run_that_applies_what_is_known_is_tracked_too(tmp_path: Path) -> None:
    job = [sys.executable, str(train(tmp_path)), "5"]
    run(tmp_path / "out", job, *OPTIONS, "--track", "none", cwd=tmp_path)
    conclude(tmp_path / "out", "original")
    done = run(tmp_path / "out", job, *OPTIONS, "--track", "tensorboard=logs", cwd=tmp_path)
    assert done.is_as_without_us(), done.err
    assert "as an earlier run found" in done.err
    assert "track      TensorBoard in logs\n" in done.err
    found = EventAccumulator(str(tmp_path / "logs" / "slipstream")).Reload()
    assert found.Tensors("slipstream/verdict")[0].tensor_proto.string_val == [b"faster"]


def test_a_log_folder_in_a_bucket(s3: S3Server, tmp_path: Path) -> None:
    recording = tmp_path / "profiles" / "plugins" / "profile" / "2026_11_18"
    recording.mkdir(parents=True)
    (recording / "host.xplane.pb").write_bytes(b"recorded")
    for name in ("receipt.json", "report.html"):
        (tmp_path / name).write_text(name)
    board = TensorBoard("s3://bucket/logs")
    before = {"before": tmp_path / "profiles"}
    board.log(Tracked({"slipstream/x": 1.0}, {}, (tmp_path / "receipt.json",), before))
    board.log_report(tmp_path / "report.html")
    keys = [key.removeprefix("logs/") for key in s3.keys("logs")]
    (events,) = [key for key in keys if ".tfevents." in key]
    assert sorted({*keys} - {events}) == [
        "plugins/profile/slipstream_before_2026_11_18/host.xplane.pb",
        "slipstream/receipt.json",
        "slipstream/report.html",
    ]
    assert b"s3://bucket/logs/slipstream: receipt.html" in s3.get(f"logs/{events}")


def test_with_none_nothing_is_logged(tmp_path: Path) -> None:
    job = with_writer(tmp_path)
    done = run(tmp_path / "out", job, *OPTIONS, "--track", "none", cwd=tmp_path)
    assert done.is_as_without_us(), done.err
    (own,) = (tmp_path / "logs").iterdir()
    assert own.name.startswith("events.out.tfevents.")
    assert "track" not in done.err


def test_what_fails_is_a_warning(tmp_path: Path) -> None:
    """A folder that can't be one, and trackers that the job doesn't use."""
    (tmp_path / "file").touch()
    asked = f"tensorboard={tmp_path / 'file' / 'logs'},wandb,mlflow"
    job = [sys.executable, str(train(tmp_path)), "5"]
    done = run(tmp_path / "out", job, *OPTIONS, "--track", asked, cwd=tmp_path)
    assert done.is_as_without_us(), done.err
    said = " ".join(done.err.split())
    assert "not tracked: TensorBoard in" in said and "can't create the folder" in said
    assert "! not tracked: the job's process has no active run of Weights & Biases" in said
    assert "! not tracked: the thread that trains has no active run of MLflow" in said
    facts = json.loads((tmp_path / "out" / "compare" / "rank0" / "tracked.json").read_text())
    assert (facts["logged"], len(facts["problems"])) == ([], 3)


def test_a_tracker_that_never_answers_is_left_behind(tmp_path: Path) -> None:
    """In a process of its own, which ends: the job's end must not hang on it."""
    (tmp_path / "comparison.json").write_text("{}")
    script = f"""
import threading
from pathlib import Path
from slipstream.run.trackers import tracking
class Silent:
    text = "a silent server"
    def log(self, tracked):
        threading.Event().wait()
tracking.run_of_this_process = Silent
tracking.END_WAIT_S = 0.2
one = tracking.Tracking(["wandb"], Path({str(tmp_path)!r}), None)
one.start()
one.ready(0.0)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=LONGEST_S)
    assert json.loads((tmp_path / "tracked.json").read_text()) == {
        "logged": [],
        "problems": ["a silent server: no answer until the job ended"],
    }


def test_names_as_typed() -> None:
    assert parse_track([]) == ("auto",)
    assert parse_track(["wandb, mlflow", "tensorboard=a=b"]) == (
        "wandb",
        "mlflow",
        "tensorboard=a=b",
    )
    for texts in (["comet"], ["wandb=x"], ["tensorboard="]):
        with pytest.raises(BadInput, match="expected tensorboard, wandb, mlflow, tensorboard=LOG"):
            parse_track(texts)
    with pytest.raises(BadInput, match="--track none and --track wandb can't be combined"):
        parse_track(["none", "wandb"])


@pytest.mark.parametrize("library", ["tensorboardX", "tensorboard"])
def test_open_writers(library: str, tmp_path: Path) -> None:
    if library == "tensorboardX":
        from tensorboardX import SummaryWriter as Writer
    else:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter as Writer
    writer = Writer(str(tmp_path))
    found = writer_of_this_process()
    assert found is not None and found.folder == str(tmp_path)
    writer.close()

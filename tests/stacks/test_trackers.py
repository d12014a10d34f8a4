"""Weights & Biases and MLflow themselves: what they have of a job after `slipstream run`."""

import json
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from run_jobs import OTHER, Started, train
from stacks.table import installed

PACKAGES = ("wandb", "mlflow-skinny", "sqlalchemy")
TRACKERS = """
import mlflow, wandb
wandb.init(project="p", id="own", dir=".")
mlflow.set_tracking_uri("sqlite:///mlflow.db")
mlflow.start_run()
"""


def records(data: bytes) -> Iterator[bytes]:
    """The records of an offline run: LevelDB's log format, after seven bytes of W&B's."""
    block, at, record = 1 << 15, 7, b""
    while at + 7 <= len(data):
        if block - at % block < 7:
            at += block - at % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, at)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):  # a whole one, or the last part of one
            yield record
            record = b""


@pytest.fixture
def done(tmp_path: Path):
    missing = [package for package in PACKAGES if installed(package) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; make test-stacks runs it")
    job = train(tmp_path)
    job.write_text(TRACKERS + job.read_text())
    words = [sys.executable, str(job), "5"]
    quiet = {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "MLFLOW_ENABLE_TELEMETRY": "false"}
    options = (*OTHER, "--rounds", "8")
    started = Started(tmp_path / "out", words, *options, cwd=tmp_path, **quiet)
    # MLflow's is the last that is logged.
    report = "artifacts/slipstream/report.html"
    started.let_end_when(lambda: any((tmp_path / "mlruns").rglob(report)))
    return started.wait()


def test_both_have_the_receipt(done, tmp_path: Path) -> None:
    assert done.is_as_without_us(), done.err
    assert "track      Weights & Biases run own, MLflow run " in done.err
    check_wandb(done.receipt, next(tmp_path.glob("wandb/offline-run-*/run-own.wandb")))
    check_mlflow(done.receipt, f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path)


def check_wandb(receipt: dict, file: Path) -> None:
    from wandb.proto.wandb_internal_pb2 import Record

    found = [Record.FromString(data) for data in records(file.read_bytes())]
    summary = {
        one.key or "/".join(one.nested_key): json.loads(one.value_json)
        for record in found
        for one in record.summary.update
    }
    assert summary["slipstream/step_us/before"] == receipt["step_us"]["before"]
    assert summary["slipstream/verdict"] == receipt["verdict"]
    artifacts = [one.artifact for one in found if one.WhichOneof("record_type") == "artifact"]
    assert {one.name: [file.path for file in one.manifest.contents] for one in artifacts} == {
        "slipstream-own": ["receipt.html", "receipt.json"],
        "slipstream-report-own": ["report.html"],
    }
    # No step of the job's own history was taken.
    assert not any(one.WhichOneof("record_type") == "history" for one in found)


def check_mlflow(receipt: dict, uri: str, folder: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=uri)
    (tracked,) = client.search_runs(["0"])
    assert tracked.data.metrics["slipstream/step_us/before"] == receipt["step_us"]["before"]
    assert tracked.data.tags["slipstream.verdict"] == receipt["verdict"]
    files = {file.name for file in (folder / "mlruns").rglob("artifacts/slipstream/*")}
    assert files == {"receipt.html", "receipt.json", "report.html"}

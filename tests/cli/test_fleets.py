"""Commands that read a run host by host: the same output as when they read it at once."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from host_recordings import write_host
from s3_server import S3Server
from slipstream.cli.main import app
from slipstream.fleet import read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_host(folder, "a", compute=0.8)
    write_host(folder, "b", ahead_ns=3_000, late_us=60_000.0)
    write_host(folder, "c", ahead_ns=-1_000, compute=0.9)
    return folder


def invoke(*words: Any, code: int = 0) -> str:
    done = CliRunner().invoke(app, list(map(str, words)))
    assert done.exit_code == code, done.output
    return done.output if code == 0 else str(done.exception)


@pytest.mark.parametrize("command", ["summary", "hosts"])
def test_the_same_output(command: str, run: Path) -> None:
    assert invoke(command, run, "--jobs", 2) == invoke(command, run, "--no-fleet")


def test_large_runs_are_fleets_by_themselves(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "FLEET_BYTES", 1)
    (run / "d.xplane.pb").write_bytes(b"")
    try:
        found = json.loads(invoke("summary", run, "--json"))
        out = run.parent / "costs.pb"
        assert "warning: 1 of 4 recordings could not be read" in invoke("costs", run, "-o", out)
    finally:
        (run / "d.xplane.pb").unlink()
    assert found["hosts"] == ["a", "b", "c"]
    (warning,) = found["warnings"]
    assert warning["code"] == "unread-hosts" and "d.xplane.pb is empty" in warning["message"]
    invoke("costs", run, "-o", run.parent / "plain.pb", "--no-fleet")
    assert invoke("costs", "diff", out, run.parent / "plain.pb").endswith("unchanged\n")


def test_the_diagnosis_has_one_host_and_waits_of_all(run: Path) -> None:
    text = invoke("diagnose", run, "--fleet", "--host", "c")
    said = " ".join(text.split())
    assert "3 hosts; details are those of c; the others wait most for b, 1." in said
    assert "the other devices wait for GPU:0 of b" in text
    error = invoke("diagnose", run, "--fleet", "--host", "z", code=1)
    assert error.startswith("no host 'z' among the 3 of this run; expected typical, slowest or")


def test_the_report_has_the_hosts_of_all_and_the_details_of_one(run: Path) -> None:
    page = run.parent / "report.html"
    assert "wrote " in invoke("report", run, "--fleet", "-o", page)
    text = page.read_text()
    assert re.search(r"3 hosts; details are those of [ac], whose step is nearest", text)
    hosts = text[text.index('id="hosts"') :]
    assert all(f"<td>{host}</td>" in hosts for host in "abc")


def test_options_that_contradict_each_other(run: Path) -> None:
    error = invoke("summary", run, "--no-fleet", "--jobs", 2, code=1)
    assert error == "--no-fleet reads everything here, at once; leave out --jobs and --ray"


def test_a_run_in_a_bucket(
    run: Path, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One recording at a time is in the cache, and in memory."""
    for file in run.iterdir():
        s3.put(f"run/{file.name}", file)
    monkeypatch.setenv("SLIPSTREAM_REMOTE_CACHE_BYTES", "1")
    there = invoke("hosts", "s3://bucket/run", "--jobs", 1)
    assert there == invoke("hosts", run, "--no-fleet")
    assert len(list((tmp_path / "own-cache").rglob("*.xplane.pb"))) == 1

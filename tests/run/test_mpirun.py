"""`slipstream run` as a rank of Open MPI's mpirun, which signals and ends its ranks as it does."""

import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from launched_job import JOB
from race_lost import RaceLost
from run_jobs import (
    LONGEST_S,
    OTHER,
    command,
    environment,
    is_alive,
    start,
    wait_until,
    wait_while_alive,
)
from slipstream.run.run_dir import read_json

RANKS = ("rank0", "rank1")


@pytest.fixture
def started(tmp_path):
    """A job that trains on under `mpirun -n 2 slipstream run`, and its folder."""
    mpirun = _mpirun()
    (tmp_path / "job.py").write_text(JOB)
    out = tmp_path / "out"
    options = ("--capture", "2:1", *OTHER, "--rounds", "8")
    job = command(out, [sys.executable, "job.py"], *options)
    words = [*mpirun, *job]
    with (tmp_path / "out.txt").open("w") as printed, (tmp_path / "err.txt").open("w") as said:
        process = start(words, tmp_path, environment(), printed, said)
    try:
        yield process, out
    finally:
        pids = [_status(out, rank).get("process") for rank in RANKS]
        for pid in (process.pid, *filter(None, pids)):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def _mpirun():
    """Its words for two ranks; skips where it is not there, or can't start anything."""
    program = shutil.which("mpirun")
    if program is None:
        pytest.skip("no mpirun: apt-get install openmpi-bin (`make test` does, where it may)")
    words = [program, "--allow-run-as-root", "--oversubscribe", "-n", "2"]
    tried = subprocess.run([*words, "true"], capture_output=True, text=True, timeout=LONGEST_S)
    if tried.returncode:
        pytest.skip(f"no mpirun: the one here starts nothing ({tried.stderr.strip()[:200]})")
    return words


def _status(out, rank):
    return read_json(out / "compare" / rank / "status.json") or {}


@pytest.mark.retry("JAX derives the coordinator's port from the job's id, and it can be taken")
def test_ranks_of_mpirun_agree_and_end_with_it(started, tmp_path):
    process, out = started
    receipts = [out / "compare" / rank / "done.json" for rank in RANKS] + [out / "receipt.html"]
    said = tmp_path / "err.txt"
    try:
        wait_until(lambda: all(file.exists() for file in receipts), process.poll, said.read_text)
    except AssertionError as problem:
        if "No address added" in said.read_text() or "already in use" in said.read_text():
            raise RaceLost("the coordinator's port was taken") from problem
        raise
    printed = (tmp_path / "out.txt").read_text()
    assert "begun 0 of 2" in printed and "begun 1 of 2" in printed
    assert said.read_text().count("verdict") == 1
    first, second = (
        json.loads((out / "compare" / rank / "comparison.json").read_text()) for rank in RANKS
    )
    for key in ("chosen", "why", "verdict"):
        assert first[key] == second[key]
    assert [arm["step_us"] for arm in first["arms"]] == [arm["step_us"] for arm in second["arms"]]
    # Ctrl-C: mpirun asks its ranks to end, JAX takes that for a notice, and mpirun kills them.
    jobs = [_status(out, rank)["process"] for rank in RANKS]
    assert all(map(is_alive, jobs))
    process.send_signal(signal.SIGINT)
    assert process.wait(LONGEST_S) == 1
    for job in jobs:
        wait_while_alive(job)

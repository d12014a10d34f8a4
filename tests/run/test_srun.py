"""`slipstream run` as a rank of Slurm's srun, in a cluster of this one machine, just for that."""

import signal
import sys

import pytest

from launched_job import JOB
from run_jobs import (
    LONGEST_S,
    OTHER,
    command,
    is_alive,
    start,
    wait_until,
    wait_while_alive,
)
from slipstream.run.run_dir import done_facts, read_json
from slurm_cluster import slurm_cluster


@pytest.fixture
def cluster(tmp_path):
    with slurm_cluster(tmp_path) as env:
        yield env


@pytest.fixture
def process(cluster, tmp_path):
    """A job that trains on under `srun -n 2 slipstream run`."""
    (tmp_path / "job.py").write_text(JOB)
    options = ("--capture", "2:1", *OTHER, "--rounds", "8")
    words = command(tmp_path / "out", [sys.executable, "job.py"], *options)
    with (tmp_path / "out.txt").open("w") as printed, (tmp_path / "err.txt").open("w") as said:
        started = start(["srun", "-n", "2", *words], tmp_path, cluster, printed, said)
    yield started
    # Whatever became of the test, nothing of it lives on.
    started.terminate()
    started.wait()


def test_ranks_of_srun_share_their_costs_and_end_with_it(process, tmp_path):
    out, said = tmp_path / "out", tmp_path / "err.txt"
    # srun passes on what its ranks print when it comes to it.
    wait_until(lambda: "verdict" in said.read_text(), process.poll, said.read_text)
    wait_until((out / "receipt.html").exists, process.poll, said.read_text)
    printed = (tmp_path / "out.txt").read_text()  # lines of two ranks may be mixed
    assert "begun 0 of 2" in printed and "begun 1 of 2" in printed
    assert said.read_text().count("verdict") == 1
    assert done_facts(out / "costs")["ranks"] == 2
    jobs = [
        read_json(out / "compare" / f"rank{rank}" / "status.json")["process"] for rank in (0, 1)
    ]
    assert all(map(is_alive, jobs))
    # As srun wants it: one Ctrl-C asks how things are, a second one ends the job.
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "one more within 1 sec" in said.read_text(), process.poll)
    process.send_signal(signal.SIGINT)
    assert process.wait(LONGEST_S) == 128 + signal.SIGKILL
    for job in jobs:
        wait_while_alive(job)

"""`slipstream run` as a rank of Slurm's srun, in a cluster of this one machine, just for that."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest

from free_port import free_port
from launched_job import JOB
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
from slipstream.run.run_dir import done_facts, read_json

DAEMONS = ("munged", "slurmctld", "slurmd", "srun")
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
ReturnToService=2
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@pytest.fixture
def cluster(tmp_path):
    """The environment in which srun finds it."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    found = {name: shutil.which(name, path=path) for name in DAEMONS}
    if None in found.values():
        pytest.skip("no Slurm: apt-get install slurm-wlm munge")
    for name in ("state", "spool", "munge"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "munge" / "key").write_bytes(os.urandom(64))
    (tmp_path / "munge" / "key").chmod(0o600)
    ports = [free_port(), free_port()]
    facts = {"host": socket.gethostname().split(".")[0], "user": getpass.getuser()}
    configuration = tmp_path / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=tmp_path, ports=ports, **facts))
    own = tmp_path / "munge"
    munged = [
        "munged", "-F", "-f", "-S", tmp_path / "munge.socket", "--key-file", own / "key",
        "--pid-file", own / "pid", "--log-file", own / "log", "--seed-file", own / "seed",
    ]  # fmt: skip
    env = environment(SLURM_CONF=str(configuration))
    with ExitStack() as stack, (tmp_path / "daemons.txt").open("w") as log:
        for words in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemon = [found[words[0]], *map(str, words[1:])]
            process = subprocess.Popen(daemon, env=env, stdout=log, stderr=log)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            if words is munged:
                wait_until((tmp_path / "munge.socket").exists, process.poll)
        said = (tmp_path / "daemons.txt").read_text
        wait_until(lambda: "idle" in _output("sinfo", env), process.poll, said)
        yield env


def _output(command, env):
    return subprocess.run(command, env=env, capture_output=True, text=True).stdout


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

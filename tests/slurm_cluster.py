"""A Slurm of this one machine, with its own daemons, just for a test."""

import getpass
import os
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager

import pytest

from free_port import free_port
from run_jobs import environment, wait_until

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


@contextmanager
def slurm_cluster(folder):
    """The environment in which srun and sbatch find a cluster of this one machine."""
    path = f"{os.environ['PATH']}:/usr/sbin"
    found = {name: shutil.which(name, path=path) for name in DAEMONS}
    if None in found.values():
        pytest.skip("no Slurm: apt-get install slurmctld slurmd slurm-client munge")
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700)
    (folder / "munge" / "key").write_bytes(os.urandom(64))
    (folder / "munge" / "key").chmod(0o600)
    ports = [free_port(), free_port()]
    facts = {"host": socket.gethostname().split(".")[0], "user": getpass.getuser()}
    configuration = folder / "slurm.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, ports=ports, **facts))
    own = folder / "munge"
    munged = [
        "munged", "-F", "-f", "-S", folder / "munge.socket", "--key-file", own / "key",
        "--pid-file", own / "pid", "--log-file", own / "log", "--seed-file", own / "seed",
    ]  # fmt: skip
    env = environment(SLURM_CONF=str(configuration))
    processes = []
    with ExitStack() as stack, (folder / "daemons.txt").open("w") as log:
        for words in (munged, ["slurmctld", "-D"], ["slurmd", "-D"]):
            daemon = [found[words[0]], *map(str, words[1:])]
            process = subprocess.Popen(daemon, env=env, stdout=log, stderr=log)
            processes.append(process)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            if words is munged:
                _wait_until((folder / "munge.socket").exists, processes, folder)
        _wait_until(lambda: "idle" in _output("sinfo", env), processes, folder)
        yield env


def _wait_until(look, processes, folder):
    """Until it is so; where a daemon ends instead, this machine is none for Slurm."""

    def code():
        return next((one.poll() for one in processes if one.poll() is not None), None)

    try:
        wait_until(look, code, (folder / "daemons.txt").read_text)
    except AssertionError as problem:
        pytest.skip(f"no Slurm: the one here does not start: {problem}")


def _output(command, env):
    return subprocess.run(command, env=env, capture_output=True, text=True).stdout

"""`slipstream run` on every rank of a job, in real processes with JAX's coordination service."""

import json
import os
import socket
import subprocess
import sys

import pytest

from run_jobs import command, environment
from slipstream.costs.files import read_costs
from slipstream.loop.store import sealed

JOB = """
import os, sys, time
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank = int(os.environ["SLURM_PROCID"])
jax.distributed.initialize(sys.argv[1], 2, rank)
mesh = Mesh(np.array(jax.devices()), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

def step(w, x):
    return w + 1e-9 * jnp.mean(jnp.tanh(x @ w)), x

step = jax.jit(step, in_shardings=(whole, cut), out_shardings=(whole, cut))
w = jax.jit(lambda: jnp.full((32, 32), 0.01), out_shardings=whole)()
x = jax.jit(lambda: jnp.ones((32, 32)), out_shardings=cut)()
begin, is_over = time.monotonic(), False
while not is_over:
    for _ in range(50):
        w, x = step(w, x)
    # All ranks end after the same step.
    over = os.path.exists(sys.argv[2]) or time.monotonic() - begin > 60
    is_over = bool(multihost_utils.broadcast_one_to_all(np.int32(over)))
print("rank", rank, round(float(w[0, 0]), 4))
"""


def free_port():
    with socket.socket() as opened:
        opened.bind(("localhost", 0))
        return opened.getsockname()[1]


def run_ranks(folder, out, *options):
    address = f"localhost:{free_port()}"
    job = [sys.executable, "job.py", address, str(out / "compare" / "rank0" / "done.json")]
    session = f"{os.getpid()}-{out.name}"
    started = [
        subprocess.Popen(
            command(out, job, "--rounds", "8", *options),
            cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=environment(
                SLURM_PROCID=str(rank), SLURM_NTASKS="2", SLIPSTREAM_SESSION=session,
            ),
        )
        for rank in range(2)
    ]  # fmt: skip
    return [(*one.communicate(timeout=170), one.returncode) for one in started]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ranks")
    (folder / "job.py").write_text(JOB)
    return folder


@pytest.fixture(scope="module")
def done(place):
    return run_ranks(place, place / "out")


def test_both_ranks_end_as_without_us(done):
    for rank, (out, err, code) in enumerate(done):
        assert code == 0, err
        assert f"rank {rank} 0.01" in out


def test_one_rank_speaks_for_all(done):
    assert "verdict" in done[0][1]
    assert "verdict" not in done[1][1] and "3 costs" not in done[1][1]


def test_costs_are_merged_and_all_compile_with_them(done, place):
    out = place / "out"
    assert sealed(out / "costs")["ranks"] == 2
    (one,) = read_costs(out / "costs" / "costs.pb").programs
    # More than one rank saw: each recorded three steps, of which the first may be cut.
    assert all(cost.executions is None or cost.executions > 3 for cost in one.costs.values())
    receipts = [
        json.loads((out / "compare" / f"rank{rank}" / "receipt.json").read_text())
        for rank in range(2)
    ]
    assert receipts[0]["chosen"] == receipts[1]["chosen"]
    assert [arm["name"] for arm in receipts[0]["arms"]] == [a["name"] for a in receipts[1]["arms"]]
    assert json.loads((out / "receipt.json").read_text())["arms"]

"""How long each phase of `slipstream run` takes with many ranks, and how long their steps wait.

    python benchmarks/ranks.py --ranks 16

Starts so many processes on this machine, each with one CPU device, that train a tiny program with a
collective in every step, bare and under `slipstream run`. Prints the median and the slowest rank
of each phase. With more ranks than cores, processes take turns on the cores, and everything takes
accordingly longer.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from slipstream.experiment.phase_times import PHASES, WAIT

JOB = """
import hashlib, os, sys
import jax, jax.numpy as jnp, numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

rank, size = int(os.environ["JAX_PROCESS_ID"]), int(os.environ["JAX_NUM_PROCESSES"])
jax.distributed.initialize(
    sys.argv[1], size, rank, initialization_timeout=900, heartbeat_timeout_seconds=600,
    shutdown_timeout_seconds=600,
)
mesh = Mesh(np.array(jax.devices()), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

def step(w, x):
    y = jnp.tanh(x @ w)
    return 0.99 * w + 1e-3 * jnp.cos(x.T @ y), jnp.mean(y)

step = jax.jit(step, in_shardings=(whole, cut), out_shardings=whole, donate_argnums=0)
weights = np.linspace(-0.1, 0.1, 1024, dtype=np.float32).reshape(32, 32)
rows = np.resize(np.eye(32, dtype=np.float32), (2 * size, 32))
w = jax.make_array_from_callback(weights.shape, whole, lambda index: weights[index])
x = jax.make_array_from_callback(rows.shape, cut, lambda index: rows[index])

def is_wanted_by_all(wanted):
    return bool(multihost_utils.broadcast_one_to_all(np.int32(wanted)))

# Compiled now, not between two steps.
steps, number, goes_on = int(sys.argv[2]), 0, is_wanted_by_all(True)
while goes_on:
    for _ in range(50):
        w, loss = step(w, x)
        loss.block_until_ready()
        number += 1
    # All ranks end after the same step.
    wanted = number < steps or os.path.exists(os.environ["JOB_GOES_ON"])
    goes_on = is_wanted_by_all(wanted)
digest = hashlib.sha256(np.asarray(w.addressable_data(0)).tobytes()).hexdigest()[:16]
print("end", number, float(loss), digest)
"""
OTHER = ("--flags", "--xla_cpu_multi_thread_eigen=false")
"""gives a CPU a program to compare: the variants that are always tried are the original there"""


class Ranks:
    """All ranks of the job, under `slipstream run` or bare."""

    def __init__(self, folder: Path, count: int, steps: int, options: Sequence[str] | None) -> None:
        with socket.socket() as free:
            free.bind(("localhost", 0))
            address = f"localhost:{free.getsockname()[1]}"
        self.out = folder / "run"
        self.goes_on = folder / "goes-on"
        job = [sys.executable, str(folder / "job.py"), address, str(steps)]
        slipstream = [sys.executable, "-m", "slipstream", "run", "--out", str(self.out)]
        command = job if options is None else [*slipstream, *options, "--", *job]
        if options is not None:
            self.goes_on.touch()
        self.files = [folder / f"{'bare' if options is None else 'run'}{i}" for i in range(count)]
        self.processes = []
        for rank, file in enumerate(self.files):
            environment = {
                **os.environ, "JAX_PLATFORMS": "cpu", "JAX_PROCESS_ID": str(rank),
                "JAX_NUM_PROCESSES": str(count), "JOB_GOES_ON": str(self.goes_on),
            }  # fmt: skip
            with (
                file.with_suffix(".out").open("w") as out,
                file.with_suffix(".err").open("w") as err,
            ):
                self.processes.append(
                    subprocess.Popen(
                        command, env=environment, stdout=out, stderr=err, start_new_session=True
                    )
                )

    def wait_until_settled(self) -> None:
        """The job goes on until every rank has a verdict."""
        done = [
            self.out / "compare" / f"rank{rank}" / "done.json" for rank in range(len(self.files))
        ]
        while not all(file.exists() for file in done):
            if any(process.poll() is not None for process in self.processes):
                break
            time.sleep(0.2)
        self.goes_on.unlink()

    def wait(self) -> list[int]:
        return [process.wait() for process in self.processes]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    @property
    def printed(self) -> list[str]:
        """The last line of each rank; Gloo writes lines of its own before it."""
        return [file.with_suffix(".out").read_text().splitlines()[-1] for file in self.files]

    @property
    def said(self) -> str:
        return "\n".join(file.with_suffix(".err").read_text()[-2000:] for file in self.files)


def measure(folder: Path, count: int, rounds: int) -> None:
    (folder / "job.py").write_text(JOB)
    began_s = time.monotonic()
    ranks = Ranks(folder, count, 50, ["--rounds", str(rounds), *OTHER])
    try:
        ranks.wait_until_settled()
        codes = ranks.wait()
    finally:
        ranks.end()
    if any(codes) or len(set(ranks.printed)) != 1:
        sys.exit(f"exit codes {codes}\n{set(ranks.printed)}\n{ranks.said}")
    wall_s = time.monotonic() - began_s
    steps = int(ranks.printed[0].split()[1])
    print(
        f"{count} ranks, {os.cpu_count()} cores · {steps} steps in {wall_s:.0f} s, start included"
    )
    report(ranks.out, count)
    bare = Ranks(folder, count, steps, None)
    try:
        codes = bare.wait()
    finally:
        bare.end()
    is_same = not any(codes) and bare.printed == ranks.printed
    print(f"\na bare run: {'the same losses and weights' if is_same else 'DIFFERENT'}")
    if not is_same:
        sys.exit(1)


def report(out: Path, count: int) -> None:
    receipt = json.loads((out / "receipt.json").read_text())
    decided = {
        (one["chosen"], one["verdict"])
        for rank in range(count)
        for one in [json.loads((out / "compare" / f"rank{rank}" / "comparison.json").read_text())]
    }
    ranks = receipt["ranks"]
    print(f"{ranks['reported']} of {ranks['count']} ranks reported · decided: {sorted(decided)}\n")
    print("| phase | what | median | slowest rank |\n| --- | --- | --- | --- |")
    for phase, about in (*PHASES.items(), (WAIT, "for other ranks, in one step")):
        if phase in ranks["seconds"]:
            found = ranks["seconds"][phase]
            slowest = f"{found['slowest']:.2f} s (rank {found['rank']})"
            print(f"| {phase} | {about} | {found['median']:.2f} s | {slowest} |")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(Path(folder), options.ranks, options.rounds)


if __name__ == "__main__":
    main()

"""How much the step of one program varies, from step to step and from run to run: JSON.

    python tests/record/jitter.py --output jitter.json           about three minutes on one GPU
    python tests/record/jitter.py --tiny --runs 2 --seconds 1    a trial anywhere

For RUN_SPREAD of machines/jitter.py.  Each run is a process of its own that trains a GPT, and is
warm after some seconds; its steps are timed by the host's clock, each until its loss is there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

WARM_S = 5.0
TINY = {"layers": 2, "width": 64, "heads": 4, "words": 256, "tokens": 32, "batch": 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", default="jitter.json")
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=15.0, help="of timed steps in each run")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--one-run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one_run:
        return print(json.dumps(one_run(options.seconds, TINY if options.tiny else {})))
    command = [sys.executable, __file__, "--one-run", f"--seconds={options.seconds}"]
    command += ["--tiny"] * options.tiny
    runs = []
    for number in range(options.runs):
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
        print(f"run {number}: {summary(runs[-1])}", flush=True)
    medians = [statistics.median(steps) for steps in runs]
    between = statistics.stdev(medians) / statistics.mean(medians) if len(medians) > 1 else None
    Path(options.output).write_text(json.dumps({"step_ms": runs, "between_runs": between}))
    print(f"standard deviation between runs: {between:.2%}" if between is not None else "one run")


def summary(steps: list[float]) -> str:
    median, spread = statistics.median(steps), statistics.stdev(steps)
    return f"{len(steps)} steps, median {median:.3f} ms, standard deviation {spread / median:.2%}"


def one_run(seconds: float, sizes: dict[str, int]) -> list[float]:
    """Milliseconds of each step, after warming up."""
    import jax
    import jax.numpy as jnp
    from models import gpt_scan

    step, (params, momentum, text) = gpt_scan(jax.devices(), **sizes)
    key = jax.random.key(0)
    leaves = {name: 0.03 * jax.random.normal(key, one.shape) for name, one in params.items()}
    state = leaves, jax.tree.map(jnp.zeros_like, leaves)
    words = params["embedding"].shape[0]
    batch = jax.random.randint(key, text.shape, 0, words, text.dtype)
    *state, loss = step(*state, batch)
    loss.block_until_ready()
    begin, found = time.perf_counter(), []
    while (now := time.perf_counter()) < begin + WARM_S + seconds:
        *state, loss = step(*state, batch)
        loss.block_until_ready()
        if now > begin + WARM_S:
            found.append((time.perf_counter() - now) * 1e3)
    return found


if __name__ == "__main__":
    main()

"""One job on several ranks, without and with Slipstream: do the numbers stay the same?

    PYTHONPATH=$PWD/src python tests/record/two_ranks_both_ways.py OUT [--steps 1500] [--cpu]

Runs `examples/gpt.py` on two ranks of this machine (one GPU, NCCL over loopback; `--cpu`: gloo)
under `slipstream run`, then alone, then alone again as far as the time goes, each with the loss of
every step in full. Prints losses side by side as hex floats, the first step at which two runs
differ, and the first at which a loss is no number. What tells what apart:

    alone ≠ alone again            the job itself does not repeat: only NaN against numbers counts
    alone is no number either      the job's own, whatever we do
    only the run with us is odd    ours; `receipt.json` says at which call, and what ran there

On a GPU the job does not repeat bit for bit by itself (the embedding's gradient is a scatter with
atomic additions); `--exact` makes it (xla_gpu_deterministic_ops), so that bits can be compared.

OUT gets `losses.txt` (all steps of all runs), `both_ways.json`, the logs and the receipt.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIZES = dict(LAYERS=2, WIDTH=512, HEADS=4, WORDS=8192, TOKENS=512, BATCH=2)
"""a step of some 20 ms, most of them NCCL's; GPT_LAYERS and so on say otherwise"""
TINY = dict(LAYERS=2, WIDTH=64, HEADS=4, WORDS=128, TOKENS=32, BATCH=2)

JOB = """
import os, sys, time
sys.path.insert(0, os.environ["BOTH_WAYS_EXAMPLES"])
import gpt, jax
if jax.config.jax_platforms == "cpu":
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
gpt.join_others()
step, abstract, tokens = gpt.build(jax.devices())
state = gpt.initial_state(abstract)
words = abstract["params"]["embedding"].shape[0]
batch = jax.jit(
    lambda: jax.random.randint(jax.random.key(1), tokens.shape, 0, words),
    out_shardings=tokens.sharding,
)()
began = time.perf_counter()
for number in range(int(os.environ["GPT_STEPS"])):
    state, loss = step(state, batch)
    print(number, float(loss).hex(), flush=True)
print("end", time.perf_counter() - began, flush=True)
"""
"""`examples/gpt.py` with every loss in full"""


def environment(rank: int, given: argparse.Namespace, meet: str) -> dict[str, str]:
    ours = ("SLIPSTREAM", "SLURM_", "OMPI_", "PMI", "GPT_")
    plain = {k: v for k, v in os.environ.items() if not k.startswith(ours)}
    sizes = {f"GPT_{k}": str(v) for k, v in (TINY if given.cpu else SIZES).items()}
    sizes |= {k: v for k, v in os.environ.items() if k.startswith("GPT_")}
    if given.exact:
        flags = f"{plain.get('XLA_FLAGS', '')} --xla_gpu_deterministic_ops=true"
        plain["XLA_FLAGS"] = flags.strip()
    two_on_one_gpu = {
        "NCCL_HOSTID": f"host{rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1",
        "XLA_PYTHON_CLIENT_MEM_FRACTION": ".2",
    }  # fmt: skip
    return {
        **plain, **sizes, **({"JAX_PLATFORMS": "cpu"} if given.cpu else two_on_one_gpu),
        "GPT_STEPS": str(given.steps), "GPT_RANK": str(rank), "GPT_RANKS": str(given.ranks),
        "GPT_MEET": meet, "BOTH_WAYS_EXAMPLES": str(ROOT / "examples"),
        "SLIPSTREAM_SESSION": f"both-ways-{os.getpid()}", "TF_CPP_MIN_LOG_LEVEL": "1",
    }  # fmt: skip


def run(name: str, given: argparse.Namespace, with_us: bool, end_s: float) -> list[list[float]]:
    """The losses of each rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meet = f"127.0.0.1:{free.getsockname()[1]}"
    job = [sys.executable, "-u", str(given.out / "job.py")]
    began, processes = time.monotonic(), []
    for rank in range(given.ranks):
        words = job
        if with_us:
            slipstream = [sys.executable, "-m", "slipstream", "run", "--out", str(given.work)]
            rank_of = ["--rank", f"{rank}/{given.ranks}", "--rounds", str(given.rounds)]
            words = [*slipstream, *rank_of, *given.options.split(), "--", *job]
        out = (given.out / f"{name}.rank{rank}.txt").open("w")
        err = (given.out / f"{name}.rank{rank}.err").open("w")
        processes.append(
            subprocess.Popen(
                words, env=environment(rank, given, meet), stdout=out, stderr=err,
                start_new_session=True,
            )
        )  # fmt: skip
    codes = [ended(process, max(end_s - time.monotonic(), 1.0)) for process in processes]
    found = [losses(given.out / f"{name}.rank{rank}.txt") for rank in range(given.ranks)]
    steps = min(map(len, found))
    print(f"{name:12} {time.monotonic() - began:6.1f} s   exit {codes}   {steps} steps", flush=True)
    return found


def ended(process: subprocess.Popen[bytes], wait_s: float) -> int:
    try:
        return process.wait(wait_s)
    except subprocess.TimeoutExpired:
        # JAX's coordination service takes a SIGTERM for a warning, and a job outlives its launcher.
        for pid in [*children(process.pid), process.pid]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    return process.wait()


def children(pid: int) -> list[int]:
    """Those of a process, theirs first."""
    try:
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [one for child in map(int, own) for one in (*children(child), child)]


def losses(file: Path) -> list[float]:
    lines = [line.split() for line in file.read_text().splitlines()]
    return [float.fromhex(words[1]) for words in lines if words and words[0].isdigit()]


def same(a: float, b: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b))


def first_difference(a: list[float], b: list[float]) -> int | None:
    """The step; None where there is none."""
    both = enumerate(zip(a, b, strict=False))
    return next((step for step, (x, y) in both if not same(x, y)), None)


def first_odd(a: list[float]) -> int | None:
    return next((step for step, x in enumerate(a) if not math.isfinite(x)), None)


def show(runs: dict[str, list[list[float]]], every: int, out: Path) -> dict[str, object]:
    columns = {name: found[0] for name, found in runs.items()}
    steps = max(map(len, columns.values()))

    def line(step: int) -> str:
        cells = [c[step].hex() if step < len(c) else "-" for c in columns.values()]
        return f"{step:6}  " + "  ".join(f"{cell:>22}" for cell in cells)

    head = f"{'step':>6}  " + "  ".join(f"{name:>22}" for name in columns)
    (out / "losses.txt").write_text("\n".join([head, *map(line, range(steps))]) + "\n")
    facts = facts_of(runs)
    wanted = {*range(0, steps, every), steps - 1}
    for step in [*facts["first_difference"].values(), *facts["first_odd"].values()]:
        wanted |= {step - 1, step} if step is not None else set()
    print(head)
    for step in sorted(step for step in wanted if 0 <= step < steps):
        print(line(step))
    return facts


def facts_of(runs: dict[str, list[list[float]]]) -> dict[str, dict[str, int | None]]:
    """First steps at which runs differ from the first one, ranks from rank 0, or losses are odd."""
    plain, *others = runs
    differ = {
        f"{plain} / {name}": first_difference(runs[plain][0], runs[name][0]) for name in others
    }
    differ |= {
        f"{name}, ranks 0 / {rank}": first_difference(found[0], found[rank])
        for name, found in runs.items()
        for rank in range(1, len(found))
    }
    odd = {name: first_odd(found[0]) for name, found in runs.items()}
    steps = {name: min(map(len, found)) for name, found in runs.items()}
    return {"steps": dict(steps), "first_difference": differ, "first_odd": odd}


def told(facts: dict[str, dict[str, int | None]], runs: dict[str, list[list[float]]]) -> None:
    for pair, step in facts["first_difference"].items():
        names = pair.partition(", ")[0].split(" / ")
        steps = min(len(one) for name in names for one in runs[name])
        same_so_far = (
            f"equal bit for bit, in all of {steps} steps" if steps else "nothing to compare"
        )
        print(f"{pair}: " + (same_so_far if step is None else f"differ from step {step} on"))
    for name, step in facts["first_odd"].items():
        count = facts["steps"][name]
        numbers = f"{count} losses, all of them numbers" if count else "no losses"
        print(f"{name}: " + (numbers if step is None else f"no number at step {step}"))


def receipt(work: Path, out: Path) -> None:
    for rank in sorted((work / "compare").glob("rank*")):
        log = rank / "agent.log"
        if log.exists():
            shutil.copy(log, out / f"agent.{rank.name}.log")
    file = work / "receipt.json"
    if not file.exists():
        print("there is no receipt: the job ended before the comparison; see with.rank0.err")
        return
    shutil.copy(file, out / "receipt.json")
    found = json.loads(file.read_text())
    print(f"receipt: {found['verdict']}: {found['why']} · chosen: {found['chosen']}")
    for note in found["notes"]:
        print(f"   note: {note}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--every", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=150.0, help="for all runs together")
    parser.add_argument("--once", action="store_true", help="run it alone only once")
    parser.add_argument("--options", default="", help="more options of slipstream run")
    parser.add_argument("--exact", action="store_true", help="with deterministic kernels")
    parser.add_argument("--cpu", action="store_true")
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    given.work = given.out / "run"
    (given.out / "job.py").write_text(JOB)
    began_s, runs = time.monotonic(), {}
    # The run with us compares programs, and the others are worth nothing without it.
    kinds = [("with", True, 0.65), ("alone", False, 1.0), ("again", False, 1.0)]
    for name, with_us, share in kinds[: 2 if given.once else 3]:
        end_s = began_s + share * given.seconds
        if time.monotonic() < end_s - 5:
            runs[name] = run(name, given, with_us, end_s)
    order = [name for name in ("alone", "again", "with") if name in runs]
    facts = show({name: runs[name] for name in order}, given.every, given.out)
    told(facts, runs)
    receipt(given.work, given.out)
    (given.out / "both_ways.json").write_text(json.dumps(facts, indent=1))
    if not given.cpu:
        # Few files come back from there.
        shutil.rmtree(given.work)


if __name__ == "__main__":
    main()

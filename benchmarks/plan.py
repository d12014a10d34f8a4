"""How long a plan takes on this machine, and what its search saves, with no GPU.

A Llama-like model of 8B and of 70B (`examples/llama.py`) on 64 and 512 H100: data × FSDP ×
pipeline × context × tensor, remat and batch. Prints how many combinations there are, how many
bounds settled, how many were compiled or equal to another, and what the plan recommends. Nothing
comes from a cache. `--size 8b` leaves out 70b.

`--ray local` makes each plan a second time, on a Ray cluster of three nodes that it starts here,
of which one is killed in the middle. Prints what was evaluated again, and compares the two plans.
`--ray ADDRESS` does so on that cluster, and kills nothing.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from plan_parts.comparison import compared
from plan_parts.local_cluster import LocalCluster

from slipstream.outputs.terminal.compiled.plan import choices_text
from slipstream.plan.plans import PlanOptions, plan
from slipstream.results.planning import Plan

TARGET = str(Path(__file__).resolve().parent.parent / "examples" / "llama.py") + ":build"
MACHINES = ("64xH100", "512xH100")
VARY = ("batch=1,2,4", "attention=cudnn", "layers=scan")
# Replicas of a layout that is already cut in other ways would only repeat it.
WHERE = "data == 1 or tensor * context * pipeline == 1"
BUDGET_S = 3600.0
"""on a busy machine too, both plans should come to their end"""
LOST_AFTER = 10
"""compiles on the cluster before a node is killed"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("8b", "70b"), action="append")
    parser.add_argument("--on", metavar="SPEC", action="append")
    parser.add_argument("--ray", metavar="ADDRESS", help="or local")
    parser.add_argument("--keep", metavar="DIR", help="keep the plans here")
    chosen = parser.parse_args()
    machines = tuple(chosen.on or MACHINES)
    for size in chosen.size or ("8b", "70b"):
        os.environ["LLAMA_SIZE"] = size
        with empty_cache() as made:
            here = report(f"Llama {size}", machines, Path(chosen.keep or made) / size)
        if chosen.ray:
            with empty_cache() as made:
                folder = Path(chosen.keep or made) / f"{size}-ray"
                found = report_on_ray(f"Llama {size} on Ray", machines, folder, chosen.ray)
            print("\n".join(compared(here, found)), flush=True)


@contextmanager
def empty_cache() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        yield folder


def report_on_ray(what: str, machines: Sequence[str], folder: Path, ray: str) -> Plan:
    cluster = LocalCluster(LOST_AFTER) if ray == "local" else None
    with cluster or nullcontext():
        found = report(what, machines, folder, cluster, ray if cluster is None else cluster.address)
    return found


def report(
    what: str,
    machines: Sequence[str],
    folder: Path,
    cluster: LocalCluster | None = None,
    address: str | None = None,
) -> Plan:
    """Make a plan, and print what it took and what it recommends."""
    options = PlanOptions(
        on=tuple(machines), vary=VARY, where=WHERE, folder=folder, ray=address, budget_s=BUDGET_S
    )
    begin, cpu_before_s = time.perf_counter(), cpu_seconds()
    found = plan(
        TARGET,
        options,
        on_result=lambda machine, candidate, outcome: cluster and cluster.count(outcome),
        progress=lambda text: text.startswith("lost ") and print(f"  {text}", flush=True),
    )
    seconds = time.perf_counter() - begin
    cpu_s = cpu_seconds() - cpu_before_s
    where = f"{os.cpu_count()} cores, {cpu_s / 60:.1f} CPU minutes outside of Ray"
    print(f"{what}: {seconds / 60:.1f} minutes on {where}")
    for machine in found.machines:
        counts, best = machine.counts, machine.best
        print(
            f"  {machine.machine}: {counts.combinations} combinations, {counts.bounded} settled by "
            f"bounds, {counts.compiled} compiled ({counts.same} to a known program), "
            f"{counts.failed} failed; {machine.stopped_because}"
        )
        if best is not None and best.work_per_s is not None and best.step_us is not None:
            print(
                f"    {best.work_per_s:,.0f} {found.unit}/s, step {best.step_us / 1e3:,.0f} ms, "
                f"{(best.memory_bytes or 0) / 1e9:.1f} GB: {choices_text(best.choices)}"
            )
    return found


def cpu_seconds() -> float:
    """Of this process and those that it started and saw end."""
    return sum(os.times()[:4])


if __name__ == "__main__":
    main()

"""How long a plan takes on this machine, and what its search saves, with no GPU.

A Llama-like model of 8B and of 70B (`examples/llama.py`) on 64 and 512 H100: data × FSDP ×
pipeline × context × tensor, remat and batch. Prints how many combinations there are, how many
bounds settled, how many were compiled or equal to another, and what the plan recommends. Nothing
comes from a cache. `--ray ADDRESS` compiles on a Ray cluster; `--size 8b` leaves out 70b.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from slipstream.outputs.terminal.plan import choices_text
from slipstream.plan.plans import PlanOptions, plan

TARGET = str(Path(__file__).resolve().parent.parent / "examples" / "llama.py") + ":build"
MACHINES = ("64xH100", "512xH100")
VARY = ("batch=1,2,4", "attention=cudnn", "layers=scan")
# Replicas of a layout that is already cut in other ways would only repeat it.
WHERE = "data == 1 or tensor * context * pipeline == 1"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", choices=("8b", "70b"), action="append")
    parser.add_argument("--ray", metavar="ADDRESS")
    parser.add_argument("--keep", metavar="DIR", help="keep the plans here")
    chosen = parser.parse_args()
    for size in chosen.size or ("8b", "70b"):
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            report(size, Path(chosen.keep or folder) / size, chosen.ray)


def report(size: str, folder: Path, ray: str | None) -> None:
    os.environ["LLAMA_SIZE"] = size
    options = PlanOptions(on=MACHINES, vary=VARY, where=WHERE, folder=folder, ray=ray)
    begin = time.perf_counter()
    found = plan(TARGET, options)
    seconds = time.perf_counter() - begin
    print(f"Llama {size}: {seconds / 60:.1f} minutes on {os.cpu_count()} cores")
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


if __name__ == "__main__":
    main()

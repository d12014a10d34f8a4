"""One GPU standing for eight: compute measured, collectives modelled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from accuracy_parts.measuring import error, recording, signed, table
from slipstream.analyses.bounds import bounds
from slipstream.analyses.summary import step_times
from slipstream.machines.topology import machine
from slipstream.simulate.costing import basis_shares, costing
from slipstream.simulate.engine import simulation

SETTINGS = ("no_graphs", "default")
TEXT = """## One GPU standing for eight

A GPT with FSDP over eight GPUs, compiled for eight and run on one H200 with JAX's mocked topology:
compute is real, collectives are skipped. The first columns can therefore be checked and the others
cannot: they rest on the model of NVLink's collectives (docs/machines.md has its error against
published tables), on the assumption that no device is late, and on the simulated slowdown of
kernels that overlap with collectives.
"""


def page(folder: Path) -> str:
    where = machine("8xH200")
    rows = []
    for setting in SETTINGS:
        path = folder / f"gpt_fsdp.{setting}.xplane.pb.gz"
        if not path.is_file():
            continue
        found = recording(path)
        costs = found.costs
        estimates = costing(found.program, where, costs.costs, costs.source)
        skipped = {n: replace(e, us=0.0) if e.kind == "collective" else e
                   for n, e in estimates.items()}  # fmt: skip
        alone, whole = (
            simulation(found.program, where, estimates=e, command_buffers=found.has_graphs)
            for e in (skipped, estimates)
        )
        compute = step_times(alone.profile).wall_us / 1e3
        times = step_times(whole.profile)
        least = bounds(found.program, estimates, where).least_us / 1e3
        shares = basis_shares(estimates, whole.executions)
        rows.append([
            setting, f"{found.step_ms:.1f}",
            f"{compute:.1f} ({signed(error(compute, found.step_ms))})",
            f"{times.wall_us / 1e3:.1f}", f"{times.communication_us / 1e3:.1f}",
            f"{times.exposed_communication_us / 1e3:.1f}", f"{least:.1f}",
            ", ".join(f"{share:.0%} {name}" for name, share in shares.items()),
        ])  # fmt: skip
    if not rows:
        return TEXT + "\nThe recordings are not here.\n"
    heads = ["setting", "measured without collectives, ms", "simulated without",
             "eight GPUs, ms", "communication", "exposed", "lower bound", "basis"]  # fmt: skip
    return "\n".join([TEXT, table(heads, rows), ""])

"""A training step of others on four A100s, from its own archive."""

from __future__ import annotations

import lzma
import tempfile
import zipfile
from pathlib import Path

import numpy as np

from accuracy_parts.measuring import error, goal, signed, table
from slipstream.analyses.summary import step_splits, step_times
from slipstream.errors import SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.machines.topology import machine
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.simulate.costing import basis_shares, costing
from slipstream.simulate.engine import simulation
from slipstream.simulate.recorded import costs_of
from slipstream.sources.load import load

ARCHIVE = "nsysjax_pax_fsdp4_a100_proc{}.zip"
STEP = "pjit__wrapped_step_fn"
WHERE = "4xA100-80"
MEASURED_MS = 127.0
TEXT = """## Four A100, recorded by others

A Pax transformer with FSDP over four A100, recorded with nsys-jax in 2024 by the makers of
JAX-Toolbox (two of its four processes). With the median of each instruction as its cost, a
collective's time includes the wait for its peers, as the recorded step did. The policy `typical`
excludes that wait, so its exposed communication is that of a step in which no device is late.
"""


def page(external: Path) -> str:
    files = [external / ARCHIVE.format(number) for number in (0, 1)]
    if not all(file.is_file() for file in files):
        return TEXT + "\nThe archive is not here, so nothing was measured.\n"
    profile = load(files)
    return "\n".join([TEXT, *_measured_costs(profile), "", *_modelled(profile, files[0]), ""])


def steady(profile: Profile) -> tuple[float, float]:
    """Step and exposed communication in ms: medians over the steps that are not warming up."""
    parts = step_splits(profile)
    runs = profile.runs
    name = [n.startswith(STEP) for n in (profile.events.texts[i] for i in runs.program.tolist())]
    lengths = (runs.end_ps - runs.start_ps)[np.array(name)]
    usual = parts[:, 0] < 1.05 * np.median(lengths)
    return float(np.median(lengths)) / 1e9, float(np.median(parts[usual, 3])) / 1e9


def _measured_costs(profile: Profile) -> list[str]:
    name = next(key for key in profile.programs if key.startswith(STEP))
    program = profile.programs[name]
    length, exposed = steady(profile)
    where = machine(WHERE)
    rows = [["measured", f"{length:.1f}", "", f"{exposed:.2f}", ""]]
    checked: list[str] = []
    for policy in ("percentile:50", "typical"):
        costs = costs_of(profile, policy)
        step = simulation(program, where, estimates=costing(program, where, costs.costs, program))
        times = step_times(step.profile)
        ours, waits = times.wall_us / 1e3, times.exposed_communication_us / 1e3
        off, waits_off = error(ours, length), error(waits, exposed)
        rows.append([policy, f"{ours:.1f}", signed(off), f"{waits:.2f}", signed(waits_off)])
        if not checked:
            checked = [
                goal(f"step against {MEASURED_MS:.0f} ms (goal 5%)",
                     signed(error(ours, MEASURED_MS)), abs(error(ours, MEASURED_MS)) <= 0.05),
                goal("exposed communication (goal 15%)", signed(waits_off), abs(waits_off) <= 0.15),
            ]  # fmt: skip
    heads = ["costs", "step, ms", "error", "exposed communication, ms", "error"]
    return [table(heads, rows), "", *checked]


def _modelled(profile: Profile, archive: Path) -> list[str]:
    """The archived program with modelled costs, and the same compiled again today."""
    length, _ = steady(profile)
    where = machine(WHERE)
    name = next(key for key in profile.programs if key.startswith(STEP))
    rows = [_row("its program, modelled costs", profile.programs[name], where, length)]
    note = ""
    try:
        rows.append(_compiled_again(archive, where, length))
    except SlipstreamError as problem:
        note = f"\nCompiling it again did not succeed: {problem}"
    heads = ["program", "step, ms", "error", "exposed communication, ms", "basis"]
    kinds = ["class", "measured, ms", "modelled, ms", "error"]
    return [
        "And with no costs at all: the models of A100 and NVLink, on the program that ran and on",
        "the one that today's XLA makes of the archive's HLO before optimisation, with its target",
        "configuration and autotuning results.", "", table(heads, rows), note, "",
        "By class, the sum over the instructions of the program that ran:", "",
        table(kinds, _classes(profile, profile.programs[name], where)), "",
        "A collective's measured time has the wait for its peers in it. The curves of kernels were",
        "fitted on an H200 and scaled by data sheets; fusions that make an attention mask anew for",
        "every element, and kernels of a few microseconds, take longer on an A100 than that says.",
    ]  # fmt: skip


def _classes(profile: Profile, program: Program, where: Machine) -> list[list[str]]:
    measured = costing(program, where, costs_of(profile).costs, program)
    sums: dict[str, list[float]] = {}
    for name, estimate in simulation(program, where).estimates.items():
        if measured[name].basis != "measured":
            continue
        count = program.executions(name) or 1
        own = sums.setdefault(estimate.kind or "other", [0.0, 0.0])
        own[0] += measured[name].us * count / 1e3
        own[1] += estimate.us * count / 1e3
    return [
        [kind, f"{real:.1f}", f"{ours:.1f}", signed(error(ours, real)) if real else ""]
        for kind, (real, ours) in sorted(sums.items(), key=lambda item: -item[1][0])
        if real > 0.05
    ]


def _compiled_again(archive: Path, where: Machine, length: float) -> list[str]:
    from slipstream.compiler.compile import compilation

    with tempfile.TemporaryDirectory() as folder:
        target, config, tuned = _inputs(archive, Path(folder))
        made = compilation(target, on=where, target_config=config, autotuning=tuned)
        label = f"compiled again by jaxlib {made.versions.get('jaxlib', '?')}, modelled costs"
        return _row(label, made.program, where, length)


def _row(label: str, program: Program, where: Machine, length: float) -> list[str]:
    step = simulation(program, where)
    times = step_times(step.profile)
    shares = basis_shares(step.estimates, step.executions)
    basis = ", ".join(f"{share:.0%} {name}" for name, share in shares.items())
    ours, waits = times.wall_us / 1e3, times.exposed_communication_us / 1e3
    return [label, f"{ours:.1f}", signed(error(ours, length)), f"{waits:.2f}", basis]


def _inputs(archive: Path, folder: Path) -> tuple[bytes, str, Path]:
    """(HLO before optimisation, target configuration, file of autotuning results)."""
    with zipfile.ZipFile(archive) as files:

        def one(part: str) -> bytes:
            (name,) = (n for n in files.namelist() if STEP in n and part in n)
            return lzma.decompress(files.read(name))

        # XLA takes autotuning results as text only from a file of this ending.
        tuned = folder / "autotuning.textproto"
        tuned.write_bytes(one("autotune_results"))
        return one("before_optimizations"), one("gpu_target_config").decode(), tuned

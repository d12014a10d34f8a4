"""One program compiled four ways: every variant's costs on every other's program."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np

from accuracy_parts.measuring import Recording, error, goal, predicted, recording, signed, table
from slipstream.machines.topology import machine

VARIANTS = ("off_default", "off_nolhs", "off_lhs_nocb", "off_pgle_nocb")
WALL_MS = {
    "off_default": 460.8, "off_nolhs": 464.8, "off_lhs_nocb": 448.1, "off_pgle_nocb": 440.2,
}  # fmt: skip
"""medians of ten interleaved steps, by the host's clock, when these were recorded"""
TIE = 0.02

TEXT = """## Costs of one recording, program of another

GPT of 8 layers, 16,384 tokens, residual stream offloaded to host memory, one H200, JAX 0.11.2; the
program was compiled with four settings. `default` and `nolhs` run in CUDA graphs, which serialise
the copies with the kernels; the other two overlap them. Rows: the recording that the costs come
from; columns: the program that is simulated.
"""


def page(data: Path) -> str:
    recordings = [recording(data / f"{name}.xplane.pb.gz") for name in VARIANTS]
    where = machine("H200")
    steps = {}
    exposed = {}
    for source in recordings:
        for target in recordings:
            _, step, waits = predicted(target, where, source.costs)
            steps[source.name, target.name] = step
            exposed[source.name, target.name] = waits
    return "\n".join([TEXT, *_tables(recordings, steps, exposed)])


Cells = dict[tuple[str, str], float]


def _tables(recordings: list[Recording], steps: Cells, exposed: Cells) -> list[str]:
    names = [r.name.removeprefix("off_") for r in recordings]
    measured = ["measured, ms", *(f"{r.step_ms:.1f}" for r in recordings)]
    wall = ["by the host's clock", *(f"{WALL_MS[r.name]:.1f}" for r in recordings)]
    rows = [measured, wall]
    waits = [["measured, ms", *(f"{r.exposed_ms:.1f}" for r in recordings)]]
    for source in recordings:
        name = source.name.removeprefix("off_")
        cells = [(steps[source.name, t.name], t.step_ms) for t in recordings]
        rows.append([name, *(f"{p:.1f} ({signed(error(p, m))})" for p, m in cells)])
        waits.append([name, *(f"{exposed[source.name, t.name]:.1f}" for t in recordings)])
    return [
        table(["step", *names], rows), "",
        table(["exposed copies", *names], waits), "",
        *_goals(recordings, steps, exposed), "",
    ]  # fmt: skip


def _goals(recordings: list[Recording], steps: Cells, exposed: Cells) -> list[str]:
    by_name = {r.name: r for r in recordings}
    errors = [abs(error(step, by_name[t].step_ms)) for (_, t), step in steps.items()]
    off = [abs(waits - by_name[t].exposed_ms) for (_, t), waits in exposed.items()]
    right, pairs = _orders(recordings, steps)
    return [
        goal("mean error (goal 2%)", f"{np.mean(errors):.1%}", bool(np.mean(errors) <= 0.02)),
        goal("worst error (goal 3.5%)", f"{max(errors):.1%}", max(errors) <= 0.035),
        goal(
            f"order of steps that differ by more than {TIE:.0%}, from the costs of one recording",
            f"{right} of {pairs} right",
            right == pairs,
        ),
        goal("exposed copies (goal 3 ms)", f"within {max(off):.1f} ms", max(off) <= 3),
    ]


def _orders(recordings: list[Recording], steps: Cells) -> tuple[int, int]:
    right = pairs = 0
    for one, other in combinations(recordings, 2):
        if abs(one.step_ms / other.step_ms - 1) <= TIE:
            continue
        for source in recordings:
            pairs += 1
            ours = steps[source.name, one.name] - steps[source.name, other.name]
            right += (ours > 0) == (one.step_ms > other.step_ms)
    return right, pairs

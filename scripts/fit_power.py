"""Fit the energies in machines/power.json to recorded clocks and power, and say how far off.

    python scripts/fit_power.py [--write]

The recording is tests/data/accuracy/power.json (tests/record/power.py on an H200): products,
sweeps over memory, attention and mixtures of them, at the power cap and at locked clocks. The
energy of elementwise operations comes from training steps beside it (variants.json), whose work is
counted in their programs (variant_kernels.json.gz).
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from pathlib import Path

import numpy as np

from slipstream.machines.gpus import gpus
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.power import work as work_of
from slipstream.simulate.costing import working
from slipstream.sources.hlo.reader import program_from_text

REPOSITORY = Path(__file__).resolve().parent.parent
DATA = REPOSITORY / "tests/data/accuracy"
CONSTANTS = REPOSITORY / "src/slipstream/machines/power.json"
REFERENCE_HZ = 1.755e9
KINDS = ("bf16", "tf32", "f8", "attention", "byte", "operation")
NAMES = {"bfloat16": "bf16", "float16": "bf16", "float32": "tf32", "float8_e4m3fn": "f8"}
VALUES = {"made up": ", made up", "equal tokens": ", equal tokens"}
"""kinds of values, and what the names of rows with them end with"""
SCALES = {"8.0": 1.25, "10.0": 0.63}
"""energies of other architectures relative to Hopper's.  A100: so that a bf16 product takes 400 W
at 1.35 GHz, where recorded ones are (docs/accuracy.md). Blackwell: power cap over published bf16
rate, 1000 W / 2,250 TFLOP/s, against 700 W / 989 TFLOP/s."""


def recorded():
    """(name, clock in Hz, watts, work a second by kind) of every row of the recording."""
    found = json.loads((DATA / "power.json").read_text())
    for row in found["rows"]:
        work = {"byte": row["bytes"] * row["per_second"]}
        for name, flops in row["flops"].items():
            kind = "attention" if "attention" in row["name"] else NAMES.get(name, name)
            work[kind] = work.get(kind, 0.0) + flops * row["per_second"]
        yield row["name"], row["clock_mhz"] * 1e6, row["power_w"], work


def steps():
    """The same of training steps."""
    measured = json.loads((DATA / "variants.json").read_text())["variants"]
    programs = json.loads(gzip.decompress((DATA / "variant_kernels.json.gz").read_bytes()))
    for group in programs["groups"]:
        row = measured[group["name"]]
        if "pallas" in group["name"]:  # its work is not in the program's text
            continue
        work = {
            kind: each / row["step_ms"] * 1e3 for kind, each in of_program(group["hlo"]).items()
        }
        yield group["name"], row["clock_mhz"] * 1e6, row["power_w"], work


def of_program(text):
    program, total = program_from_text(text), dict.fromkeys(KINDS, 0.0)
    for instruction in working(program):
        times = program.executions(instruction.name) or 0
        for kind, amount in work_of(kernel_features(program, instruction)).items():
            total[kind] += amount * times
    return total


def fitted(rows):
    """(static watts, picojoules by kind), with equal weight for equal relative errors."""
    table = np.array([coefficients(row) for row in rows])
    watts = np.array([row[2] for row in rows])
    values, *_ = np.linalg.lstsq(table / watts[:, None], np.ones(len(rows)), rcond=None)
    return values, table @ values / watts - 1


def coefficients(row):
    _, clock, _, work = row
    return [1.0, *(clock / REFERENCE_HZ * work.get(kind, 0.0) / 1e12 for kind in KINDS)]


def drawn(values, row):
    return float(np.dot(values, coefficients(row)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write power.json")
    options = parser.parse_args()
    every = list(recorded())
    rows = [row for row in every if "zeros" not in row[0] and "made up" not in row[0]]
    rows = [row for row in rows if "Llama" not in row[0]]  # their bytes are not counted
    rows += steps()
    values, errors = fitted(rows)
    for (name, clock, watts, _), error in zip(rows, errors, strict=True):
        print(f"{name:40s} {clock / 1e6:5.0f} MHz {watts:4.0f} W {error:+6.1%}")
    apart = [
        drawn(fitted([*rows[:i], *rows[i + 1 :]])[0], row) / row[2] - 1
        for i, row in enumerate(rows)
        if "tf32" not in row[3]  # the only one of its kind
    ]
    spread, alone = (math.sqrt(np.mean(np.square(each))) for each in (errors, apart))
    print(f"static {values[0]:.0f} W, pJ {dict(zip(KINDS, values[1:].round(3), strict=True))}")
    print(f"root mean square error {spread:.1%}, of rows left out one by one {alone:.1%}")
    activities = {"random": 1.0}
    for kind, end in VALUES.items():
        found = [
            activity(row, values) for row in every if "Llama" in row[0] and row[0].endswith(end)
        ]
        activities[kind] = round(sum(found) / len(found), 2)
        print(f"layers of Llama 8B, {kind}: {activities[kind]} of the energy ({len(found)} rows)")
    if options.write:
        write(values, alone, activities)


def activity(row, values):
    """Energy of a step with made-up values relative to random ones; its bytes are unknown, some
    0.8 TB/s, as in other training steps."""
    name, clock, watts, work = row
    full = drawn(values, (name, clock, watts, {**work, "byte": 0.8e12}))
    return (watts - values[0]) / (full - values[0])


def write(values, error, activities):
    gpu = gpus()["H200"]
    data = {
        "about": "Energy of work beyond static power, in picojoules for each operation or byte at "
        "reference_hz, in proportion to the clock; fitted by scripts/fit_power.py to an NVIDIA "
        "H200 (tests/data/accuracy/power.json). scales: of other architectures, from data sheets. "
        "activity: energy by values, relative to random ones, as measured on layers of a Llama: "
        "those that XLA's hlo_runner makes up, and random weights with all tokens equal.",
        "error": round(error, 3),
        "clock_hz": gpu.clock_hz,
        "power_w": gpu.power_w,
        "reference_hz": REFERENCE_HZ,
        "static_w": round(float(values[0])),
        "picojoules": {k: float(f"{v:.3g}") for k, v in zip(KINDS, values[1:], strict=True)},
        "scales": SCALES,
        "activity": activities,
    }
    CONSTANTS.write_text(json.dumps(data, indent=2) + "\n")


if __name__ == "__main__":
    main()

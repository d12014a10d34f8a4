"""Modelled against measured kernels, by class, on recordings that the model is not fitted on.

`python benchmarks/kernels.py [RECORDING …] [--worst N]`: for every recording the time of a step in
which the device was busy, and the sum that the model gives its kernels. Per class it is the sum of
the measured kernels: where some run side by side, that is more than the device was busy. Without
arguments: all recordings of one H200 in tests/data. Needs no GPU.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path

import numpy as np

from slipstream.costs.measure import measure
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.topology import machine
from slipstream.sources.load import load

DATA = Path(__file__).resolve().parent.parent / "tests" / "data"
RECORDINGS = (
    "accuracy/gpt_scan.*",
    "accuracy/resnet.*",
    "accuracy/gpt_cudnn.*",
    "accuracy/mixer.*",
    "accuracy/gpt_fsdp.*",
    "single*",
    "off_*",
    "attention_*",
    "convolution_*",
)
CLASSES = ("gemm", "fusion", "attention", "convolution", "copy", "other")


def compared(path):
    """Microseconds a step of every instruction: class, name, measured, modelled, why."""
    profile = load(path)
    chip = machine("H200")
    for measured in measure(profile):
        program = profile.programs.get(measured.program)
        if program is None or measured.instruction not in program or measured.is_communication:
            continue
        instruction = program.instruction(measured.instruction)
        estimate = kernel_time(chip, program, instruction)
        executions = measured.us.shape[1]
        us = float(np.median(measured.us)) * executions
        yield estimate.kind, measured.instruction, us, estimate.us * executions, estimate.why


def busy_ms(path):
    """The time of a step in which the device does anything: kernels may run side by side."""
    profile = load(path)
    steps = profile.steps
    rows = np.flatnonzero(steps.of_events(profile) < len(steps))
    start = profile.events["start_ps"][rows]
    end = start + profile.events["duration_ps"][rows]
    order = np.argsort(start)
    latest = np.maximum.accumulate(end[order])
    before = np.concatenate(([start[order][0]], latest[:-1]))
    new = np.maximum(latest - np.maximum(start[order], before), 0)
    return float(new.sum()) / 1e9 / len(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("recordings", nargs="*", type=Path)
    parser.add_argument("--worst", type=int, default=0, help="name the instructions furthest off")
    options = parser.parse_args()
    paths = options.recordings or [
        p for pattern in RECORDINGS for p in sorted(DATA.glob(f"{pattern}.xplane.pb.gz"))
    ]
    print("| recording | busy, ms | modelled, ms | error |", " | ".join(CLASSES), "|")
    print("| --- " * (4 + len(CLASSES)) + "|")
    errors = []
    for path in paths:
        rows = list(compared(path))
        sums = defaultdict(lambda: [0.0, 0.0])
        for kind, _, us, modelled, _ in rows:
            for key in (kind, ""):
                sums[key][0] += us / 1e3
                sums[key][1] += modelled / 1e3
        was, said = busy_ms(path), sums[""][1]
        errors.append(abs(said / was - 1))
        cells = [
            f"{sums[kind][0]:.2f} ({sums[kind][1] / sums[kind][0] - 1:+.0%})"
            if sums[kind][0] > 0.001 * was
            else ""
            for kind in CLASSES
        ]
        name = path.name.removesuffix(".xplane.pb.gz")
        print(
            f"| {name} | {was:.2f} | {said:.2f} | {said / was - 1:+.1%} |", " | ".join(cells), "|"
        )
        for row in sorted(rows, key=lambda r: -abs(r[2] - r[3]))[: options.worst]:
            kind, instruction, us, modelled, why = row
            print(f"    {kind:11s} {instruction[:40]:40s} {us:10.1f} {modelled:10.1f} µs  {why}")
    print(f"\nmean error of a step's kernels: {np.mean(errors):.1%}, worst {max(errors):.1%}")


if __name__ == "__main__":
    main()

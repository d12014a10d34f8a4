"""MaxText's published steps on TPUs, predicted with no TPU.

    python benchmarks/tpu.py [--only 16B]

The rows are those of the README of AI-Hypercomputer/maxtext in July 2024: model TFLOP/s per chip,
without recomputation.  The models (`tpu_models.py`) are plain JAX with MaxText's sizes, layouts and
flags; the compiler is today's.  A row compiles for about a minute.  The first row was seen while
the model was made (docs/simulate.md); the others were not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SLICES_16B = {1: 120, 2: 117, 4: 117, 8: 115, 16: 111, 32: 108}
SLICES_64B = {1: 118, 2: 112, 4: 110, 8: 108, 16: 105, 32: 99}
ROWS = [
    *((f"16B, {n} × v5e-256", f"{n}xv5e-256", 16, 6, 1, "full", t) for n, t in SLICES_16B.items()),
    *((f"64B, {n} × v5e-256", f"{n}xv5e-256", 64, 2, 1, "full", t) for n, t in SLICES_64B.items()),
    ("32B, v5p-128", "v5p-128", 32, 6, 4, "minimal", 328),
]
"""name, machine, scale, sequences per chip, tensor parallelism, remat, TFLOP/s per chip"""
FLAGS = dict.fromkeys(
    (
        "xla_tpu_enable_async_collective_fusion",
        "xla_tpu_enable_async_collective_fusion_fuse_all_gather",
        "xla_tpu_enable_async_collective_fusion_multiple_steps",
        "xla_tpu_overlap_compute_collective_tc",
        "xla_enable_async_all_gather",
        "xla_tpu_enable_data_parallel_all_reduce_opt",
        "xla_tpu_data_parallel_opt_different_sized_ops",
    ),
    "true",
)


def main() -> None:
    from slipstream.compiler.compile import compilation
    from slipstream.machines.topology import machine
    from slipstream.simulate.prediction import predict

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    only = parser.parse_args().only
    sys.path.insert(0, str(HERE))
    print("row                      measured  predicted  error   step  exposed  default  compile")
    for name, spec, scale, batch, tensor, remat, measured in ROWS:
        if only not in name:
            continue
        settings = {"SCALE": scale, "BATCH": batch, "TENSOR": tensor, "REMAT": remat}
        os.environ |= {f"TPU_{key}": str(value) for key, value in settings.items()}
        begun = time.monotonic()
        found = compilation(f"{HERE / 'tpu_models.py'}:build", on=spec, flags=FLAGS)
        compiled_s = time.monotonic() - begun
        step = predict(found.program, machine(spec), compilation=found)
        rate = step_flops(scale, batch) / step.step_us / 1e6
        print(
            f"{name:24} {measured:8.0f} {rate:10.1f} {rate / measured - 1:+6.1%}"
            f" {step.step_us / 1e6:5.2f} s {step.exposed_communication_us / step.step_us:7.1%}"
            f" {step.basis.get('default', 0.0):7.1%} {compiled_s:6.0f} s",
            flush=True,
        )


def step_flops(scale: int, batch: int) -> float:
    from tpu_models import scaled

    return scaled(scale).step_flops(batch)


if __name__ == "__main__":
    main()

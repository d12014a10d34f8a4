"""MaxText's published steps on TPUs, predicted with no TPU.

    python benchmarks/tpu.py [--only 16B]

The rows are those of the README of AI-Hypercomputer/maxtext in July 2024, less 128B on v5e (it
offloads to the host) and 1160B: model TFLOP/s per chip, without recomputation.  The models
(`tpu_models.py`) are plain JAX with MaxText's sizes, layouts and flags; the compiler is today's.  A
row compiles for about a minute.  What was seen of them while the model was made is in
docs/simulate.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

from slipstream.compiler.compilation import MemoryUse

HERE = Path(__file__).resolve().parent
SLICES = (1, 2, 4, 8, 16, 32)
V5E = {
    16: (120, 117, 117, 115, 111, 108),
    32: (132, 128, 126, 125, 123, 119),
    64: (118, 112, 110, 108, 105, 99),
}
V5E_BATCH = {16: 6, 32: 4, 64: 2}
ROWS = [
    *(
        (f"{scale}B, {n} × v5e-256", f"{n}xv5e-256", scale, V5E_BATCH[scale], 1, "full", measured)
        for scale, row in V5E.items()
        for n, measured in zip(SLICES, row, strict=True)
    ),
    ("32B, v5p-128", "v5p-128", 32, 6, 4, "minimal", 328),
    ("64B, v5p-128", "v5p-128", 64, 3, 4, "minimal", 323),
    ("128B, v5p-256", "v5p-256", 128, 1, 8, "minimal", 315),
    ("128B, v5p-512", "v5p-512", 128, 1, 8, "minimal", 315),
    ("256B, v5p-1024", "v5p-1024", 256, 1, 8, "minimal", 316),
    ("512B, v5p-1024", "v5p-1024", 512, 2, 8, "full", 294),
    ("1024B, v5p-4096", "v5p-4096", 1024, 2, 16, "full", 297),
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
V5P_FLAGS = FLAGS | {
    "xla_tpu_megacore_fusion_allow_ags": "false",
    "xla_enable_async_collective_permute": "true",
    "xla_tpu_enable_ag_backward_pipelining": "true",
}


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
        found = compilation(
            f"{HERE / 'tpu_models.py'}:build",
            on=spec,
            flags=V5P_FLAGS if spec.startswith("v5p") else FLAGS,
        )
        compiled_s = time.monotonic() - begun
        step = predict(found.program, machine(spec), compilation=found)
        rate = step_flops(scale, batch) / step.step_us / 1e6
        print(
            f"{name:24} {measured:8.0f} {rate:10.1f} {rate / measured - 1:+6.1%}"
            f" {step.step_us / 1e6:5.2f} s {step.exposed_communication_us / step.step_us:7.1%}"
            f" {step.basis.get('default', 0.0):7.1%} {compiled_s:6.0f} s{too_large(found.memory)}",
            flush=True,
        )


def too_large(memory: MemoryUse) -> str:
    if memory.fits:
        return ""
    return f"  needs {memory.peak_bytes / 1e9:.0f} of {memory.capacity_bytes / 1e9:.0f} GB"


def step_flops(scale: int, batch: int) -> float:
    from tpu_models import scaled

    return scaled(scale).step_flops(batch)


if __name__ == "__main__":
    main()

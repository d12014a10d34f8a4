"""MaxText's published steps on TPUs, predicted with no TPU.

    python benchmarks/tpu.py [--only 16B] [--base 2023]

The rows are those of the README of AI-Hypercomputer/maxtext in July 2024, less 128B on v5e (it
offloads to the host) and 1160B, and those on two slices of v5p (MaxText/configs/v5p/README.md):
model TFLOP/s per chip, without recomputation.  The models (`tpu_models.py`) are plain JAX with
MaxText's sizes, layouts and flags; the compiler is today's.  A row compiles for about a minute.

Both tables were published in December 2023, when MaxText's `base.yml` was another one: `--base
2023` predicts these models, with the batches and layouts of the scripts of then.  What was seen of
the rows while the model was made is in docs/simulate.md.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
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
V5P = [
    # TFLOP/s per chip on one slice and on two; sequences per chip and layout of 2023 and of 2024
    (32, 128, 328, 319, (8, 4, "minimal"), (6, 4, "minimal")),
    (64, 128, 323, 309, (4, 4, "minimal"), (3, 4, "minimal")),
    (128, 256, 315, 305, (2, 8, "minimal"), (1, 8, "minimal")),
    (128, 512, 315, 274, (2, 8, "minimal"), (1, 8, "minimal")),
    (256, 1024, 316, 289, (2, 8, "minimal"), (1, 8, "minimal")),
    (512, 1024, 294, 282, (2, 16, "full"), (2, 8, "full")),
    (1024, 2048, 254, 237, (2, 16, "full"), (2, 16, "full")),
    (1024, 4096, 297, 279, (2, 16, "full"), (2, 16, "full")),
]


def rows(base: str) -> Iterator[tuple[str, str, float, dict[str, str]]]:
    """Name, machine, TFLOP/s per chip, and the settings of `tpu_models.build`."""
    attention = "plain" if base == "2023" else "flash"
    for scale, measured in V5E.items():
        for slices, rate in zip(SLICES, measured, strict=True):
            layout = settings(base, scale, V5E_BATCH[scale], 1, "full", attention)
            yield f"{scale}B, {slices} × v5e-256", f"{slices}xv5e-256", rate, layout
    for scale, cores, one, two, *of_base in V5P:
        layout = settings(base, scale, *of_base[base == "2024"], "flash")
        for slices, rate in ((1, one), (2, two)):
            yield f"{scale}B, {slices} × v5p-{cores}", f"{slices}xv5p-{cores}", rate, layout


def settings(
    base: str, scale: int, batch: int, tensor: int, remat: str, attention: str
) -> dict[str, str]:
    return {
        "BASE": base,
        "SCALE": str(scale),
        "BATCH": str(batch),
        "TENSOR": str(tensor),
        "REMAT": remat,
        "ATTENTION": attention,
    }


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
    parser.add_argument("--base", default="2024", choices=("2023", "2024"), help="year of base.yml")
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE))
    print(f"{'row':24} measured  predicted  error   step  exposed  default  compile  simulate")
    for name, spec, measured, layout in rows(asked.base):
        if asked.only not in name:
            continue
        os.environ |= {f"TPU_{key}": value for key, value in layout.items()}
        begun = time.monotonic()
        found = compilation(
            f"{HERE / 'tpu_models.py'}:build",
            on=spec,
            flags=V5P_FLAGS if "v5p" in spec else FLAGS,
        )
        compiled_s = time.monotonic() - begun
        program = found.program
        begun = time.monotonic()
        step = predict(program, machine(spec), compilation=found)
        simulated_s = time.monotonic() - begun
        rate = step_flops(layout) / step.step_us / 1e6
        print(
            f"{name:24} {measured:8.0f} {rate:10.1f} {rate / measured - 1:+6.1%}"
            f" {step.step_us / 1e6:5.2f} s {step.exposed_communication_us / step.step_us:7.1%}"
            f" {step.basis.get('default', 0.0):7.1%} {compiled_s:6.0f} s {simulated_s:7.2f} s"
            f"{too_large(found.memory)}",
            flush=True,
        )


def too_large(memory: MemoryUse) -> str:
    if memory.fits:
        return ""
    return f"  needs {memory.peak_bytes / 1e9:.0f} of {memory.capacity_bytes / 1e9:.0f} GB"


def step_flops(layout: dict[str, str]) -> float:
    from tpu_models import scaled

    return scaled(int(layout["SCALE"]), layout["BASE"]).step_flops(int(layout["BATCH"]))


if __name__ == "__main__":
    main()

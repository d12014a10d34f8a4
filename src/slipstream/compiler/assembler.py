"""A stand-in for CUDA's assembler, for compiles whose machine code nobody runs.

XLA starts `ptxas` for each kernel of a program, at the very end, when schedule and memory are
settled: it takes 30 to 45% of a compile's CPU time. The stand-in writes empty files instead.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

FOLDER_FLAG = "xla_gpu_cuda_data_dir"
"""where XLA looks first for CUDA's tools"""
_SCRIPT = """#!/bin/sh
for argument; do
  [ "$previous" = -o ] && : > "$argument"
  [ "$argument" = --version ] && echo "Cuda compilation tools, release {release}, V{release}.48"
  previous=$argument
done
exit 0
"""


def stand_in(folder: Path, packages: Iterable[str]) -> Path | None:
    """A folder with the stand-in, as XLA's flag wants it; None where no script can run.

    `packages` are the installed ones, of which the plugin tells the release of CUDA.
    """
    release = "12.9" if any("cuda12" in name for name in packages) else "13.0"
    tools = [folder / "bin" / name for name in ("ptxas", "nvlink")]
    for tool in tools:
        if not tool.exists():
            tool.parent.mkdir(parents=True, exist_ok=True)
            tool.write_text(_SCRIPT.format(release=release))
            tool.chmod(0o755)
    return folder if all(os.access(tool, os.X_OK) for tool in tools) else None


def has_own_kernels(stablehlo: bytes) -> bool:
    """Whether a program brings kernels of its own, which an assembler may refuse."""
    from slipstream.compiler.worker.pallas_calls import MOSAIC, TRITON

    return any(name.encode() in stablehlo for name in (TRITON, MOSAIC))

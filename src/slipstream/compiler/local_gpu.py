"""The GPU of this machine, if there is one: its exact configuration, and autotuning on it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from slipstream.errors import BadInput, Missing
from slipstream.machines.machine import Machine

_QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpu() -> str | None:
    """The model of the first GPU, as the driver says it; None where none is."""
    return _asked() or _listed()


def _asked() -> str | None:
    if shutil.which(_QUERY[0]) is None:
        return None
    try:
        done = subprocess.run(_QUERY, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    names = done.stdout.strip().splitlines() if done.returncode == 0 else []
    return names[0].strip() if names else None


def _listed() -> str | None:
    """Containers may have the driver and not its tools."""
    for file in sorted(_DRIVER.glob("*/information")):
        for line in file.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return None


def is_same_model(machine: Machine, model: str | None) -> bool:
    """Whether a GPU is what the machine is made of: `NVIDIA H200` and `NVIDIA H200 NVL` are not."""
    return model is not None and model.casefold() == machine.gpu.full_name.casefold()


def check_same_model(machine: Machine) -> None:
    """Missing where no GPU is, BadInput where another one is."""
    model = visible_gpu()
    if model is None:
        raise Missing(
            "no GPU is visible here, so nothing can be tuned on it; leave the option out, or give "
            "the results of a machine that has one: --autotuning FILE"
        )
    if not is_same_model(machine, model):
        raise BadInput(
            f"the GPU here is a {model}, and {machine.spec} is made of {machine.gpu.full_name}; "
            "leave the option out, or compile for the GPU that is here"
        )

"""The local GPU, if there is one, for its exact configuration and autotuning on it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from slipstream.errors import BadInput, Missing
from slipstream.machines.machine import Machine

_QUERY = ("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
_DRIVER = Path("/proc/driver/nvidia/gpus")


def visible_gpu() -> str | None:
    """The model of the first GPU, as the driver reports it; None if there is none."""
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
    """From the driver, as containers may lack its tools."""
    for file in sorted(_DRIVER.glob("*/information")):
        for line in file.read_text(errors="replace").splitlines():
            if line.startswith("Model:"):
                return line.partition(":")[2].strip()
    return None


def is_same_model(machine: Machine, model: str | None) -> bool:
    """Whether a machine has GPUs of this model; `NVIDIA H200` and `NVIDIA H200 NVL` differ."""
    return model is not None and model.casefold() == machine.chip.full_name.casefold()


def check_same_model(machine: Machine) -> None:
    """Raise Missing without a GPU, BadInput if it is another model."""
    model = visible_gpu()
    if model is None:
        raise Missing(
            "no GPU is visible to autotune on; omit the option, or use the results of a machine "
            "that has one: --autotuning FILE"
        )
    if not is_same_model(machine, model):
        raise BadInput(
            f"the local GPU is {model}, but {machine.spec} has {machine.chip.full_name}; "
            "omit the option, or compile for the local GPU"
        )

"""How much power work takes, and the clock at which it stays below the GPU's power cap.

    watts = static + clock / reference × energy at the reference clock / time

A GPU that would take more than its cap lowers its clock, within milliseconds and for as long as the
work lasts.  Voltage rises with the clock, so that the energy of an operation does too; at a lower
clock work also takes longer.  A step of several kernels has one clock: that of its mean power.
Waits leave power to the kernels between them, up to `peak` times the cap: bursts of products with
pauses between them (tests/data/accuracy/bursts.json) ran at the clock of their mean power if pauses
were short, and no faster than this if they were long.

`power.json` holds energies by kind of work, fitted by `scripts/fit_power.py` to an H200.  Other
GPUs have the same, times a factor for the architecture that rests on data sheets; static power is
in proportion to the cap.  Energies are those of random values, as in training.  Bits that don't
change cost less: see `Machine.activity`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from slipstream.machines.features import MATMULS, KernelFeatures
from slipstream.machines.machine import Gpu

LOWEST_SHARE = 0.3
"""of the highest clock; caps are not set below what this needs"""


@dataclass(frozen=True)
class Power:
    """What a step draws, and the clock it runs at."""

    clock_hz: float
    highest_hz: float
    """the GPU's highest clock"""
    watts: float
    """the mean over the step"""
    cap_w: float
    is_capped: bool
    """whether the power cap decides the clock"""


def work(features: KernelFeatures) -> dict[str, float]:
    """What one execution of a kernel does: FLOPs by the kind of their energy, bytes, operations."""
    moved, gemm = features.bytes, features.gemm
    if gemm is not None and gemm.dtype == "f8" and features.is_untuned:
        # A library's GEMM will take its place: see kernel_model.
        moved += features.unfused + 2 * features.transposed
    found = {"byte": float(moved), "operation": float(features.operations)}
    if gemm is not None and features.kind == "attention":
        pairs = 0.5 if features.is_causal else 1.0
        if features.window:
            pairs = min(pairs, features.window / gemm.n)
        found["attention"] = gemm.flops * MATMULS[features.form] * pairs
    elif gemm is not None:
        kind = "attention" if features.kind == "pallas" else _energy_of(gemm.dtype)
        found[kind] = float(gemm.flops)
    return found


def joules(features: KernelFeatures, gpu: Gpu) -> float:
    """Energy of one execution of a kernel at the reference clock, beyond static power."""
    energies = _constants()["picojoules"]
    picojoules = sum(amount * energies[kind] for kind, amount in work(features).items())
    return float(picojoules * 1e-12 * _scale(gpu))


def product_joules(gpu: Gpu, dtype: str) -> float:
    """Energy of one FLOP of a product in a type, at the reference clock."""
    return float(_constants()["picojoules"][_energy_of(dtype)] * 1e-12 * _scale(gpu))


def watts(gpu: Gpu, joules: float, seconds: float, share: float) -> float:
    """Mean power of work that takes so long at a share of the highest clock."""
    clock = share * gpu.clock_hz / reference_hz(gpu)
    return static_w(gpu) + (clock * joules / seconds if seconds else 0.0)


def highest_share(
    gpu: Gpu, joules: float, seconds: Callable[[float], float], most: float = 1.0
) -> float:
    """The highest share of the clock that keeps `most` times the power cap.

    `seconds` gives the time at a share.
    """
    cap_w = most * gpu.power_w
    if not cap_w or watts(gpu, joules, seconds(1.0), 1.0) <= cap_w:
        return 1.0
    low, high = LOWEST_SHARE, 1.0
    for _ in range(30):
        middle = (low + high) / 2
        if watts(gpu, joules, seconds(middle), middle) > cap_w:
            high = middle
        else:
            low = middle
    return low


def static_w(gpu: Gpu) -> float:
    """Power without any work, at the work's temperature: a share of the usual cap."""
    facts = _constants()
    return gpu.static_w or float(facts["static_w"] * gpu.power_w / facts["power_w"])


def peak() -> float:
    """What kernels may draw between waits, relative to the cap."""
    return float(_constants()["peak"])


def reference_hz(gpu: Gpu) -> float:
    """The clock that energies are stated for: the same share of the highest on every GPU."""
    facts = _constants()
    return float(gpu.clock_hz * facts["reference_hz"] / facts["clock_hz"])


def activity(values: str) -> float:
    """The energy of operations on values of a kind, relative to random ones: see `power.json`."""
    return float(_constants()["activity"][values])


def kinds_of_values() -> tuple[str, ...]:
    """What `activity` knows."""
    return tuple(_constants()["activity"])


def _energy_of(dtype: str) -> str:
    """The kind of a product's energy; types that were not measured take that of the widest."""
    kinds = {"bf16": "bf16", "f16": "bf16", "f8": "f8", "f4": "f8", "s8": "f8", "u8": "f8"}
    return kinds.get(dtype, "tf32")


def _scale(gpu: Gpu) -> float:
    """Energies relative to the GPU that they were fitted on."""
    major, minor = gpu.compute_capability
    scales: Mapping[str, float] = _constants()["scales"]
    return scales.get(f"{major}.{minor}", 1.0)


@cache
def _constants() -> Mapping[str, Any]:
    text = files("slipstream.machines").joinpath("power.json").read_text("utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found

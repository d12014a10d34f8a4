"""The least time that the models can give to work of which only the amount is known.

`kernel_model` and `power` price compiled kernels.  Before a compile, FLOPs of products and bytes
are known, but not shapes of kernels, so each figure here is the best that any shape could reach.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from slipstream.machines.kernel_model import calibrated_scales, parameters
from slipstream.machines.machine import Gpu, Machine, Tpu
from slipstream.machines.power import highest_share, product_joules

BITS = {"f4": 4, "f8": 8, "s8": 8, "bf16": 16, "f16": 16, "tf32": 32, "f32": 32, "f64": 64}
"""types that devices have rates for"""
KINDS = ("gemm", "convolution", "attention", "fusion", "kernel")
"""what XLA may make of a product"""
CAP_ERROR = 0.01
"""of the clock at a power cap: it is interpolated between two clocks, and rounded"""


def least_products_us(machine: Machine, flops: Mapping[str, float]) -> float:
    """Products on one device, one after the other; FLOPs by type (`bfloat16`, `float8_e4m3fn`).

    A product runs at the best rate of any type that is not narrower than its operands: XLA may
    widen them. The clock is the highest at which these products alone stay below the power cap,
    and a step does more than these. A TPU's clock is fixed, and its peak the best that it can do.
    """
    if isinstance(machine.chip, Tpu):
        peaks = machine.chip.peak_flops
        return sum(
            count / max(peaks[name] for name in _types(machine.chip, dtype)) * 1e6
            for dtype, count in flops.items()
        )
    gpu = machine.gpu.at(1.0)
    fastest_s = sum(count / _rate(gpu, dtype) for dtype, count in flops.items())
    joules = sum(
        count * min(product_joules(gpu, name) for name in _types(gpu, dtype))
        for dtype, count in flops.items()
    )
    fastest_s *= _least_scale(machine)
    share = highest_share(machine.gpu, joules * machine.activity, lambda one: fastest_s / one)
    if share < 1.0:
        share = min(1.0, share * (1 + CAP_ERROR))
    return fastest_s / share * 1e6


def least_traffic_us(machine: Machine, moved_bytes: float) -> float:
    """Bytes that one device reads from its memory or writes there."""
    if isinstance(machine.chip, Tpu):
        return moved_bytes / machine.chip.memory_bandwidth * 1e6
    reached = max(
        own["memory"] for own in parameters().values() if isinstance(own.get("memory"), float)
    )
    seconds: float = moved_bytes / (machine.gpu.memory_bandwidth * max(reached, 1.0))
    return seconds * _least_scale(machine) * 1e6


def least_gathers_us(machine: Machine, received_bytes: float, network_bytes: float) -> float:
    """Bytes that one device receives, and those of a link domain that come over the network."""
    if machine.calibration:
        return 0.0  # its links may be faster than published
    network = machine.network.bandwidth
    own_s = received_bytes / (machine.chip.link_bandwidth + network)
    return max(own_s, network_bytes / (network * machine.link_domain)) * 1e6


def _rate(gpu: Gpu, dtype: str) -> float:
    """FLOPs per second of a library's best tiles, without an incomplete wave, or of attention."""
    gemm = parameters()["gemm"]
    efficiencies = gemm["efficiency"]
    tiles = max(gemm["tile"].values()) * max(1.0, gemm["triton"])
    attention = max(form["share"] for form in parameters()["attention"].values())
    return float(
        max(
            gpu.peak_flops[name]
            * max(efficiencies.get(name, efficiencies["bf16"]) * tiles, attention)
            for name in _types(gpu, dtype)
        )
    )


def _types(chip: Gpu | Tpu, dtype: str) -> list[str]:
    bits = re.search(r"\d+", dtype)
    width = int(bits[0]) if bits else 8
    if dtype.startswith("complex"):
        width //= 2
    found = [name for name in chip.peak_flops if BITS[name] >= width]
    return found or ["f64" if "f64" in chip.peak_flops else "f32"]


def _least_scale(machine: Machine) -> float:
    scales = calibrated_scales(machine)
    return min((float(scales.get(kind, 1.0)) for kind in KINDS), default=1.0)

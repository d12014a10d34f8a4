"""The time of a kernel that was not measured: a roofline with fitted efficiencies.

All parameters are shares of the GPU's data sheet (`Gpu`), so that figures fitted on one GPU scale
to another. `kernels.json` holds the shares, their origin, and their error on kernels left out of
the fit (`scripts/fit_kernels.py`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import Any

from slipstream.machines.features import MATMULS, KernelFeatures
from slipstream.machines.gemm_model import gemm_us, peak_of, wave_count
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.machine import Estimate, Gpu, Machine
from slipstream.machines.measured_calls import measured_call
from slipstream.profile.program import Instruction, Program

Parameters = Mapping[str, Any]

CLASSES = {
    "loop": "fusion",
    "reduce": "fusion",
    "columns": "fusion",
    "rows": "fusion",
    "transpose": "fusion",
    "strided": "fusion",
    "scatter": "fusion",
    "host copy": "copy",
    "pallas": "kernel",
    "callback": "copy",
    "sort": "other",
    "free": "other",
}
"""kind of the Estimate, if it differs from the kernel's kind"""


CALLBACK_US = 100.0
"""from the GPU into Python and back without data, at least: a wait for the stream, Python's lock
and a launch (an assumption; the function's own time is not known)"""

TRITON_SPEED = {"f8": 0.195, "tf32": 0.5}
"""of Triton's best tile relative to a library's GEMM, where it isn't about 1: the median over
products of three and four shapes on an H200, 0.19 to 0.20 and 0.43 to 0.71
(tests/record/triton_tiles.py)"""

PALLAS_TRITON = 0.58
"""matmuls of a Triton program relative to a library's with such tiles, which loads the next values
meanwhile. From two kernels on an H200, JAX's flash attention (tests/record/variants.py): forward
with tiles of 128 x 128 at 0.55, backward with 32 x 32 at 0.64"""

LANES = 128
"""lanes of the GPU that the rates were fitted on: see `_lanes`"""


def kernel_time(machine: Machine, program: Program, instruction: Instruction) -> Estimate:
    """The time of one execution of an instruction other than a collective."""
    return KernelTimes(machine)(program, instruction)


class KernelTimes:
    """`kernel_time` of many instructions; equal kernels are modelled once."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._modelled: dict[KernelFeatures, Estimate] = {}

    def __call__(self, program: Program, instruction: Instruction) -> Estimate:
        features = kernel_features(program, instruction)
        measured = measured_call(self._machine.calibration, program, instruction)
        if measured is not None:
            kind = CLASSES.get(features.kind, features.kind)
            why = f"measured with these shapes{f': {measured.source}' if measured.source else ''}"
            return Estimate(measured.us, "calibrated", kind, why)
        if features not in self._modelled:
            self._modelled[features] = _modelled(features, self._machine)
        return self._modelled[features]


def _modelled(features: KernelFeatures, machine: Machine) -> Estimate:
    kind = CLASSES.get(features.kind, features.kind)
    us = kernel_us(features, machine.gpu, parameters())
    is_unknown = features.kind == "other" or features.is_least
    basis = "default" if is_unknown else "modelled"
    scale = calibrated_scales(machine).get(kind)
    if scale is not None and us:
        us, basis = us * scale, "calibrated"
    return Estimate(us, basis, kind, _why(features, machine.gpu, us))


def kernel_scales(
    machine: Machine, program: Program, us_by_name: Mapping[str, float]
) -> dict[str, float]:
    """Measured over modelled time by kind, for `calibration["kernels"]["scales"]`.

    `us_by_name` holds each instruction's time, as in a cost table.
    """
    measured: dict[str, float] = {}
    modelled: dict[str, float] = {}
    for instruction in program.scheduled:
        us = us_by_name.get(instruction.scheduling_name or instruction.name)
        us = us_by_name.get(instruction.name) if us is None else us
        features = kernel_features(program, instruction)
        if not us or instruction.collective is not None or features.kind in ("free", "other"):
            continue
        times = program.executions(instruction.name) or 1
        kind = CLASSES.get(features.kind, features.kind)
        measured[kind] = measured.get(kind, 0.0) + us * times
        expected = kernel_us(features, machine.gpu, parameters()) * times
        modelled[kind] = modelled.get(kind, 0.0) + expected
    return {kind: us / modelled[kind] for kind, us in measured.items() if modelled[kind]}


@cache
def parameters() -> Parameters:
    """The fitted parameters of `kernels.json`."""
    data = json.loads(files("slipstream.machines").joinpath("kernels.json").read_text("utf-8"))
    return dict(data["parameters"])


def kernel_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    """Microseconds on the device."""
    if features.kind == "free":
        return 0.0
    if features.kind in ("host copy", "callback"):
        copy = parameters["host_copy"]
        latency = CALLBACK_US if features.kind == "callback" else copy["latency_us"]
        return float(latency + features.bytes / (gpu.host_bandwidth * copy["share"]) * 1e6)
    if features.kind == "attention" and features.gemm is not None:
        return _attention_us(features, gpu, parameters)
    if features.kind == "pallas":
        return _pallas_us(features, gpu, parameters)
    if features.gemm is not None and features.kind in ("gemm", "convolution"):
        return _matmul_us(features, gpu, parameters)
    return _fusion_us(features, gpu, parameters)


def _matmul_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    own = _product_us(features, gpu, parameters)
    if not (features.is_triton and features.is_untuned):
        return own
    assert features.gemm is not None
    own /= TRITON_SPEED.get(features.gemm.dtype, 1.0)
    # On a GPU, XLA measures both and takes the faster. A library's GEMM leaves the rest of the
    # fusion to other kernels.
    library = _product_us(replace(features, is_triton=False), gpu, parameters)
    if features.unfused:
        rest = KernelFeatures("loop", features.unfused, elements=features.elements)
        library += _fusion_us(rest, gpu, parameters)
    if features.transposed:
        turned = KernelFeatures("transpose", 2 * features.transposed, elements=features.transposed)
        library += _fusion_us(turned, gpu, parameters)
    return min(own, library)


def _product_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    assert features.gemm is not None
    own = parameters[features.kind]
    compute = gemm_us(features.gemm, gpu, parameters["gemm"])
    if features.kind == "convolution":
        compute /= own["share"]
        if features.channels % 8:
            # Tensor cores need multiples of eight channels; otherwise the CUDA cores are used.
            rate = gpu.peak_flops["f32"] * own["plain"][features.form]
            compute = features.gemm.flops / rate * 1e6
    elif features.is_triton:
        compute /= own["triton"]
        compute += _arithmetic_us(features, gpu, parameters) * own["fused"]
    # Results are written in bursts at the end of a tile; operands are read all the time.
    moved = features.bytes - features.added + features.written * own.get("bursts", 0.0)
    memory = moved / (gpu.memory_bandwidth * own["memory"]) * 1e6
    us = own["latency_us"] + _joined(compute, memory, own["overlap"])
    if features.added:
        # The addend is read when a tile is done, with no compute left to overlap with.
        us += features.added / (gpu.memory_bandwidth * own["added"]) * 1e6
    return float(us)


def _attention_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    """Per pair of query and key: two matmuls (five in the backward pass) and an exponential."""
    gemm = features.gemm
    assert gemm is not None
    own = parameters["attention"][features.form]
    pairs = gemm.batch * gemm.m * gemm.n
    if features.is_causal:
        # Blocks on the diagonal are computed completely.
        pairs *= min(1.0, 0.5 + own["diagonal"] + own["block"] / gemm.n)
    if features.window:
        pairs = min(pairs, gemm.batch * gemm.m * (features.window + own["block"]))
    pairs *= 1 + own["ramp"] / gemm.n
    peak = gpu.peak_flops.get(gemm.dtype) or gpu.peak_flops["bf16"]
    arithmetic = pairs * MATMULS[features.form] * 2 * gemm.k / (peak * own["share"])
    exponentials = pairs / (gpu.cores * gpu.clock_hz * own["exponentials"])
    memory = features.bytes / (gpu.memory_bandwidth * own["memory"])
    return float(own["latency_us"] + _joined(_joined(arithmetic, exponentials, 2), memory, 2) * 1e6)


def _pallas_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    """Matmuls at the speed of their tiles, arithmetic beside or after them, and memory.

    A Triton program waits for its matmuls before it goes on; warpgroups of a Mosaic GPU kernel
    compute while others wait. The code decides what is done.
    """
    arithmetic = _arithmetic_us(features, gpu, parameters)
    matmuls = 0.0
    if features.gemm is not None:
        own = parameters["gemm"]
        rate = peak_of(gpu, features.gemm.dtype) * own["efficiency"].get(
            features.gemm.dtype, own["efficiency"]["bf16"]
        )
        reached = PALLAS_TRITON if features.is_triton else 1.0
        matmuls = features.gemm.flops / (rate * reached * _tile_speed(features, own["tile"])) * 1e6
    compute = _joined(arithmetic, matmuls, 1 if features.is_triton else 2)
    programs = max(features.programs, 1)
    waves = wave_count(programs, gpu.cores, parameters["gemm"]["raggedness"])
    compute *= max(waves, features.longest) * gpu.cores / programs
    memory = features.bytes / (gpu.memory_bandwidth * parameters["loop"]["memory"]) * 1e6
    return float(parameters["loop"]["latency_us"] + _joined(compute, memory, 2))


def _tile_speed(features: KernelFeatures, speeds: Mapping[str, float]) -> float:
    """The share of the full rate for a program's tile of the result."""
    assert features.gemm is not None
    # Mosaic GPU: two warpgroups of 64 rows make a tile.
    m = features.gemm.m if features.is_triton else max(features.gemm.m, 128)
    short, long = sorted((m, features.gemm.n))
    if short >= 128:
        return speeds["128x128"]
    if short >= 64:
        return speeds["128x64" if long >= 128 else "64x64"]
    # Tiles below 64 rows can't use the instructions of a warpgroup, and use each value less often.
    return speeds["64x64"] * max(short, 8) / 64


def _fusion_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    own = parameters.get(features.kind, parameters["loop"])
    memory = features.bytes / (gpu.memory_bandwidth * own["memory"]) * 1e6
    compute = _arithmetic_us(features, gpu, parameters)
    cycles = gpu.cores * gpu.clock_hz / 1e6
    if features.kind in ("loop", "copy", "strided"):
        compute = max(compute, features.elements / (cycles * own["elements"]))
    if features.kind == "transpose":
        compute = max(compute, features.elements / (cycles * own["moved"]))
    if features.strided:
        compute = max(compute, features.strided / (cycles * own["elements"]))
    if features.kind == "scatter":
        rates = own["elements"]
        # 16-bit atomic additions are compare-and-swap loops.
        width = (
            "single" if features.channels <= 1 else "half" if features.channels <= 16 else "full"
        )
        compute = features.elements / (cycles * rates[width])
    busy = _joined(compute, memory, own["overlap"])
    if waits := _row_cycles(features, own) * features.reduced / cycles:
        busy = _joined(busy, waits, own["waiting"])
    return float(own["latency_us"] + busy)


def _row_cycles(features: KernelFeatures, own: Mapping[str, float]) -> float:
    """Cycles of an SM per element of a row kernel in which it neither computes nor loads.

    The more registers a block takes, the fewer others are there to go on while it waits for a
    reduction; what doesn't fit in registers is written to memory and read again.
    """
    cycles = own["scattered"] if features.is_scattered else 0.0
    if features.pressure:
        pressure = features.pressure * (1 + own["apart"] * math.log2(features.apart))
        cycles += (pressure / own["registers"]) ** own["spilling"]
    return cycles


def _arithmetic_us(features: KernelFeatures, gpu: Gpu, parameters: Parameters) -> float:
    cycles = gpu.cores * gpu.clock_hz / 1e6
    rates = parameters["arithmetic"]
    return float(
        features.elements / (cycles * rates["elements"])
        + features.operations / (cycles * rates["operations"] * _lanes(gpu) / LANES)
        + features.transcendentals / (cycles * rates["transcendentals"])
    )


def _lanes(gpu: Gpu) -> float:
    """f32 additions per SM and cycle: 64 on an A100, 128 on later GPUs."""
    return gpu.peak_flops["f32"] / 2 / (gpu.cores * gpu.clock_hz)


def _joined(one: float, other: float, power: float) -> float:
    """The longer of two overlapping times, plus a part of the shorter: less, the higher `power`."""
    longer, shorter = max(one, other), min(one, other)
    return longer * (1 + (shorter / longer) ** power) ** (1 / power) if longer else 0.0


def calibrated_scales(machine: Machine) -> Mapping[str, float]:
    """The calibration of this GPU's kernels: measured over modelled time, by kind."""
    kernels = machine.calibration.get("kernels")
    scales = kernels.get("scales") if isinstance(kernels, Mapping) else None
    return scales if isinstance(scales, Mapping) else {}


def _why(features: KernelFeatures, gpu: Gpu, us: float) -> str:
    if not us:
        return "no work of its own"
    if features.kind == "other":
        return "an unknown call: its bytes at memory bandwidth"
    if features.gemm is not None and features.kind in ("gemm", "convolution"):
        p = features.gemm
        peak = peak_of(gpu, p.dtype)
        batch = f"{p.batch} × " if p.batch > 1 else ""
        share = p.flops / us * 1e6 / peak
        return (
            f"{batch}{p.m} × {p.n} × {p.k} in {p.dtype} at {share:.0%} of {peak / 1e12:.0f} TFLOP/s"
        )
    if features.kind == "callback":
        return f"{features.bytes / 1e6:.3g} MB to Python on the host and back, without its own time"
    if features.kind == "pallas":
        tiles = ""
        if (gemm := features.gemm) is not None:
            tiles = f"{gemm.flops / 1e9:.3g} GFLOP in tiles of {gemm.m} × {gemm.n}, "
        least = "; at least: a loop's length follows from data" if features.is_least else ""
        return f"a Pallas kernel: {tiles}{features.bytes / 1e6:.3g} MB{least}"
    if features.kind == "attention" and features.gemm is not None:
        p = features.gemm
        return f"attention, {p.batch} × {p.m} × {p.n}, head dimension {p.k}"
    rate = gpu.host_bandwidth if features.kind == "host copy" else gpu.memory_bandwidth
    share = features.bytes / us * 1e6 / rate
    return f"{features.bytes / 1e6:.3g} MB at {share:.0%} of {rate / 1e12:.3g} TB/s"

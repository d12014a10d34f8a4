"""GEMMs: the dimensions of an instruction's matmul, and how long its tiles take on all SMs.

result m × n        ┌───┬───┬───┐      one tile per SM at a time; a wave is one tile on every SM,
                    │ 1 │ 2 │ 3 │      and an incomplete last wave takes as long as a full one.
                    ├───┼───┼───┤      With few tiles and a deep k, k is split.
                    │ 4 │ 5 │ 6 │
                    └───┴───┴───┘
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from slipstream.machines.machine import Gpu, Tpu
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import backend_config, gemm_dimensions
from slipstream.profile.semantics.flops import work
from slipstream.profile.shapes import Shape

TILES = ((256, 128), (128, 256), (128, 128), (128, 64), (64, 128), (64, 64))
_VIEWS = ("convert", "bitcast", "copy", "reshape", "transpose")
_STEPS = 16
"""operations between a product and the values that it multiplies, at most"""
SPLITS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Gemm:
    """`batch` matmuls of m × k with k × n."""

    batch: int
    m: int
    n: int
    k: int
    dtype: str
    """of the operands; `tf32` for f32 on tensor cores"""
    shallow: int = 0
    """number of operands whose fastest dimension is not k, as tensor cores need it for tf32"""

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


def gemm_of_dot(program: Program, dot: Instruction) -> Gemm | None:
    """The GEMM of a `dot`."""
    shapes = [operand.shape for operand in program.operands(dot)]
    dims = {
        key: _ints(dot.attributes.get(f"{key}_dims", ()))
        for key in ("lhs_contracting", "rhs_contracting", "lhs_batch")
    }
    precision = f"{dot.attributes.get('operand_precision', '')} {dot.attributes.get('algorithm')}"
    found = _product(shapes, dims, precision)
    if found is not None and dot.opcode == "ragged-dot":
        # Each row is multiplied by the matrix of its group alone.
        found = replace(found, n=max(dot.shape.size // found.m, 1))
    if found is not None and all(_is_scaled_fp8(program, one) for one in program.operands(dot)[:2]):
        # Whoever multiplies fp8 values and a scale leaves the scale for the end (cuBLASLt).
        return replace(found, dtype="f8")
    return found


def _is_scaled_fp8(program: Program, value: Instruction) -> bool:
    """Whether a value is fp8, converted and multiplied by one number for all."""
    for _ in range(_STEPS):
        if value.shape.dtype.startswith("f8"):
            return True
        rest = list(program.operands(value))
        if value.opcode == "multiply":
            rest = [one for one in rest if not _is_one_number(program, one)]
        elif value.opcode not in _VIEWS:
            return False
        if len(rest) != 1:
            return False
        value = rest[0]
    return False


def _is_one_number(program: Program, value: Instruction) -> bool:
    """Whether all elements of a value are the same number."""
    for _ in range(_STEPS):
        if value.opcode not in (*_VIEWS, "broadcast") or value.shape.size == 1:
            break
        value = program.operands(value)[0]
    return value.shape.size == 1


def gemm_of_call(program: Program, call: Instruction) -> Gemm | None:
    """The GEMM of a cuBLAS call."""
    shapes = [operand.shape for operand in program.operands(call)]
    config = backend_config(call, "gemm_backend_config")
    return _product(shapes, gemm_dimensions(call), str(config.get("precision_config", "")))


def gemm_of_convolution(program: Program, call: Instruction) -> Gemm | None:
    """The implicit GEMM of a cuDNN convolution."""
    labels = re.fullmatch(r"(\w+)_(\w+)->(\w+)", str(call.attributes.get("dim_labels", "")))
    shapes = [operand.shape for operand in program.operands(call)]
    if labels is None or len(shapes) < 2:
        return None
    result = next(call.shape.leaves())
    place = labels[3].index("f")
    if "BackwardInput" in call.custom_call_target:
        place = labels[1].index("f")
    elif "BackwardFilter" in call.custom_call_target:
        place = labels[2].index("o")
    n = result.dims[place]
    m = result.size // max(n, 1)
    k = work(program, call).flops // max(2 * m * n, 1)
    return Gemm(1, m, n, max(k, 1), tensor_dtype(shapes[0].dtype))


def tensor_dtype(dtype: str, precision: str = "") -> str:
    """The type whose tensor-core rate applies: tf32 for f32, unless the program forbids it.

    `precision` may name an algorithm: `dot_bf16_bf16_f32` rounds f32 operands to bf16.
    """
    if dtype.startswith(("f8", "f4")):
        return dtype[:2]
    if stated := re.search(r"dot_(bf16|f16|tf32|f32)_\1_f32(?!_x)", precision.lower()):
        return stated[1]
    if dtype == "f32" and "high" not in precision.lower():
        return "tf32"
    return dtype


def peak_of(gpu: Gpu | Tpu, dtype: str) -> float:
    """The peak rate of a type; small floats are computed as the next larger type that has one."""
    for name in {"f4": ("f4", "f8", "bf16"), "f8": ("f8", "bf16")}.get(dtype, (dtype,)):
        if name in gpu.peak_flops:
            return gpu.peak_flops[name]
    return gpu.peak_flops["f32"]


def gemm_us(gemm: Gemm, gpu: Gpu, parameters: Mapping[str, Any]) -> float:
    """Microseconds of arithmetic, without memory traffic."""
    rate = peak_of(gpu, gemm.dtype) * parameters["efficiency"].get(
        gemm.dtype, parameters["efficiency"]["bf16"]
    )
    if gemm.dtype == "tf32" and gemm.shallow:
        rate *= parameters["shallow_tf32"]["one" if gemm.shallow == 1 else "both"]
    each = rate / gpu.cores
    best = math.inf
    for tile_m, tile_n in TILES:
        tiles = gemm.batch * math.ceil(gemm.m / tile_m) * math.ceil(gemm.n / tile_n)
        speed = parameters["tile"][f"{max(tile_m, tile_n)}x{min(tile_m, tile_n)}"]
        for split in SPLITS:
            k = gemm.k / split + parameters["depth"]
            waves = wave_count(tiles * split, gpu.cores, parameters["raggedness"])
            us = waves * 2 * tile_m * tile_n * k / (each * speed) * 1e6
            if split > 1:
                # Partial results are written and read back in f32.
                us += split * gemm.batch * gemm.m * gemm.n * 8 / gpu.memory_bandwidth * 1e6
            best = min(best, us)
            if gemm.k / split < 512:
                break
    return best


def wave_count(tiles: int, cores: int, raggedness: float) -> float:
    """The number of waves; part of the incomplete last one is hidden."""
    exact = tiles / cores
    if exact <= 1:
        return 1.0
    return exact + raggedness * (math.ceil(exact) - exact)


def waves(gemm: Gemm, gpu: Gpu) -> float:
    """Waves of the largest tiles. With fewer tiles than SMs, smaller ones or a split k fill one."""
    tiles = min(math.ceil(gemm.m / m) * math.ceil(gemm.n / n) for m, n in TILES[:2])
    return max(1.0, gemm.batch * tiles / gpu.cores)


def _product(
    shapes: list[Shape], dims: Mapping[str, tuple[int, ...]], precision: str
) -> Gemm | None:
    if len(shapes) < 2 or not dims.get("lhs_contracting"):
        return None
    left, right = shapes[:2]
    batch = math.prod(left.dims[d] for d in dims.get("lhs_batch", ()))
    k = math.prod(left.dims[d] for d in dims["lhs_contracting"])
    m, n = (max(shape.size // max(batch * k, 1), 1) for shape in (left, right))
    shallow = sum(
        bool(shape.layout) and shape.layout[0] not in dims.get(key, ())
        for shape, key in ((left, "lhs_contracting"), (right, "rhs_contracting"))
    )
    return Gemm(batch, m, n, k, tensor_dtype(left.dtype, precision), shallow)


def _ints(value: object) -> tuple[int, ...]:
    return tuple(int(item) for item in value) if isinstance(value, (tuple, list)) else ()

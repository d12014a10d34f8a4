"""What XLA's backend wrote about an instruction, in JSON."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Any

from slipstream.profile.program import Instruction


@dataclass(frozen=True)
class Megacore:
    """How XLA:TPU splits an instruction between the two TensorCores of a device (v4, v5p).

    Its estimated cycles are those of both cores together.
    """

    split_dimension: int
    """of its iterations, which cover results and what is summed over"""
    all_reduce_bytes: int = 0
    """partial results that the cores add up between them, where a sum is split"""


def backend_config(instruction: Instruction, key: str) -> dict[str, Any]:
    """One part of an instruction's backend configuration; empty if absent or unreadable."""
    try:
        config = json.loads(instruction.backend_config or "{}")
    except (ValueError, RecursionError):
        return {}
    found = config.get(key) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


def gemm_dimensions(instruction: Instruction) -> dict[str, tuple[int, ...]]:
    """The dimensions that a call of cuBLAS contracts and batches: `lhs_contracting`, …"""
    numbers = backend_config(instruction, "gemm_backend_config").get("dot_dimension_numbers")
    found = {}
    for key, value in numbers.items() if isinstance(numbers, dict) else ():
        # JSON of a proto writes 64-bit numbers as texts.
        texts = [str(one) for one in value] if isinstance(value, list) else []
        if all(text.isdecimal() and len(text) < 4 for text in texts):
            found[key.removesuffix("_dimensions")] = tuple(map(int, texts))
    return found


def estimated_cycles(instruction: Instruction) -> int | None:
    """How many cycles XLA:TPU expects an instruction to take; None if it doesn't say."""
    found = _CYCLES.search(instruction.backend_config)
    return int(found[1]) if found else None


def has_cost_model(instruction: Instruction) -> bool:
    """Whether XLA:TPU's estimate is that of a model; without one it follows the elements alone."""
    return "COST_MODEL_TYPE_INVALID" not in instruction.backend_config


def megacore(instruction: Instruction) -> Megacore | None:
    """How an instruction is split between two TensorCores; None if it is not."""
    if "megacore_config" not in instruction.backend_config:
        return None
    stated = backend_config(instruction, "megacore_config")
    names = ("megacore_split_dim", "megacore_allreduce_bytes")
    split, moved = (str(stated.get(name, "")) for name in names)
    if not (split.isdecimal() and len(split) < 4):
        return None
    is_known = moved.isdecimal() and len(moved) < 19
    return Megacore(int(split), int(moved) if is_known else 0)


def stated_work(instruction: Instruction) -> dict[str, int]:
    """What the author of a Pallas kernel for TPUs says it does: `flops`, `bytes_accessed`, …"""
    config = backend_config(instruction, "custom_call_config")
    stated = config.get("cost_estimate")
    numbers = stated.items() if isinstance(stated, dict) else ()
    return {key: int(n) for key, n in numbers if str(n).isdecimal() and len(str(n)) < 20}


def kernel_code(instruction: Instruction) -> bytes:
    """The compiled form of a Pallas kernel for TPUs, MLIR's bytecode; empty if it can't be read.

    Names of operations (`tpu.matmul`, `vector.multi_reduction`) are in it as they are.
    """
    body = backend_config(instruction, "custom_call_config").get("body")
    try:
        code = base64.b64decode(body, validate=True) if isinstance(body, str) else b""
    except ValueError:
        return b""
    return code if code.startswith(_BYTECODE) else b""


def call_attributes(instruction: Instruction) -> dict[str, int | float | bool | str]:
    """The attributes of a typed call, written as MLIR: `{heads = 64 : i64, is_training = true}`.

    Numbers, booleans and texts are read; other values are left out.
    """
    text = instruction.backend_config
    if not text.startswith("{"):
        return {}
    found: dict[str, int | float | bool | str] = {}
    for name, value, quoted in _ATTRIBUTE.findall(text):
        if value in ("true", "false"):
            found[name] = value == "true"
        elif value:
            number = float(value)
            is_whole = value.lstrip("-").isdecimal() and len(value) < 20
            found[name] = int(value) if is_whole else number
        else:
            found[name] = quoted
    return found


def call_name(instruction: Instruction) -> str:
    """What people know a call by: its target, or the name of a Pallas kernel."""
    target = instruction.custom_call_target
    if target.startswith(PALLAS):
        name = call_attributes(instruction).get("name")
        return f"{name} (Pallas)" if isinstance(name, str) and name else target
    return target or instruction.opcode


TPU_KERNEL = "tpu_custom_call"
"""the target of Pallas kernels for TPUs"""
_BYTECODE = b"ML\xefR"
_CYCLES = re.compile(r'"estimated_cycles"\s*:\s*"?(\d{1,18})\b')
BLOCK_SCALED = "__cudnn$blockScaledDot"
"""cuDNN's product with a scale for each block of values: … × m × k with … × n × k"""
PALLAS = ("__gpu$xla.gpu.triton", "mosaic_gpu")
"""how the targets of Pallas kernels begin: Triton, Mosaic GPU"""
_ATTRIBUTE = re.compile(
    r'[{,]\s*(\w+) = (?:(true|false|-?[0-9][0-9.eE+-]*)(?=[ ,}])|"((?:[^"\\]|\\.)*)")'
)

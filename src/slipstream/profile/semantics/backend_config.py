"""What XLA's backend wrote about an instruction, in JSON."""

from __future__ import annotations

import json
from typing import Any

from slipstream.profile.program import Instruction


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


def attention_scores(instruction: Instruction) -> tuple[int, ...]:
    """The dimensions of the scores of a fused attention, which it never stores; () if unknown."""
    config = backend_config(instruction, "cudnn_fmha_backend_config")
    shape = config.get("intermediate_tensor_shape")
    stated = shape.get("dimensions") if isinstance(shape, dict) else None
    texts = [str(one) for one in stated] if isinstance(stated, list) else []
    if len(texts) != 4 or not all(text.isdecimal() and len(text) < 12 for text in texts):
        return ()
    found = tuple(map(int, texts))
    return found if all(found) else ()

"""FLOPs of a jaxpr's products: those that the compiled program computes at least."""

from __future__ import annotations

import math
import re
from typing import Any

ATTENTION = re.compile(r"dot_product_attention_(fwd|bwd)(_wrapper)?$")
"""cuDNN's, of `jax.nn.dot_product_attention`"""
MATMULS = {"fwd": 2, "bwd": 5}
"""of attention; one of the backward pass computes the scores again"""


def product_flops(equation: Any) -> int:
    """FLOPs of an equation, a multiply-add being two; 0 if it is no product."""
    name = equation.primitive.name
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        depth: int = math.prod(left[place] for place in contracted)
        return 2 * _size(equation.outvars[0]) * depth
    if name == "conv_general_dilated":
        return _convolution_flops(equation)
    if found := ATTENTION.match(name):
        return MATMULS[found[1]] * _attention_flops(equation)
    return 0


def rounds_operands(equation: Any) -> bool:
    """Whether a product names an algorithm, such as one that rounds f32 operands to bf16."""
    precision = equation.params.get("precision")
    return precision is not None and not isinstance(precision, tuple)


def bits(dtype: str) -> int:
    """Of an element: 16 of `bfloat16`, 8 of `float8_e4m3fn`, 8 of `bool`."""
    stated = re.search(r"\d+", dtype)
    return int(stated[0]) if stated else 8


def _convolution_flops(equation: Any) -> int:
    """As many as the kernel has elements for each output channel.

    Where zeros are put in, which of them are multiplied is the library's choice: that counts 0.
    """
    parameters = equation.params
    has_zeros = any(low or high for low, high in parameters["padding"]) or any(
        size != 1 for size in parameters["lhs_dilation"]
    )
    if has_zeros or parameters["batch_group_count"] != 1:
        return 0
    kernel: tuple[int, ...] = equation.invars[1].aval.shape
    channels: int = kernel[parameters["dimension_numbers"].rhs_spec[0]]
    return 2 * _size(equation.outvars[0]) * math.prod(kernel) // channels


def _attention_flops(equation: Any) -> int:
    """FLOPs of one matmul of queries and keys; 0 if how many are masked follows from data."""
    parameters = equation.params
    mask = getattr(parameters.get("mask_type"), "name", "")
    if mask not in ("NO_MASK", "CAUSAL") or parameters.get("sliding_window_length"):
        return 0
    keys: int = equation.invars[1].aval.shape[1 if parameters.get("layout") == 0 else 2]
    pairs = 2 * _size(equation.invars[0]) * keys
    return pairs // 2 if mask == "CAUSAL" else pairs


def _size(variable: Any) -> int:
    shape: tuple[int, ...] = variable.aval.shape
    return math.prod(shape)

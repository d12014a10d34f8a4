"""Matrix products as formulas: `x @ w1`, `dy @ w1ᵀ`, `∂w1 = xᵀ @ dy`, `gelu(x @ w1)`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.backend_config import gemm_dimensions
from slipstream.profile.semantics.dataflow import (
    fused,
    is_weight,
    origin,
    parameter_name,
    updated_weights,
)
from slipstream.profile.semantics.flops import dim_labels, is_product
from slipstream.profile.semantics.op_patterns import epilogue

_EINSUM = re.compile(r"([\w.]+,[\w.]+->[\w.]+)")


@dataclass(frozen=True, slots=True)
class _Product:
    """The two operands, and the contracting dimension of each."""

    left: Instruction
    right: Instruction
    left_dim: int
    right_dim: int
    batched: bool


def matmul(program: Program, instruction: Instruction) -> str:
    """The formula of a matrix product; empty if the instruction is not one."""
    found = _product(program, instruction)
    if found is None:
        return ""
    product, computation = found
    text = _formula(program, instruction, product)
    if computation is None:
        return text
    return epilogue(program, computation, text)


def _formula(program: Program, instruction: Instruction, product: _Product) -> str:
    is_backward = "transpose(" in instruction.op_name and "rematted" not in instruction.op_name
    unknown = "dy" if is_backward else "x"
    # XLA often swaps the operands; readers expect weights on the right.
    sides = ((product.right, product.right_dim), (product.left, product.left_dim))
    for operand, summed in sides:
        weight = _weight(program, operand)
        if weight is not None:
            transposed = _is_transposed(weight, operand, summed)
            # If that is unknown: the backward pass multiplies by the transposed weight.
            mark = "ᵀ" if transposed or transposed is None and is_backward else ""
            return f"{unknown} @ {parameter_name(weight.op_name)}{mark}"
    weights = updated_weights(program, instruction) if is_backward else []
    if len(weights) == 1:
        return f"∂{parameter_name(weights[0].op_name)} = xᵀ @ dy"
    if einsum := _EINSUM.search(instruction.op_name):
        return f"einsum {einsum[1].replace('->', '→')}"
    if product.batched:
        return "batched matmul"
    return "xᵀ @ dy" if is_backward else "x @ y"


def _weight(program: Program, operand: Instruction) -> Instruction | None:
    found = origin(program, operand)
    return found if found is not None and is_weight(found.op_name) else None


def _is_transposed(weight: Instruction, operand: Instruction, summed: int) -> bool | None:
    """Whether the product contracts the weight's last dimension; None if that can't be told.

    The operand may be the weight with its dimensions swapped, or gathered from many devices:
    its sizes tell, or if it is square, its layout.
    """
    if len(weight.shape.dims) < 2 or len(operand.shape.dims) < 2:
        return None
    rows, columns = weight.shape.dims[-2:]
    first, second = operand.shape.dims[-2:]
    last = len(operand.shape.dims) - 1
    same = _matches((first, second), (rows, columns))
    swapped = _matches((first, second), (columns, rows))
    if same and swapped and operand.shape.layout:
        swapped = operand.shape.layout[0] != last
    elif same == swapped:
        return None
    return (summed == last) != swapped


def _matches(dims: tuple[int, int], weight: tuple[int, int]) -> bool:
    """Whether these are the weight's dimensions, one of which may be gathered from shards."""
    whole = [a == b for a, b in zip(dims, weight, strict=True)]
    return any(whole) and all(b and a % b == 0 for a, b in zip(dims, weight, strict=True))


def _product(
    program: Program, instruction: Instruction
) -> tuple[_Product, Computation | None] | None:
    computation = fused(program, instruction)
    if computation is not None:
        dots = (i for i in computation.instructions if i.opcode in ("dot", "convolution"))
        dot = next((i for i in dots if len(computation.operands(i)) > 1), None)
        product = _dot(program, computation, dot) if dot is not None else None
        return (product, computation) if product is not None else None
    operands = program.operands(instruction)
    if instruction.opcode in ("dot", "convolution") and len(operands) > 1:
        around = program.computations[instruction.computation]
        product = _dot(program, around, instruction)
        return (product, None) if product is not None else None
    target = instruction.custom_call_target
    if "cublas" not in target or len(operands) < 2:
        return None
    numbers = gemm_dimensions(instruction)
    left = numbers.get("lhs_contracting") or (1,)
    right = numbers.get("rhs_contracting") or (0,)
    batched = bool(numbers.get("lhs_batch"))
    return _Product(operands[0], operands[1], left[0], right[0], batched), None


def _dot(program: Program, computation: Computation, dot: Instruction) -> _Product | None:
    left, right = computation.operands(dot)[:2]
    if dot.opcode == "convolution":
        labels = dim_labels(dot)
        if labels is None or not is_product(program, dot):
            return None
        is_batched = "lhs_dilate" in str(dot.attributes.get("window", ""))
        return _Product(left, right, labels[0].index("f"), labels[1].index("i"), is_batched)

    def first(key: str) -> int:
        value = dot.attributes.get(key, ())
        return value[0] if isinstance(value, tuple) and value else 0

    return _Product(
        left,
        right,
        first("lhs_contracting_dims"),
        first("rhs_contracting_dims"),
        bool(dot.attributes.get("lhs_batch_dims")),
    )

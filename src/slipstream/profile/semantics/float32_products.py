"""Matrix products computed in float32, with the share of each in all operations.

Operands of type f32 are not enough to tell: with `preferred_element_type` and precision settings
XLA computes such a product in a narrower type, which its algorithm attribute names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.flops import flops, total_work

_NARROW = re.compile(r"dot_(any_)?(bf16|f16|f8)", re.IGNORECASE)


@dataclass(frozen=True)
class Float32Matmul:
    """A product of float32 operands: its source, and its share of all operations."""

    name: str
    op_name: str
    source: str
    share: float


def float32_matmuls(program: Program) -> tuple[Float32Matmul, ...]:
    """All float32 matrix products of a program, largest first."""
    total = total_work(program).flops
    found = []
    for instruction in program.runnable:
        product = _product(program, instruction)
        if product is None or program.starter(instruction.name) is not None:
            continue
        times = program.executions(instruction.name) or 1
        share = flops(program, instruction) * times / total if total else 0.0
        found.append(
            Float32Matmul(
                instruction.name,
                product.op_name or instruction.op_name,
                _source(product) or _source(instruction),
                share,
            )
        )
    return tuple(sorted(found, key=lambda matmul: -matmul.share))


def _product(program: Program, instruction: Instruction) -> Instruction | None:
    """The float32 product that an instruction is, or that its fusion contains."""
    if _is_float32_product(program, instruction):
        return instruction
    if instruction.opcode.removesuffix("-start") != "fusion":
        return None
    inner = (i for name in instruction.called for i in program.computations[name].instructions)
    return next((i for i in inner if _is_float32_product(program, i)), None)


def _is_float32_product(program: Program, instruction: Instruction) -> bool:
    target = instruction.custom_call_target
    is_gemm = "cublas" in target and ("gemm" in target or "matmul" in target)
    if instruction.opcode != "dot" and not is_gemm:
        return False
    types = [operand.shape.dtype for operand in program.operands(instruction)[:2]]
    return types == ["f32", "f32"] and not _NARROW.search(_algorithm(instruction))


def _algorithm(instruction: Instruction) -> str:
    """The algorithm, such as `dot_bf16_bf16_f32`; a library call has it in its config."""
    stated = str(instruction.attributes.get("algorithm", ""))
    return stated or instruction.backend_config


def _source(instruction: Instruction) -> str:
    if not instruction.source_file:
        return ""
    line = f":{instruction.source_line}" if instruction.source_line else ""
    return f"{instruction.source_file}{line}"

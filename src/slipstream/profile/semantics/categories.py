"""Categories of work: matmul, attention, convolution, all-gather, host copy, …"""

from __future__ import annotations

from slipstream.profile.attribution.kernels import (
    ATTENTION,
    ATTENTION_GRAD,
    COLLECTIVE,
    COPY,
    FILTER_GRAD,
    FORWARD_CONV,
    INPUT_GRAD,
    MATMUL,
    MEMSET,
    SAME_SIDE,
    classify,
)
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import TPU_KERNEL
from slipstream.profile.semantics.dataflow import flattened
from slipstream.profile.semantics.flops import is_product

_FAMILIES = {
    MATMUL: "matmul",
    ATTENTION: "attention",
    ATTENTION_GRAD: "attention",
    FORWARD_CONV: "convolution",
    INPUT_GRAD: "convolution",
    FILTER_GRAD: "convolution",
}
# The first opcode found inside an instruction decides: the most expensive come first.
_OPCODES = (
    ("matmul", {"dot", "scaled-dot", "ragged-dot"}),
    ("convolution", {"convolution"}),
    ("sort", {"sort", "topk"}),
    ("scatter", {"scatter", "select-and-scatter"}),
    ("gather", {"gather"}),
    ("reduction", {"reduce", "reduce-window"}),
    ("random", {"rng", "rng-bit-generator", "rng-get-and-update-state"}),
)
_MOVES = {"copy", "dynamic-slice", "dynamic-update-slice", "slice", "transpose", "concatenate"}
_MOVES |= {"pad", "reverse", "copy-start"}
_QUIET = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "reshape", "broadcast"}


def category(program: Program, instruction: Instruction) -> str:
    """The category of work that an instruction does."""
    if instruction.is_done:
        instruction = program.partner(instruction.name) or instruction
    start = program.starter(instruction.name)
    collective = instruction.collective or (start.collective if start else None)
    if collective is not None:
        return collective.kind
    if instruction.opcode == "custom-call":
        return _custom_call(instruction)
    inside = [instruction]
    for name in instruction.called:
        if name in program.computations:
            inside += program.computations[name].instructions
    opcodes = {i.opcode.removesuffix("-start") for i in inside}
    if (flat := flattened(program, instruction)) is not None:
        opcodes |= {i.opcode for i in flat.instructions}
    if "convolution" in opcodes and _is_product(program, inside):
        return "matmul"
    for name, found in _OPCODES:
        if opcodes & found:
            return name
    if any(i.opcode == "custom-call" for i in inside):
        return next(_custom_call(i) for i in inside if i.opcode == "custom-call")
    if any(i.shape.on_host for i in inside):
        return "host copy"
    working = opcodes - _QUIET - {"fusion", "async"}
    if working and working <= _MOVES:
        return "data movement"
    if instruction.opcode in ("while", "conditional", "call"):
        return "control flow"
    return "elementwise"


def _is_product(program: Program, inside: list[Instruction]) -> bool:
    """Whether the convolutions are matrix products, as XLA:TPU writes them."""
    return all(is_product(program, one) for one in inside if one.opcode == "convolution")


def kernel_category(name: str) -> str:
    """The category of work that a kernel does, judged by its name alone."""
    kernel = classify(name)
    if kernel.kind == COLLECTIVE:
        return "communication"
    if kernel.kind == COPY:
        return "data movement" if kernel.direction == SAME_SIDE else "host copy"
    if kernel.kind == MEMSET:
        return "memset"
    return _FAMILIES.get(kernel.family, "other")


def _custom_call(instruction: Instruction) -> str:
    target = instruction.custom_call_target.lower()
    if "conv" in target:
        return "convolution"
    if any(part in target for part in ("fmha", "attention", "fused_attn")):
        return "attention"
    if target == TPU_KERNEL and any(part in instruction.name for part in ("attention", "mha")):
        return "attention"
    if any(part in target for part in ("cublas", "gemm", "matmul", "dot")):
        return "matmul"
    if any(part in target for part in ("sort", "topk", "top_k")):
        return "sort"
    return "custom call"

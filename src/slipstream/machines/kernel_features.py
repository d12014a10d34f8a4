"""The features of an instruction's kernel: its kind, its bytes and its arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass

from slipstream.machines.fusions import (
    apart,
    arithmetic,
    changes_order,
    contents,
    evaluations,
    keeps_layout,
    keeps_rows,
    largest,
    pressure,
    reduction,
    strided,
)
from slipstream.machines.gemm_model import (
    Gemm,
    gemm_of_call,
    gemm_of_convolution,
    gemm_of_dot,
)
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import attention_scores, backend_config
from slipstream.profile.semantics.flops import FREE, malformed
from slipstream.profile.semantics.traffic import bytes_accessed
from slipstream.profile.shapes import BITS
from slipstream.reading import DAMAGE


@dataclass(frozen=True)
class KernelFeatures:
    """The work of one execution of a kernel."""

    kind: str
    """gemm, attention, convolution, copy, host copy, loop, reduce (along the fastest dimension),
    columns (a reduction along others), rows (reduced and used again), transpose, strided (a
    transpose in a loop kernel), scatter, sort, free, or other (an unknown call)"""
    bytes: int = 0
    written: int = 0
    """bytes of these that a matmul writes"""
    added: int = 0
    """bytes of these that a library's GEMM reads at its end, to add to the result"""
    elements: int = 0
    """elements of the largest result"""
    operations: int = 0
    """elementwise arithmetic on floats and integers, outside matmuls"""
    transcendentals: int = 0
    gemm: Gemm | None = None
    is_triton: bool = False
    form: str = "forward"
    """for attention: forward or backward; for a convolution: forward, input or filter"""
    is_causal: bool = False
    channels: int = 0
    """input features of a convolution; for a scatter, bits per element, 1 for single elements"""
    pressure: float = 0.0
    """live values per thread of a Triton kernel: many don't fit in registers"""
    apart: int = 1
    """separate rows of a tile that share a mask computed from positions (causal attention)"""
    strided: int = 0
    """elements that a transpose reads through another transpose, with a stride"""


def kernel_features(program: Program, instruction: Instruction) -> KernelFeatures:
    """The features of one execution of an instruction; for an asynchronous one, of its start."""
    try:
        return _features(program, instruction)
    except DAMAGE as error:
        raise malformed(program, instruction, error) from error


def _features(program: Program, instruction: Instruction) -> KernelFeatures:
    if instruction.is_start and (wrapped := program.wrapped(instruction.name)) is not None:
        return kernel_features(program, wrapped)
    if instruction.is_done or instruction.opcode in FREE:
        return KernelFeatures("free")
    read = bytes_accessed(program, instruction)
    opcode = instruction.opcode.removesuffix("-start")
    shapes = [operand.shape for operand in program.operands(instruction)]
    on_host = instruction.shape.on_host or any(shape.on_host for shape in shapes)
    if opcode == "custom-call":
        return _call(program, instruction, read)
    if on_host:
        return KernelFeatures("host copy", bytes=_moved(program, instruction, read))
    if opcode == "fusion":
        return _fusion(program, instruction, read)
    if opcode == "dot":
        written = instruction.shape.bytes
        return KernelFeatures("gemm", read, written, gemm=gemm_of_dot(program, instruction))
    if opcode == "convolution":
        return KernelFeatures("convolution", read, gemm=gemm_of_convolution(program, instruction))
    if opcode in ("sort", "scatter", "reduce", "transpose", "copy"):
        moves = opcode == "copy" and not keeps_layout(program, instruction)
        kind = "transpose" if moves else opcode
        return KernelFeatures(kind, read, elements=instruction.shape.size)
    size = instruction.shape.size
    return KernelFeatures("loop", read, elements=largest(instruction), operations=size)


def _call(program: Program, call: Instruction, read: int) -> KernelFeatures:
    target = call.custom_call_target
    if target.startswith("__cublas$"):
        written = next(call.shape.leaves()).bytes
        gemm = gemm_of_call(program, call)
        return KernelFeatures("gemm", read, written, _addend(program, call), gemm=gemm)
    if target.startswith("__cudnn$conv"):
        kernel_shape = program.operands(call)[1].shape
        labels = str(call.attributes.get("dim_labels", ""))
        if "BackwardFilter" in target:
            kernel_shape = next(call.shape.leaves())
        spelled = labels.partition("_")[2].partition("->")[0]
        inputs = kernel_shape.dims[spelled.index("i")] if "i" in spelled else 0
        return KernelFeatures(
            "convolution",
            _touched(program, call, read),
            gemm=gemm_of_convolution(program, call),
            form=_form(target),
            channels=inputs,
        )
    if target.startswith("__cudnn$fmha"):
        return _attention(program, call, read)
    if "sort" in target.lower() or "topk" in target.lower():
        return KernelFeatures("sort", read)
    return KernelFeatures("other", read)


def _addend(program: Program, call: Instruction) -> int:
    """Bytes of the matrix that cuBLAS adds to the result (C, if beta is not zero)."""
    operands = program.operands(call)
    has_addend = bool(backend_config(call, "gemm_backend_config").get("beta"))
    return operands[2].shape.bytes if has_addend and len(operands) > 2 else 0


def _form(target: str) -> str:
    if "BackwardInput" in target:
        return "input"
    return "filter" if "BackwardFilter" in target else "forward"


def _attention(program: Program, call: Instruction, read: int) -> KernelFeatures:
    config = backend_config(call, "cudnn_fmha_backend_config")
    scores = attention_scores(call)
    operands = program.operands(call)
    if not scores or not operands:
        return KernelFeatures("other", read)
    head = operands[0].shape.size // math.prod(scores[:3])
    gemm = Gemm(scores[0] * scores[1], scores[2], scores[3], head, operands[0].shape.dtype)
    return KernelFeatures(
        "attention",
        read,
        gemm=gemm,
        form="backward" if "Backward" in call.custom_call_target else "forward",
        is_causal="CAUSAL" in str(config.get("mask_type", ""))
        or bool(config.get("is_causal_mask")),
    )


def _fusion(program: Program, fusion: Instruction, read: int) -> KernelFeatures:
    inside = list(contents(program, fusion))
    opcodes = {instruction.opcode for instruction in inside}
    is_triton = "__triton" in fusion.backend_config
    gemms = [gemm_of_dot(program, i) for i in inside if i.opcode == "dot"]
    counts = {} if is_triton else evaluations(program, fusion)
    operations, transcendentals = arithmetic(program, inside, counts)
    gemm = max(filter(None, gemms), key=lambda p: p.flops, default=None)
    kind = "loop"
    if gemm is not None:
        kind = "gemm"
    elif calls := [i for i in inside if i.opcode == "custom-call"]:
        return _call(program, calls[0], read)
    elif convolutions := [i for i in inside if i.opcode == "convolution"]:
        gemm = gemm_of_convolution(program, convolutions[0])
        return KernelFeatures("convolution", read, gemm=gemm)
    elif "scatter" in opcodes:
        return _scatter(program, fusion, inside, read)
    elif "sort" in opcodes:
        kind = "sort"
    elif "reduce" in opcodes:
        kind = reduction(program, inside, is_triton and keeps_rows(fusion, inside))
    elif any(i.opcode in ("transpose", "copy") and changes_order(program, i) for i in inside):
        # XLA's loop emitter follows one side's layout and strides through the other's.
        kind = "strided" if fusion.fusion_kind == "kLoop" else "transpose"
    return KernelFeatures(
        kind,
        read,
        written=fusion.shape.bytes if gemm else 0,
        elements=largest(fusion, program),
        operations=operations,
        transcendentals=transcendentals,
        gemm=gemm,
        is_triton=is_triton,
        pressure=pressure(program, fusion, inside) if kind == "rows" else 0.0,
        apart=apart(fusion, inside) if kind == "rows" else 1,
        strided=strided(program, fusion) if kind == "transpose" and not is_triton else 0,
    )


def _scatter(
    program: Program, fusion: Instruction, inside: list[Instruction], read: int
) -> KernelFeatures:
    scatter = next(i for i in inside if i.opcode == "scatter")
    updates = program.operands(scatter)[-1].shape
    # A window of one element is a single atomic addition; rows are coalesced.
    window = updates.dims[-1] if updates.dims else 1
    bits = BITS.get(updates.dtype, 32)
    return KernelFeatures(
        "scatter", read, elements=updates.size, channels=bits if window > 1 else 1
    )


def _moved(program: Program, instruction: Instruction, read: int) -> int:
    """Bytes over the link to the host: everything read is also written."""
    if instruction.opcode == "copy-start":
        return instruction.shape.elements[0].bytes if instruction.shape.elements else read // 2
    return read // 2


def _touched(program: Program, call: Instruction, read: int) -> int:
    """Bytes of a convolution; with a stride larger than its window it skips pixels."""
    window = str(call.attributes.get("window", ""))
    sizes = _numbers(window, "size")
    strides = _numbers(window, "stride")
    shares = [min(1.0, s / t) for s, t in zip(sizes, strides, strict=False)]
    if not shares or math.prod(shares) == 1:
        return read
    image = program.operands(call)[0].shape.bytes
    if "BackwardInput" in call.custom_call_target:
        return read
    return read - round(image * (1 - math.prod(shares)))


def _numbers(window: str, key: str) -> list[int]:
    _, found, rest = window.partition(f"{key}=")
    text = rest.split()[0].rstrip("}") if found else ""
    return [int(part) for part in text.split("x")] if text.replace("x", "").isdigit() else []

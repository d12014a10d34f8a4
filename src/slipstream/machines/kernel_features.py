"""The features of an instruction's kernel: its kind, its bytes and its arithmetic."""

from __future__ import annotations

from slipstream.machines.call_features import call_features
from slipstream.machines.features import KernelFeatures
from slipstream.machines.fusions import (
    apart,
    arithmetic,
    changes_order,
    contents,
    evaluations,
    is_scattered,
    is_untuned,
    keeps_layout,
    keeps_rows,
    kept,
    largest,
    reduction,
    rows_of,
    strided,
    transposed,
    unfused,
)
from slipstream.machines.gemm_model import gemm_of_convolution, gemm_of_dot
from slipstream.profile.program import Instruction, Program, once_per_instruction
from slipstream.profile.semantics.flops import FREE, malformed
from slipstream.profile.semantics.traffic import bytes_accessed
from slipstream.profile.shapes import BITS
from slipstream.reading import DAMAGE

DOTS = ("dot", "scaled-dot", "ragged-dot")


@once_per_instruction
def kernel_features(program: Program, instruction: Instruction) -> KernelFeatures:
    """The features of one execution of an instruction; for an asynchronous one, of its start."""
    try:
        return _features(program, instruction)
    except DAMAGE as error:
        raise malformed(program, instruction, error) from error


SLICING = {"dynamic-slice", "dynamic-update-slice", "slice", "copy", "bitcast", "reshape"} | {
    "parameter", "constant", "convert", "add", "subtract", "multiply", "compare", "select", "clamp",
}  # fmt: skip
"""what a fusion that copies a slice consists of: the slice, and the arithmetic of its place"""


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
        return call_features(program, instruction, read)
    if on_host:
        return KernelFeatures("host copy", bytes=_moved(program, instruction, read))
    if opcode == "fusion":
        return _fusion(program, instruction, read)
    if opcode in DOTS:
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


def _fusion(program: Program, fusion: Instruction, read: int) -> KernelFeatures:
    inside = list(contents(program, fusion))
    opcodes = {instruction.opcode for instruction in inside}
    is_triton = "__triton" in fusion.backend_config
    dots = [i for i in inside if i.opcode in DOTS]
    gemms = [gemm_of_dot(program, dot) for dot in dots]
    counts = {} if is_triton else evaluations(program, fusion)
    operations, transcendentals = arithmetic(program, inside, counts)
    gemm = max(filter(None, gemms), key=lambda p: p.flops, default=None)
    kind = "loop"
    if '"dynamic_slice_fusion"' in fusion.backend_config and opcodes <= SLICING:
        # A slice of a loop's buffer is copied without a kernel of XLA's own.
        return KernelFeatures("copy", read)
    if gemm is not None:
        kind = "gemm"
    elif calls := [i for i in inside if i.opcode == "custom-call"]:
        return call_features(program, calls[0], read)
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
    is_rows = kind == "rows"
    return KernelFeatures(
        kind,
        read,
        written=program.computations[fusion.called[0]].root.shape.bytes if gemm else 0,
        elements=largest(fusion, program),
        operations=operations,
        transcendentals=transcendentals,
        gemm=gemm,
        is_triton=is_triton,
        is_untuned=is_triton
        and gemm is not None
        and is_untuned(fusion, gemm.batch * gemm.m * gemm.n),
        unfused=0 if gemm is None else unfused(program, dots[0], gemm.dtype == "f8"),
        transposed=0 if gemm is None else transposed(program, dots[0], gemm.dtype),
        reduced=rows_of(program, inside).size if is_rows else 0,
        pressure=kept(program, fusion, inside) if is_rows else 0.0,
        apart=apart(program, fusion, inside) if is_rows else 1,
        is_scattered=is_rows and is_scattered(program, fusion, inside),
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

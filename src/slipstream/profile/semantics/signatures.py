"""Signatures: comparable values of what an instruction computes, independent of its name.

work       opcode, shapes, contents, participants: equal for instructions that do the same
shapes     what goes in and what comes out, in words
product    which matrix product, convolution or attention it is, whichever kernel runs it
"""

from __future__ import annotations

from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.flops import work as work_of
from slipstream.profile.shapes import Shape

Signature = tuple[object, ...]
_PRODUCTS = ("matmul", "convolution", "attention")
_MULTIPLIES = ("dot", "scaled-dot", "ragged-dot", "convolution", "custom-call")
NO_WORK = ("parameter", "constant", "bitcast", "tuple", "get-tuple-element")
"""opcodes inside a computation that do nothing"""
_MOST_SHAPES = 4
"""arrays that are spelled out"""


def work_signature(program: Program, instruction: Instruction) -> Signature:
    """What an instruction computes, independent of its name and of whether it is asynchronous."""
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    done = inner or instruction
    collective = instruction.collective or done.collective
    return (
        done.opcode.removesuffix("-start"),
        str(result_shape(done)),
        tuple(str(operand.shape) for operand in program.operands(instruction)),
        _contents(program, done) if collective is None else (),
        done.custom_call_target,
        _exchange(collective),
    )


def product_signature(program: Program, instruction: Instruction) -> Signature:
    """Which matrix product, convolution or attention it is, whichever kernel runs it; else ().

    Fused prologues and epilogues don't count: they are small and differ between kernels.
    """
    kind = category(program, instruction)
    if kind not in _PRODUCTS:
        return ()
    flops = [work_of(program, i).flops for i in inside(program, instruction) if _multiplies(i)]
    total = sum(flops) if flops else work_of(program, instruction).flops
    # The size of the result decides where the product is memory-bound.
    return (kind, total, sum(leaf.bytes for leaf in _results(instruction))) if total else ()


def shapes_of(program: Program, instruction: Instruction) -> str:
    """`bf16[8,512], bf16[512,64] → bf16[8,64]`: operands and result, without layouts."""
    start = program.starter(instruction.name) or instruction
    operands = [leaf for one in program.operands(start) for leaf in one.shape.leaves()]
    return f"{_listed(operands)} → {_listed(_results(start))}"


def _listed(shapes: list[Shape]) -> str:
    """The first arrays; of the others their number and size, so that unequal lists differ."""
    texts = [_plain(shape) for shape in shapes[:_MOST_SHAPES]]
    if rest := shapes[_MOST_SHAPES:]:
        texts.append(f"{len(rest)} more of {sum(shape.bytes for shape in rest)} bytes")
    return ", ".join(texts)


def _plain(shape: Shape) -> str:
    return f"{shape.dtype}[{','.join(map(str, shape.dims))}]"


def inside(program: Program, instruction: Instruction) -> list[Instruction]:
    """The instructions of the computations that an instruction calls."""
    names = [name for name in instruction.called if name in program.computations]
    return [i for name in names for i in program.computations[name].instructions]


def result_shape(instruction: Instruction) -> Shape:
    """The shape of the result; a start's shape also lists operands and context.

    It lists (operands, result, context), but that of a copy-start (result, operand, context).
    """
    elements = instruction.shape.elements
    if not instruction.is_start or len(elements) < 2:
        return instruction.shape
    return elements[0 if instruction.opcode == "copy-start" else 1]


COPY_STARTS = ("copy-start", "slice-start", "dynamic-slice-start", "dynamic-update-slice-start")
"""asynchronous copies between memories"""


def copied_shape(program: Program, instruction: Instruction) -> Shape:
    """What a copy moves: its result, or the slice that an update writes into it."""
    if instruction.opcode.removesuffix("-start") == "dynamic-update-slice":
        return program.operands(instruction)[1].shape
    return result_shape(instruction)


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode in _MULTIPLIES


def _results(instruction: Instruction) -> list[Shape]:
    """The results, without a library call's scratch memory, which is a last result of bytes."""
    leaves = list(result_shape(instruction).leaves())
    return leaves[:-1] if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") else leaves


def _contents(program: Program, instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The operations inside, sorted.

    `Program.canonical` won't do: text leaves out constants and some attributes that protos have, so
    one fusion can have two canonical forms.
    """
    found = inside(program, instruction)
    return tuple(sorted((i.opcode, str(i.shape)) for i in found if i.opcode not in NO_WORK))


def _exchange(collective: Collective | None) -> tuple[object, ...]:
    if collective is None:
        return ()
    return collective.kind, collective.bytes, collective.group_size

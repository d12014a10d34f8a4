"""What an instruction computes, as a value that can be compared, whatever XLA calls it.

work       opcode, shapes, what is inside, who takes part: equal for instructions that do the same
product    which matrix product, convolution or attention it is, whichever kernel does it
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
"""what a computation holds that does nothing"""


def work_signature(program: Program, instruction: Instruction) -> Signature:
    """What an instruction computes, whatever it is called and whether it is asynchronous."""
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
    """Which matrix product, convolution or attention it is, whichever kernel does it; else ().

    What is fused to it doesn't count: it is a small part, and differs from kernel to kernel.
    """
    kind = category(program, instruction)
    if kind not in _PRODUCTS:
        return ()
    flops = [work_of(program, i).flops for i in inside(program, instruction) if _multiplies(i)]
    total = sum(flops) if flops else work_of(program, instruction).flops
    # The result decides where memory is what the product waits for.
    return (kind, total, sum(leaf.bytes for leaf in _results(instruction))) if total else ()


def inside(program: Program, instruction: Instruction) -> list[Instruction]:
    """The operations of the computations that an instruction names."""
    names = [name for name in instruction.called if name in program.computations]
    return [i for name in names for i in program.computations[name].instructions]


def result_shape(instruction: Instruction) -> Shape:
    """The shape of a start lists operands, result and context; a copy's begins with its result."""
    elements = instruction.shape.elements
    if not instruction.is_start or len(elements) < 2:
        return instruction.shape
    return elements[0 if instruction.opcode == "copy-start" else 1]


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode in _MULTIPLIES


def _results(instruction: Instruction) -> list[Shape]:
    """What it computes; a library call's scratch memory is a last result of bytes."""
    leaves = list(result_shape(instruction).leaves())
    return leaves[:-1] if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") else leaves


def _contents(program: Program, instruction: Instruction) -> tuple[tuple[str, str], ...]:
    """The operations inside, in any order.

    Not `Program.canonical`: text leaves out what protos have (constants, some attributes), so that
    one fusion has two canonical forms.
    """
    found = inside(program, instruction)
    return tuple(sorted((i.opcode, str(i.shape)) for i in found if i.opcode not in NO_WORK))


def _exchange(collective: Collective | None) -> tuple[object, ...]:
    if collective is None:
        return ()
    return collective.kind, collective.bytes, collective.group_size

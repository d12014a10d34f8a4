"""Bytes that an instruction reads and writes; a slice of a large buffer counts as the slice.

On a TPU, operands and results may be in VMEM or another memory of the chip, or on the host: those
bytes don't cross HBM (`device_bytes`).
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.profile.program import Computation, Instruction, Program, once_per_instruction
from slipstream.profile.shapes import DEVICE_MEMORIES, Shape

_VIEWS = ("bitcast", "convert", "copy", "reshape", "transpose")


Access = tuple[Shape, int]
"""what an instruction reads or writes, and how many bytes of it"""


@once_per_instruction
def bytes_accessed(program: Program, instruction: Instruction) -> int:
    """Bytes read plus bytes written by one execution, in any memory."""
    return sum(size for _, size in _accesses(program, instruction))


@once_per_instruction
def device_bytes(program: Program, instruction: Instruction) -> int:
    """Bytes that one execution reads from and writes to the device's own memory: HBM."""
    return sum(_in_device(*access) for access in _accesses(program, instruction))


def _in_device(shape: Shape, size: int) -> int:
    """The bytes of an access that are in HBM; of a tuple, in proportion to its leaves."""
    leaves = list(shape.leaves())
    inside = sum(leaf.bytes for leaf in leaves if leaf.memory_space in DEVICE_MEMORIES)
    return size * inside // max(sum(leaf.bytes for leaf in leaves), 1)


def _accesses(program: Program, instruction: Instruction) -> Iterator[Access]:
    opcode = instruction.opcode
    if opcode in ("fusion", "fusion-start") and instruction.called:
        yield from _fusion(program, instruction)
        return
    computation = program.computations[instruction.computation]
    operands = [operand.shape for operand in computation.operands(instruction)]
    result = _result(instruction)
    sliced = _sliced(opcode.removesuffix("-start"), operands, result)
    if sliced is not None:
        yield from sliced
        return
    yield from ((shape, shape.bytes) for shape in operands)
    if opcode == "custom-call":
        yield from ((leaf, leaf.bytes) for leaf in _results(instruction))
    else:
        yield result, result.bytes


def _result(instruction: Instruction) -> Shape:
    """The result; the shape of a start also lists its operands and its context."""
    elements = instruction.shape.elements
    if not instruction.opcode.endswith("-start") or len(elements) < 2:
        return instruction.shape
    return elements[0 if instruction.opcode == "copy-start" else 1]


def _results(instruction: Instruction) -> list[Shape]:
    """Results of a library call; a last `s8` or `u8` result is scratch memory."""
    leaves = list(instruction.shape.leaves())
    if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") and len(leaves[-1].dims) == 1:
        leaves.pop()
    return leaves


def _sliced(opcode: str, operands: list[Shape], result: Shape) -> list[Access] | None:
    """What an operation accesses that touches only a part of its first operand; else None."""
    if not operands:
        return None
    whole = operands[0]
    if opcode in ("dynamic-slice", "slice"):
        return [(whole, result.bytes), (result, result.bytes)]
    if opcode == "dynamic-update-slice" and len(operands) > 1:
        update = operands[1]
        return [(update, update.bytes), (result, update.bytes)]
    if opcode == "gather" and len(operands) > 1:
        indices = operands[1]
        return [(whole, result.bytes), (indices, indices.bytes), (result, result.bytes)]
    if opcode == "scatter" and len(operands) > 2:
        # Reads the old values, the update and the indices, and writes the sum.
        indices, update = operands[-2], operands[-1]
        changed = [(whole, update.bytes), (result, update.bytes)]
        return [*changed, (update, update.bytes), (indices, indices.bytes)]
    return None


def _fusion(program: Program, instruction: Instruction) -> Iterator[Access]:
    computation = program.computations[instruction.called[0]]
    roots, results = [computation.root], [instruction.shape]
    if computation.root.opcode == "tuple":
        roots = list(computation.operands(computation.root))
        results = list(instruction.shape.elements)
    for number, parameter in enumerate(computation.parameters):
        operands = program.operands(instruction)
        whole = operands[number].shape if number < len(operands) else parameter.shape
        yield whole, _read_of(computation, parameter)
    for number, root in enumerate(roots):
        result = results[number] if number < len(results) else root.shape
        yield result, _written(computation, root)


def _read_of(computation: Computation, parameter: Instruction) -> int:
    """Bytes that a fusion reads of a parameter: the slices alone, if it only uses slices."""
    slices = 0
    values, seen = [parameter], {parameter.name}
    while values:
        value = values.pop()
        for user in computation.users.get(value.name, ()):
            if _slices(user, value):
                slices += user.shape.bytes
            elif _is_view(computation, user):
                if user.name not in seen:
                    seen.add(user.name)
                    values.append(user)
            elif not _reads_nothing(user, value):
                return parameter.shape.bytes
    return min(slices, parameter.shape.bytes)


def _slices(user: Instruction, value: Instruction) -> bool:
    return user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == value.name


def _reads_nothing(user: Instruction, value: Instruction) -> bool:
    """Whether `user` passes the value on, or updates it in place without reading the rest."""
    if user.opcode in ("dynamic-update-slice", "scatter"):
        return user.operands[0] == value.name
    return user.opcode == "tuple"


def _is_view(computation: Computation, user: Instruction) -> bool:
    """Whether only the users of `user` decide how much is read.

    A conversion of which only slices are used is computed for the slices alone.
    """
    return user.opcode == "bitcast" or (
        user.opcode == "convert" and _is_only_sliced(computation, user)
    )


def _is_only_sliced(computation: Computation, value: Instruction) -> bool:
    users = computation.users.get(value.name, ())
    return bool(users) and all(
        _is_only_sliced(computation, user) if user.opcode == "bitcast" else _slices(user, value)
        for user in users
    )


def _written(computation: Computation, root: Instruction) -> int:
    """Bytes that a fusion writes of a result: an update in place only writes the update."""
    value = root
    while value.opcode in _VIEWS and (operands := computation.operands(value)):
        value = operands[0]
    operands = computation.operands(value)
    if value.opcode == "dynamic-update-slice" and len(operands) > 1:
        return operands[1].shape.bytes
    if value.opcode == "scatter" and len(operands) > 2:
        return 2 * operands[-1].shape.bytes
    return root.shape.bytes

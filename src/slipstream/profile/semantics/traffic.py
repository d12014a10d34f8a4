"""Bytes that an instruction reads and writes; a slice of a large buffer counts as the slice."""

from __future__ import annotations

from slipstream.profile.program import Computation, Instruction, Program, once_per_instruction

_VIEWS = ("bitcast", "convert", "copy", "reshape", "transpose")


@once_per_instruction
def bytes_accessed(program: Program, instruction: Instruction) -> int:
    """Bytes read plus bytes written by one execution."""
    opcode = instruction.opcode
    if opcode in ("fusion", "fusion-start") and instruction.called:
        return _fusion(program, instruction)
    computation = program.computations[instruction.computation]
    if opcode == "custom-call":
        return _read(computation, instruction) + _results(instruction)
    if opcode.endswith("-start"):
        # The shape of a start also lists its operands and its context.
        inner = instruction.shape.elements
        result = inner[1].bytes if len(inner) > 1 else instruction.shape.bytes
        return _read(computation, instruction) + result
    sliced = _sliced(computation, instruction)
    if sliced is not None:
        return sliced
    return _read(computation, instruction) + instruction.shape.bytes


def _read(computation: Computation, instruction: Instruction) -> int:
    return sum(operand.shape.bytes for operand in computation.operands(instruction))


def _results(instruction: Instruction) -> int:
    """Bytes of a library call's results; a last `s8` or `u8` result is scratch memory."""
    leaves = list(instruction.shape.leaves())
    if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") and len(leaves[-1].dims) == 1:
        leaves.pop()
    return sum(leaf.bytes for leaf in leaves)


def _sliced(computation: Computation, instruction: Instruction) -> int | None:
    """Bytes of an operation that touches only a part of its first operand; None for all others."""
    operands = computation.operands(instruction)
    if instruction.opcode in ("dynamic-slice", "slice"):
        return 2 * instruction.shape.bytes
    if instruction.opcode == "dynamic-update-slice" and len(operands) > 1:
        return 2 * operands[1].shape.bytes
    if instruction.opcode == "gather" and len(operands) > 1:
        return 2 * instruction.shape.bytes + operands[1].shape.bytes
    if instruction.opcode == "scatter" and len(operands) > 2:
        # Reads the old values, the update and the indices, and writes the sum.
        return 3 * operands[-1].shape.bytes + operands[-2].shape.bytes
    return None


def _fusion(program: Program, instruction: Instruction) -> int:
    computation = program.computations[instruction.called[0]]
    roots = [computation.root]
    if computation.root.opcode == "tuple":
        roots = list(computation.operands(computation.root))
    read = sum(_read_of(computation, parameter) for parameter in computation.parameters)
    return read + sum(_written(computation, root) for root in roots)


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

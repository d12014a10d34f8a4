"""Bytes that an instruction reads and writes, slices of big buffers counted as slices."""

from __future__ import annotations

from slipstream.profile.program import Computation, Instruction, Program

_VIEWS = ("bitcast", "convert", "copy", "reshape", "transpose")


def bytes_accessed(program: Program, instruction: Instruction) -> int:
    """Bytes read plus bytes written by one execution."""
    opcode = instruction.opcode
    if opcode in ("fusion", "fusion-start") and instruction.called:
        return _fusion(program, instruction)
    computation = program.computations[instruction.computation]
    if opcode == "custom-call":
        return _read(computation, instruction) + _results(instruction)
    if opcode.endswith("-start"):
        # The shape of a start lists its operands and what it needs to remember as well.
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
    """What a library call writes; its scratch memory, a last `s8` or `u8` result, is none."""
    leaves = list(instruction.shape.leaves())
    if len(leaves) > 1 and leaves[-1].dtype in ("s8", "u8") and len(leaves[-1].dims) == 1:
        leaves.pop()
    return sum(leaf.bytes for leaf in leaves)


def _sliced(computation: Computation, instruction: Instruction) -> int | None:
    """Bytes of an operation that touches a part of its first operand; None for all others."""
    operands = computation.operands(instruction)
    if instruction.opcode in ("dynamic-slice", "slice"):
        return 2 * instruction.shape.bytes
    if instruction.opcode == "dynamic-update-slice" and len(operands) > 1:
        return 2 * operands[1].shape.bytes
    if instruction.opcode == "gather" and len(operands) > 1:
        return 2 * instruction.shape.bytes + operands[1].shape.bytes
    if instruction.opcode == "scatter" and len(operands) > 2:
        # Read what is there, read the update, write the sum; and the indices.
        return 3 * operands[-1].shape.bytes + operands[-2].shape.bytes
    return None


def _fusion(program: Program, instruction: Instruction) -> int:
    computation = program.computations[instruction.called[0]]
    roots = [computation.root]
    if computation.root.opcode == "tuple":
        roots = list(computation.operands(computation.root))
    read = sum(_parameter(computation, parameter) for parameter in computation.parameters)
    return read + sum(_written(computation, root) for root in roots)


def _parameter(computation: Computation, parameter: Instruction) -> int:
    """Bytes of a fusion's parameter that are read: only slices, if only slices are used."""
    read = 0
    seen: set[str] = set()
    queue = [parameter]
    while queue:
        value = queue.pop()
        for user in computation.users.get(value.name, ()):
            is_first = user.operands[0] == value.name
            if user.opcode in ("dynamic-slice", "slice", "gather") and is_first:
                read += user.shape.bytes
            elif user.opcode == "dynamic-update-slice" and is_first:
                continue  # updated in place: the rest of the buffer stays where it is
            elif user.opcode in ("bitcast", "tuple") or user.opcode == "scatter" and is_first:
                if user.opcode == "bitcast" and user.name not in seen:
                    seen.add(user.name)
                    queue.append(user)
            elif user.opcode == "convert" and _is_only_sliced(computation, user):
                # A conversion of which only slices are used is computed for the slices alone.
                if user.name not in seen:
                    seen.add(user.name)
                    queue.append(user)
            else:
                return parameter.shape.bytes
    return min(read, parameter.shape.bytes)


def _is_only_sliced(computation: Computation, value: Instruction) -> bool:
    users = computation.users.get(value.name, ())
    if not users:
        return False
    return all(
        _is_only_sliced(computation, user)
        if user.opcode == "bitcast"
        else user.opcode in ("dynamic-slice", "slice", "gather") and user.operands[0] == value.name
        for user in users
    )


def _written(computation: Computation, root: Instruction) -> int:
    """Bytes of a fusion's result that are written: an update in place writes the update."""
    value = root
    while value.opcode in _VIEWS and (operands := computation.operands(value)):
        value = operands[0]
    operands = computation.operands(value)
    if value.opcode == "dynamic-update-slice" and len(operands) > 1:
        return operands[1].shape.bytes
    if value.opcode == "scatter" and len(operands) > 2:
        return 2 * operands[-1].shape.bytes
    return root.shape.bytes

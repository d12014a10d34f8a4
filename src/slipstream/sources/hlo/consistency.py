"""What must hold for a program before anything walks over it: no loops of calls, no missing parts.

Compiled programs always fulfil this. Damaged files don't, and whoever follows their references
would fail far away from the cause, or never end.
"""

from __future__ import annotations

import re

from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.shapes import Shape
from slipstream.sources.hlo.replica_groups import MOST_DEVICES

_DIMENSIONS = {
    "lhs_contracting_dims": 0,
    "lhs_batch_dims": 0,
    "rhs_contracting_dims": 1,
    "rhs_batch_dims": 1,
}
"""attributes of a dot that list dimensions of an operand"""
_MOST_BYTES = 1 << 56
_WIDEST = 1 << 20
"""numbers of a window, whose positions are counted one by one"""
_MOST_EXECUTIONS = 1 << 40
_MOST_STEPS = 10_000_000
"""instructions with every call inlined"""
_DEEPEST = 100
"""calls inside calls"""


def check_consistency(program: Program) -> None:
    """ValueError, with the instruction, if the program contradicts itself."""
    shapes: set[int] = set()
    for computation in program.computations.values():
        known = computation.by_name.keys()
        for instruction in computation.instructions:
            reason = "" if known >= {*instruction.operands} else "an operand from elsewhere"
            if id(instruction.shape) not in shapes:
                shapes.add(id(instruction.shape))
                reason = reason or _size(instruction.shape)
            check = _CHECKS.get(instruction.opcode)
            if check is not None and not reason:
                reason = check(program, instruction)
            if not reason and instruction.collective is not None:
                reason = _collective(instruction.collective)
            if not reason and not program.computations.keys() >= {*instruction.called}:
                reason = _calls(program, instruction)
            if reason:
                raise ValueError(f"instruction {instruction.name}: {reason}")
    if any(number < 0 for pair in program.aliases.items() for number in pair):
        raise ValueError("a donated buffer with a negative number")
    _check_calls(program)


def _size(shape: Shape) -> str:
    is_valid = shape.bytes <= _MOST_BYTES and all(d >= 0 for d in shape.dims)
    return "" if is_valid else f"a shape of {shape.bytes} bytes"


def _collective(collective: Collective) -> str:
    devices = collective.group_size or 0
    return f"a collective of {devices} devices" if devices > MOST_DEVICES else ""


def _calls(program: Program, instruction: Instruction) -> str:
    missing = [name for name in instruction.called if name not in program.computations]
    if missing or not instruction.called:
        named = missing[0][:60] if missing else "nothing"
        return f"it calls {named}, expected a computation of this program"
    if instruction.trip_count is not None and instruction.trip_count > _MOST_EXECUTIONS:
        return f"a loop of {instruction.trip_count} iterations"
    return ""


def _window(program: Program, instruction: Instruction) -> str:
    window = str(instruction.attributes.get("window", ""))
    if any(len(n) > 7 or int(n) > _WIDEST for n in re.findall(r"\d+", window)):
        return f"the window {window[:60]}"
    return ""


def _element(program: Program, instruction: Instruction) -> str:
    operands = program.operands(instruction)
    count = len(operands[0].shape.elements) if operands else 0
    index = instruction.tuple_index
    if index is None or not 0 <= index < count:
        return f"element {index} of a tuple that has {count}"
    return ""


def _dimensions(program: Program, instruction: Instruction) -> str:
    operands = [operand.shape for operand in program.operands(instruction)]
    for key, side in _DIMENSIONS.items():
        value = instruction.attributes.get(key, ())
        if not isinstance(value, tuple):
            return f"{key}={str(value)[:40]}, expected numbers"
        rank = len(operands[side].dims) if side < len(operands) else 0
        if any(not 0 <= one < rank for one in value):
            return f"{key}={value} of an operand with {rank} dimensions"
    return ""


_CHECKS = {
    **dict.fromkeys(("while", "call", "conditional", "fusion"), _calls),
    **dict.fromkeys(("convolution", "custom-call", "reduce-window"), _window),
    "get-tuple-element": _element,
    "dot": _dimensions,
}
"""what must hold for instructions of some opcodes"""


def _check_calls(program: Program) -> None:
    """Refuse calls in a circle, and calls that multiply: each calls the next twice, and so on."""
    sizes: dict[str, int] = {}
    depths: dict[str, int] = {}
    for name in program.computations:
        open_: dict[str, None] = {}
        pending = [(name, False)]
        while pending:
            one, is_done = pending.pop()
            computation = program.computations.get(one)
            if computation is None or one in sizes:
                continue
            called = [c for i in computation.instructions for c in i.called]
            if is_done:
                del open_[one]
                sizes[one] = len(computation.instructions) + sum(sizes.get(c, 0) for c in called)
                depths[one] = 1 + max((depths.get(c, 0) for c in called), default=0)
                if sizes[one] > _MOST_STEPS or depths[one] > _DEEPEST:
                    raise ValueError(
                        f"computation {one}: {sizes[one]} instructions in calls nested "
                        f"{depths[one]} deep"
                    )
                continue
            if one in open_:
                raise ValueError(f"computation {one} calls itself")
            open_[one] = None
            pending.append((one, True))
            pending += [(c, False) for c in called if c not in sizes]

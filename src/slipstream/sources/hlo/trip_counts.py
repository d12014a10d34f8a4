"""Trip counts of loops whose configuration doesn't state them, as in programs for TPUs.

    i = 1                          the loop's operand
    while i < 4:                   its condition compares an element of its state with a constant
        i = i + 1                  its body adds a constant to this element

Anything else has no known trip count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from slipstream.profile.program import Computation, Instruction

_COPIES = ("copy", "bitcast", "copy-start", "copy-done", "convert", "reshape")
_MOST_STEPS = 16
_FLIPPED = {"LT": "GT", "LE": "GE", "GT": "LT", "GE": "LE", "NE": "NE"}


def with_trip_counts(computations: dict[str, Computation]) -> dict[str, Computation]:
    """The computations, with trip counts of their loops where they follow from constants."""
    changed = {}
    for computation in computations.values():
        counted = {}
        for loop in computation.instructions:
            if loop.opcode == "while" and loop.trip_count is None and len(loop.called) > 1:
                count = _trip_count(loop, computation, computations)
                if count is not None:
                    counted[loop.name] = replace(loop, trip_count=count)
        if counted:
            instructions = tuple(counted.get(one.name, one) for one in computation.instructions)
            root = counted.get(computation.root.name, computation.root)
            changed[computation.name] = Computation(computation.name, instructions, root)
    return {**computations, **changed} if changed else computations


def _trip_count(
    loop: Instruction, outside: Computation, computations: Mapping[str, Computation]
) -> int | None:
    body, condition = (computations.get(name) for name in loop.called[:2])
    if body is None or condition is None:
        return None
    compared = _compared(condition)
    if compared is None:
        return None
    index, direction, limit = compared
    first = _element(outside, loop.operands[0] if loop.operands else "", index)
    step = _step(body, index)
    if first is None or not step:
        return None
    return _count(first, step, direction, limit)


def _count(first: int, step: int, direction: str, limit: int) -> int | None:
    distance = limit - first
    if direction in ("LE", "GE"):
        distance += 1 if direction == "LE" else -1
    upwards = direction in ("LT", "LE") or direction == "NE" and step > 0
    if (step > 0) != upwards or direction == "NE" and distance % step:
        return None
    return max(0, -(-distance // step))


def _compared(condition: Computation) -> tuple[int, str, int] | None:
    """(element of the state, direction, constant) of `state[i] < n`."""
    root = condition.root
    direction = str(root.attributes.get("direction", ""))
    if root.opcode != "compare" or len(root.operands) != 2 or direction not in _FLIPPED:
        return None
    left, right = (_source(condition, name) for name in root.operands)
    if _is_element(condition, right):
        left, right, direction = right, left, _FLIPPED[direction]
    limit = _literal(right)
    if left is None or limit is None or not _is_element(condition, left):
        return None
    assert left.tuple_index is not None
    return left.tuple_index, direction, limit


def _step(body: Computation, index: int) -> int | None:
    """What the body adds to an element of its state; None if it does anything else with it."""
    if body.root.opcode != "tuple" or index >= len(body.root.operands):
        return None
    added = _source(body, body.root.operands[index])
    if added is None or added.opcode not in ("add", "subtract") or len(added.operands) != 2:
        return None
    sides = [_source(body, name) for name in added.operands]
    for one, other in (sides, sides[::-1]):
        step = _literal(other)
        if _is_element(body, one) and one is not None and one.tuple_index == index and step:
            if added.opcode == "add":
                return step
            return -step if one is sides[0] else None
    return None


def _element(computation: Computation, name: str, index: int) -> int | None:
    """A constant element of a tuple."""
    found = computation.by_name.get(name)
    if found is None or found.opcode != "tuple" or index >= len(found.operands):
        return None
    return _literal(_source(computation, found.operands[index]))


def _source(computation: Computation, name: str) -> Instruction | None:
    """Where a value comes from, through copies."""
    found = computation.by_name.get(name)
    for _ in range(_MOST_STEPS):
        if found is None or found.opcode not in _COPIES or not found.operands:
            return found
        found = computation.by_name.get(found.operands[0])
    return None


def _is_element(computation: Computation, value: Instruction | None) -> bool:
    """Whether a value is an element of the loop's state."""
    if value is None or value.opcode != "get-tuple-element" or not value.operands:
        return False
    state = computation.by_name.get(value.operands[0])
    return state is not None and state.parameter_number == 0


def _literal(value: Instruction | None) -> int | None:
    if value is None or value.opcode != "constant":
        return None
    text = str(value.attributes.get("literal", "")).strip()
    return int(text) if text.lstrip("-").isdecimal() else None

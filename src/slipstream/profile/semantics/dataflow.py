"""Where a value comes from and where it goes, through casts, slices, loops and fusions.

params['w1'] ─► slice ─► convert ─► all-gather ─► dot        origin(dot's operand) = w1
dot ─► reduce-scatter ─► loop result ─► w1 − lr·g            updated_weights(dot) = [w1]
"""

from __future__ import annotations

import re
from collections import deque

from slipstream.profile.program import Computation, Instruction, Program

# Operations whose result is a view of their first operand.
VIEWS = frozenset(
    (
        "bitcast", "convert", "copy", "reshape", "transpose", "slice", "dynamic-slice", "broadcast",
        "all-gather", "optimization-barrier", "copy-start", "copy-done",
    )
)  # fmt: skip
VIEW_CALLS = ("ConcatBitcast", "ZeroCrop")
"""custom calls of XLA:TPU that do nothing: slices that were copied to adjacent places are one
value, and a value without its padding"""
# Keys that mean nothing without the one before them.
_GENERIC = frozenset(
    (
        "w", "b", "kernel", "bias", "scale", "weight", "weights", "embedding", "value", "var",
        "emb_var", "linear",
    )
)  # fmt: skip
_KEY = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]|([A-Za-z_]\w*)")
_STATE = re.compile(r"opt|(?:^|[.\[_'\"])(?:mu|nu|momentum|trace|ema)(?:$|[.\]'\"])")
_MOMENTS = frozenset(("m", "v"))
_MODEL = re.compile(r"param|weight|model")
_MOST_STEPS = 64


def parameter_name(op_name: str) -> str:
    """A short name for an argument: `params['mlp']['w1']` is w1, `['mlp']['bias']` is mlp.bias."""
    keys: list[str] = [a or b for a, b in _KEY.findall(op_name)]
    keys = [key for key in keys if not key.isdigit()] or keys
    if not keys:
        return op_name
    if keys[-1] in _GENERIC and len(keys) > 1:
        generic = [key for key in keys[:-1] if key not in _GENERIC]
        return ".".join((*generic[-1:], keys[-1]))
    return keys[-1]


def is_weight(op_name: str) -> bool:
    """Whether an argument looks like a weight: part of a tree, and not optimizer state."""
    if "[" not in op_name and "." not in op_name or _STATE.search(op_name):
        return False
    keys = [a or b for a, b in _KEY.findall(op_name)]
    return not _is_moment([key for key in keys if not key.isdigit()])


def _is_moment(keys: list[str]) -> bool:
    """Whether it is Adam's `state['v']['w1']`, not a projection `params['attention']['v']`."""
    head = [place for place, key in enumerate(keys[:2]) if key in _MOMENTS]
    return bool(head) and not _MODEL.search(keys[0])


def fused(program: Program, instruction: Instruction) -> Computation | None:
    """The computation that a fusion (or the start of an asynchronous one) runs."""
    inner = program.wrapped(instruction.name) or instruction
    if inner.opcode not in ("fusion", "fusion-start") or not inner.called:
        return None
    return program.computations.get(inner.called[0])


def origin(program: Program, instruction: Instruction) -> Instruction | None:
    """The entry parameter that a value is a view of; None if it was computed."""
    value: Instruction | None = instruction
    index: int | None = None
    for _ in range(_MOST_STEPS):
        if value is None or value.opcode == "parameter" and value.computation == program.entry.name:
            return value if index is None else None
        value, index = _before(program, value, index)
    return None


def _before(
    program: Program, value: Instruction, index: int | None
) -> tuple[Instruction | None, int | None]:
    """One step back; `index` selects an element of a tuple."""
    operands = program.operands(value)
    if value.opcode == "get-tuple-element":
        return (operands[0], value.tuple_index) if operands and index is None else (None, None)
    if value.opcode == "tuple":
        return (operands[index], None) if index is not None and index < len(operands) else _NOWHERE
    if value.opcode == "parameter":
        return _outside(program, value, index)
    if value.opcode == "while" and operands:
        return (operands[0], index) if _is_invariant(program, value, index) else _NOWHERE
    base = value.opcode.removesuffix("-start").removesuffix("-done")
    if value.is_done and operands:
        # Other fusions pass on the state of a TPU's asynchronous collective.
        start = program.partner(value.name) if "chain_id" in value.attributes else None
        return start or operands[0], index
    if value.custom_call_target in VIEW_CALLS and operands:
        return operands[0], None
    if base == "fusion" and value.called:
        return _through_fusion(program, value, index)
    if base in VIEWS and operands:
        is_combined = len(operands) > 1 and base == "all-gather"
        chosen = index if is_combined and index is not None and index < len(operands) else 0
        return operands[chosen], None
    return _NOWHERE


_NOWHERE: tuple[None, None] = (None, None)


def _outside(
    program: Program, parameter: Instruction, index: int | None
) -> tuple[Instruction | None, int | None]:
    """From a computation's parameter to the caller's operand."""
    caller = program.caller(parameter.computation)
    if caller is None:
        return _NOWHERE
    operands = program.operands(caller)
    if caller.opcode == "while":
        return (operands[0], index) if _is_invariant(program, caller, index) else _NOWHERE
    number = parameter.parameter_number or 0
    return (operands[number], index) if number < len(operands) else _NOWHERE


def _is_invariant(program: Program, loop: Instruction, index: int | None) -> bool:
    """Whether a loop passes an element of its state on unchanged."""
    if index is None or not loop.called:
        return False
    body = program.computations[loop.called[0]]
    operands = body.operands(body.root)
    if body.root.opcode != "tuple" or index >= len(operands):
        return False
    value = operands[index]
    while value.opcode in _SAME_VALUE and (inner := body.operands(value)):
        value = inner[0]
    return value.opcode == "get-tuple-element" and value.tuple_index == index


_SAME_VALUE = ("copy", "bitcast", "copy-start", "copy-done")


def _through_fusion(
    program: Program, fusion: Instruction, index: int | None
) -> tuple[Instruction | None, int | None]:
    """Back through a fusion that is only a view of one of its operands."""
    computation = fused(program, fusion)
    if computation is None:
        return _NOWHERE
    value = computation.root
    if value.opcode == "tuple" and index is not None:
        operands = computation.operands(value)
        value = operands[index] if index < len(operands) else value
    while value.opcode in VIEWS and (operands := computation.operands(value)):
        value = operands[0]
    outer = program.operands(fusion)
    number = value.parameter_number
    if number is None or number >= len(outer):
        return _NOWHERE
    return outer[number], None


def updated_weights(program: Program, instruction: Instruction) -> list[Instruction]:
    """The weights that a value is the gradient of: those updated with it."""
    seen: set[tuple[str, int | None]] = set()
    queue: deque[tuple[Instruction, int | None]] = deque([(instruction, None)])
    weights: dict[str, Instruction] = {}
    while queue and len(seen) < 4 * _MOST_STEPS:
        value, index = queue.popleft()
        if (value.name, index) in seen:
            continue
        seen.add((value.name, index))
        computation = program.computations[value.computation]
        if value.is_root and index is not None:
            queue.extend(_loop_results(program, computation, index))
        for user in computation.users.get(value.name, ()):
            weight = _updated_weight(program, user, value)
            if weight is not None:
                weights.setdefault(weight.name, weight)
            else:
                queue.extend(_after(program, value, user, index))
    return list(weights.values())


def _after(
    program: Program, value: Instruction, user: Instruction, index: int | None
) -> list[tuple[Instruction, int | None]]:
    """One step forward, if the user passes the value on."""
    if user.opcode == "get-tuple-element":
        return [(user, None)] if index in (None, user.tuple_index) else []
    if user.opcode == "tuple":
        return [(user, place) for place, name in enumerate(user.operands) if name == value.name]
    base = user.opcode.removesuffix("-start").removesuffix("-done")
    carries = base in VIEWS or base in _CARRIERS or user.is_done
    if base == "fusion" and not user.is_done:
        computation = fused(program, user)
        carries = computation is not None and all(map(_is_quiet, computation.instructions))
    if not carries:
        return []
    if base in _COMBINED and len(user.operands) > 1 and not user.is_done:
        # A combined collective: operands and results are in the same order.
        return [(user, place) for place, name in enumerate(user.operands) if name == value.name]
    return [(user, index)]


def _is_quiet(instruction: Instruction) -> bool:
    """Whether an operation inside a fusion keeps a gradient one: it moves or sums values."""
    if instruction.opcode in VIEWS or instruction.opcode in _QUIET:
        return True
    return not instruction.shape.is_float


_CARRIERS = frozenset(
    (
        "dynamic-update-slice",
        "reduce-scatter",
        "all-reduce",
        "all-to-all",
        "collective-permute",
        "concatenate",
    )
)
_COMBINED = frozenset(("reduce-scatter", "all-reduce", "all-gather", "all-to-all"))
_QUIET = frozenset(
    ("parameter", "constant", "dynamic-update-slice", "add", "tuple", "pad", "concatenate")
)


def _loop_results(
    program: Program, computation: Computation, index: int
) -> list[tuple[Instruction, int | None]]:
    loop = program.caller(computation.name)
    if loop is None or loop.opcode != "while":
        return []
    return [(loop, index)]


def _updated_weight(program: Program, user: Instruction, value: Instruction) -> Instruction | None:
    """The weight that `user` updates, if it is an entry fusion that writes a value of that size."""
    if user.opcode != "fusion" or user.computation != program.entry.name:
        return None
    size = value.shape.size
    if size not in {leaf.size for leaf in user.shape.leaves()}:
        return None
    for operand in program.operands(user):
        if operand.name == value.name or operand.shape.size != size:
            continue
        weight = origin(program, operand)
        if weight is not None and is_weight(weight.op_name):
            return weight
    return None

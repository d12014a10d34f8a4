"""Where a value comes from and where it goes, through casts, slices, loops and fusions.

params['w1'] ─► slice ─► convert ─► all-gather ─► dot        origin(dot's operand) = w1
dot ─► reduce-scatter ─► loop result ─► w1 − lr·g            updated_weights(dot) = [w1]
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import replace

from slipstream.profile.program import Computation, Instruction, Program, once_per_instruction

# Operations whose result is a view of their first operand.
VIEWS = frozenset(
    (
        "bitcast", "convert", "copy", "reshape", "transpose", "slice", "dynamic-slice", "broadcast",
        "all-gather", "collective-permute", "optimization-barrier", "copy-start", "copy-done",
    )
)  # fmt: skip
RENDEZVOUS = "_xla_host_transfer_rendezvous"
"""attribute of Megascale's sends and receives: the collective they belong to"""
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
_MOST_INSIDE = 4096
"""operations of fusions inside fusions"""


def parameter_name(op_name: str) -> str:
    """A short name for an argument: `params['mlp']['w1']` is w1, `['mlp']['bias']` is mlp.bias."""
    keys = _keys(op_name)
    keys = [key for key in keys if not key.isdigit()] or keys
    if not keys:
        return op_name
    if keys[-1] in _GENERIC and len(keys) > 1:
        generic = [key for key in keys[:-1] if key not in _GENERIC]
        return ".".join((*generic[-1:], keys[-1]))
    return keys[-1]


def parameter_path(op_name: str) -> str:
    """All keys of an argument: `state['params']['mlp']['w1']` is state.params.mlp.w1."""
    return ".".join(_keys(op_name)) if "'" in op_name else op_name


def is_weight(op_name: str) -> bool:
    """Whether an argument looks like a weight: part of a tree, and not optimizer state."""
    if "[" not in op_name and "." not in op_name or _STATE.search(op_name):
        return False
    return not _is_moment([key for key in _keys(op_name) if not key.isdigit()])


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


@once_per_instruction
def flattened(program: Program, instruction: Instruction) -> Computation | None:
    """What a fusion runs, with the operations of fusions inside it, which XLA:TPU makes."""
    computation = fused(program, instruction)
    if computation is None or not any(i.opcode == "fusion" for i in computation.instructions):
        return computation
    flat: list[Instruction] = []
    root = _flatten(program, computation, {}, flat)
    return Computation(computation.name, tuple(flat), root)


def _flatten(
    program: Program, computation: Computation, known: dict[str, str], flat: list[Instruction]
) -> Instruction:
    """Add operations to `flat`; `known` are operands under the names that they have there."""
    made: dict[str, Instruction] = {}
    for one in computation.instructions:
        if one.name in known:
            continue  # a parameter of a fusion inside
        operands = tuple(known.get(name, name) for name in one.operands)
        inside = program.computations.get(one.called[0]) if one.called else None
        if one.opcode == "fusion" and inside is not None and len(flat) < _MOST_INSIDE:
            names = zip((p.name for p in inside.parameters), operands, strict=False)
            found = _flatten(program, inside, dict(names), flat)
            known[one.name] = found.name
        else:
            found = one if operands == one.operands else replace(one, operands=operands)
            flat.append(found)
        made[one.name] = found
    root = computation.root
    by_name = {one.name: one for one in flat}
    return made[root.name] if root.name in made else by_name.get(known[root.name], root)


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


_SAME_VALUE = ("copy", "bitcast", "copy-start", "copy-done") + tuple(
    f"collective-permute{end}" for end in ("", "-start", "-done")
)
"""a loop may also pass the parts of a weight around, for a product of one part at a time"""


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
        return _joined(program, computation, outer), None
    return outer[number], None


def _joined(
    program: Program, computation: Computation, outer: tuple[Instruction, ...]
) -> Instruction | None:
    """One of the operands, if all are parts of one argument that a fusion puts together."""
    inside = computation.instructions
    if not any(i.opcode in _JOINS for i in inside) or any(
        i.opcode not in _JOINS | VIEWS | _GIVEN for i in inside if i.shape.is_float
    ):
        return None
    parts = [
        outer[n] for n, one in enumerate(computation.parameters[: len(outer)]) if one.shape.dims
    ]
    origins = {found.name if (found := origin(program, part)) else "" for part in parts}
    return parts[0] if len(origins) == 1 and "" not in origins else None


_JOINS = frozenset(("concatenate", "maximum", "pad", "select"))
"""XLA:TPU concatenates by the maximum of padded parts"""
_GIVEN = frozenset(("parameter", "constant"))


def received_by(program: Program, instruction: Instruction) -> Instruction | None:
    """The done of the receive that meets a send (or receive) between slices."""
    rendezvous = instruction.attributes.get(RENDEZVOUS)
    for other in program.computations[instruction.computation].instructions:
        if other.opcode == "recv" and other.attributes.get(RENDEZVOUS) == rendezvous:
            return program.partner(other.name)
    return None


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
    if user.opcode == "while" and user.called and index is not None:
        return [(one, index) for one in program.computations[user.called[0]].parameters]
    if user.opcode == "send" and RENDEZVOUS in user.attributes:
        received = received_by(program, user)
        return [(received, None)] if received is not None else []
    if user.opcode == "tuple":
        return [(user, place) for place, name in enumerate(user.operands) if name == value.name]
    base = user.opcode.removesuffix("-start").removesuffix("-done")
    carries = base in VIEWS or base in _CARRIERS or user.is_done
    carries |= user.custom_call_target in VIEW_CALLS
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
        found = origin(program, operand)
        if found is None or not found.op_name:
            continue
        weight = found if is_weight(found.op_name) else _weight_of_state(program, found)
        if weight is not None:
            return weight
    return None


def _weight_of_state(program: Program, state: Instruction) -> Instruction | None:
    """The weight that optimizer state belongs to: `p['mlp']['w1']` for `m['mlp']['w1']`.

    A step may update its moments first, and the weights with the moments.
    """
    keys = _keys(state.op_name)
    found, most = None, 0
    for other in program.entry.instructions:
        if other.opcode != "parameter" or other.shape.size != state.shape.size:
            continue
        alike = _common_end(keys, _keys(other.op_name))
        if is_weight(other.op_name) and alike > most:
            found, most = other, alike
    return found


def _keys(op_name: str) -> list[str]:
    return [a or b for a, b in _KEY.findall(op_name)]


def _common_end(one: list[str], other: list[str]) -> int:
    """How many of the last keys are equal."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def producer(program: Program, instruction: Instruction) -> Instruction | None:
    """The operation of the user's code that computed what a collective moves.

    XLA names no source for operations that it adds, such as transfers between slices.
    """
    queue: deque[tuple[Instruction, int | None]] = deque(
        (operand, None) for operand in program.operands(instruction)
    )
    seen: set[tuple[str, str, int | None]] = set()
    moved: Instruction | None = None
    while queue and len(seen) < 4 * _MOST_STEPS:
        value, index = queue.popleft()
        key = (value.computation, value.name, index)
        if key in seen or value.opcode in _SOURCELESS:
            continue
        seen.add(key)
        if "/" in value.op_name and value.opcode not in _PASSED_ON:
            if value.op_name.rpartition("/")[2] not in _MOVES:
                return value
            moved = moved or value
        queue.extend(_producers(program, value, index))
    return moved


_SOURCELESS = frozenset(("after-all", "constant", "iota"))
_PASSED_ON = frozenset(("while", "get-tuple-element", "tuple", "bitcast", "parameter"))
_MOVES = frozenset(
    (
        "broadcast_in_dim", "concatenate", "convert_element_type", "copy", "dynamic_slice",
        "dynamic_update_slice", "reshape", "slice", "squeeze", "transpose",
    )
)  # fmt: skip
"""primitives that only move values"""


def _producers(
    program: Program, value: Instruction, index: int | None
) -> list[tuple[Instruction, int | None]]:
    """The values that a value is made of, through loops and tuples."""
    if value.opcode == "get-tuple-element":
        return [(operand, value.tuple_index) for operand in program.operands(value)]
    if value.opcode == "tuple" and index is not None:
        return [(operand, None) for operand in program.operands(value)[index : index + 1]]
    if value.opcode == "while" and value.called:
        return [(program.computations[value.called[0]].root, index)]
    if value.opcode == "parameter":
        # What a loop carries was made by the iteration before, or else before the loop.
        loop = program.caller(value.computation)
        if loop is None or loop.opcode != "while":
            return []
        body = program.computations[value.computation].root
        return [(body, index), *((operand, index) for operand in program.operands(loop))]
    operands = program.operands(value)
    if value.opcode in _COMBINED and index is not None:
        operands = operands[index : index + 1]
    # Integers say where in a buffer the values are.
    return [(one, None) for one in operands if one.shape.is_float or one.shape.is_tuple]

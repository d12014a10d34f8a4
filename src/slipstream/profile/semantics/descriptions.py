"""A short description of an instruction: `x @ w1ᵀ`, `softmax`, `all-gather w1 436 MB`.

It is built from what the instruction contains: matrix products first, then well-known patterns
(softmax, gelu, rms norm), then the heaviest operations by name.  An operand that is a view of a
program argument gets the argument's name.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.attention import attention_of
from slipstream.profile.semantics.backend_config import TPU_KERNEL
from slipstream.profile.semantics.dataflow import (
    RENDEZVOUS,
    flattened,
    fused,
    is_weight,
    origin,
    parameter_name,
    received_by,
    updated_weights,
)
from slipstream.profile.semantics.matmuls import matmul
from slipstream.profile.semantics.op_patterns import pattern_name
from slipstream.profile.semantics.signatures import COPY_STARTS, copied_shape, result_shape
from slipstream.profile.shapes import Shape
from slipstream.units import format_bytes

SUMS = ("reduce-scatter", "all-reduce")
TRANSFER_TYPE = "_xla_megascale_transfer_type"
"""attribute of Megascale's sends and receives: the kind of the collective they belong to"""
_MOST_NAMES = 4
_MOST_WORDS = 3
_known: WeakKeyDictionary[Program, dict[tuple[str, str], str]] = WeakKeyDictionary()


def describe(program: Program, instruction: Instruction) -> str:
    """Describe what an instruction does, in a few words."""
    known = _known.setdefault(program, {})
    key = (instruction.computation, instruction.name)
    if key not in known:
        known[key] = _described(program, instruction)
    return known[key]


def _described(program: Program, instruction: Instruction) -> str:
    if (starter := program.starter(instruction.name)) is not None:
        return describe(program, starter)
    if (start := program.partner(instruction.name)) is not None and not instruction.is_start:
        return f"wait for {describe(program, start).removeprefix('receive ')}"
    if instruction.collective is not None:
        return _collective(program, instruction)
    for attempt in (matmul, _memory, _update, _pattern, _call):
        if found := attempt(program, instruction):
            return found
    return _operations(program, instruction)


def _collective(program: Program, instruction: Instruction) -> str:
    assert instruction.collective is not None
    if RENDEZVOUS in instruction.attributes:
        return _between_slices(program, instruction)
    kind, size = instruction.collective.kind, format_bytes(instruction.collective.bytes)
    return " ".join(part for part in (kind, moved_names(program, instruction), size) if part)


def _between_slices(program: Program, instruction: Instruction) -> str:
    """One end of a collective between slices of TPUs: `send ∂w1 8.39 MB, all-reduce of slices`."""
    assert instruction.collective is not None
    verb = "send" if instruction.opcode == "send" else "receive"
    size = format_bytes(instruction.collective.bytes)
    parts = (verb, moved_names(program, instruction), size)
    moved = " ".join(part for part in parts if part)
    return f"{moved}, {transfer_kind(instruction)} of slices"


def moved_names(program: Program, instruction: Instruction) -> str:
    """Whose gradients (`∂w1`) or which arguments a collective moves; empty if unknown."""
    mark = "∂" if sums(instruction) else ""
    found = moved_arguments(program, instruction)
    return _listed([f"{mark}{parameter_name(one.op_name)}" for one in found])


def sums(instruction: Instruction) -> bool:
    """Whether a collective adds values of devices or slices, as for gradients."""
    if RENDEZVOUS in instruction.attributes:
        return transfer_kind(instruction) in SUMS
    return instruction.collective is not None and instruction.collective.kind in SUMS


def transfer_kind(instruction: Instruction) -> str:
    """The collective that a transfer between slices belongs to: `all-reduce`."""
    stated = str(instruction.attributes.get(TRANSFER_TYPE, "transfer"))
    return stated.lower().replace("_", "-")


def moved_arguments(program: Program, instruction: Instruction) -> list[Instruction]:
    """The arguments of the program that a collective moves; if it sums, whose gradients it sums.

    Empty if it moves values that were computed, or if their origin can't be told.
    """
    if sums(instruction):
        value = instruction
        if RENDEZVOUS in instruction.attributes:
            value = received_by(program, instruction) or instruction
        return updated_weights(program, value)
    origins = (origin(program, operand) for operand in program.operands(instruction))
    return [found for found in origins if found is not None and found.op_name]


def _listed(names: list[str]) -> str:
    names = list(dict.fromkeys(names))
    rest = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" +{rest}" if rest > 0 else "")


# Moving data.


def _memory(program: Program, instruction: Instruction) -> str:
    """Copies and slices: to or from the host, or of a weight."""
    moved = _moved(program, instruction)
    if moved is None:
        return ""
    verb, size = moved
    operands = program.operands(instruction)
    from_host = any(operand.shape.on_host for operand in operands)
    to_host = result_shape(instruction).on_host
    if to_host and verb != "slice":
        return f"copy to host {size}"
    if from_host:
        return f"copy from host {size}"
    found = origin(program, instruction)
    name = parameter_name(found.op_name) if found is not None and found.op_name else ""
    name = name or _gradient(program, instruction)
    result = result_shape(instruction)
    words = {"slice": "slice", "update": "store", "copy": "copy"}
    return " ".join(part for part in (words[verb], name, size, _between(operands, result)) if part)


def _between(operands: tuple[Instruction, ...], result: Shape) -> str:
    """`to VMEM`, `from VMEM` for a copy between a TPU's memories."""
    origin = operands[0].shape.memory if operands else result.memory
    if origin == result.memory:
        return ""
    return f"to {result.memory}" if result.memory != "HBM" else f"from {origin}"


def _moved(program: Program, instruction: Instruction) -> tuple[str, str] | None:
    """(kind of copy, size of what it moves); None if the instruction computes something."""
    base = instruction.opcode.removesuffix("-start")
    if base == "copy":
        leaf = next(instruction.shape.leaves())
        return "copy", format_bytes(leaf.bytes)
    if instruction.opcode in COPY_STARTS:
        verb = "update" if base == "dynamic-update-slice" else "slice"
        return verb, format_bytes(copied_shape(program, instruction).bytes)
    computation = fused(program, instruction)
    inside = computation.instructions if computation is not None else (instruction,)
    kinds = {i.opcode: i for i in inside if i.opcode in _COPIES}
    if not kinds or any(_computes(i) for i in inside):
        return None
    if (update := kinds.get("dynamic-update-slice")) is not None:
        where = program.computations[update.computation]
        return "update", format_bytes(where.by_name[update.operands[1]].shape.bytes)
    if (part := kinds.get("dynamic-slice")) is not None:
        return "slice", format_bytes(part.shape.bytes)
    if not any(i.opcode == "parameter" for i in inside):
        return None
    return "copy", format_bytes(instruction.shape.bytes)


def _computes(instruction: Instruction) -> bool:
    """Whether an operation does more than move data or compute indices."""
    return instruction.shape.is_float and instruction.opcode not in _MOVES


_COPIES = ("copy", "dynamic-slice", "dynamic-update-slice")
_MOVES = frozenset(
    (
        "parameter", "constant", "bitcast", "broadcast", "convert", "copy", "reshape", "slice",
        "transpose", "tuple", "dynamic-slice", "dynamic-update-slice", "select",
    )
)  # fmt: skip


# Computing.


def _update(program: Program, instruction: Instruction) -> str:
    """An optimizer update: a fusion that takes a weight and returns a new one of its shape."""
    computation = fused(program, instruction)
    is_differentiated = "jvp(" in instruction.op_name
    if computation is None or is_differentiated or instruction.computation != program.entry.name:
        return ""
    results = {leaf.size for leaf in instruction.shape.leaves()}
    aliased = []
    for operand in program.operands(instruction):
        found = origin(program, operand)
        if found is not None and found.shape.size in results:
            aliased.append(found.op_name)
    if not any(i.opcode in _STEPS and i.shape.is_float for i in computation.instructions):
        return ""
    weights = [parameter_name(name) for name in aliased if is_weight(name)]
    return f"update {_listed(weights)}" if weights else ""


_STEPS = ("add", "subtract")


def _pattern(program: Program, instruction: Instruction) -> str:
    computation = fused(program, instruction)
    if computation is None:
        return ""
    found = pattern_name(program, computation)
    if found.startswith("reduce ") and (name := _gradient(program, instruction)):
        return f"{name} = {found.removeprefix('reduce ')}"
    return found


def _gradient(program: Program, instruction: Instruction) -> str:
    """`∂w1` for the gradient of one weight; empty for anything else."""
    if "transpose(" not in instruction.op_name:
        return ""
    weights = updated_weights(program, instruction)
    return f"∂{parameter_name(weights[0].op_name)}" if len(weights) == 1 else ""


def _call(program: Program, instruction: Instruction) -> str:
    if instruction.opcode == "while":
        return f"loop ×{instruction.trip_count}" if instruction.trip_count else "loop"
    if instruction.opcode != "custom-call":
        return ""
    if instruction.custom_call_target == "AllocateBuffer":
        return f"allocate {format_bytes(instruction.shape.bytes)}"
    if instruction.custom_call_target == TPU_KERNEL:
        return _tpu_kernel(program, instruction)
    target = instruction.custom_call_target.removeprefix("__")
    if target.startswith("cudnn$conv"):
        return _convolution(program, instruction)
    if target.startswith("cudnn$fmha"):
        return "flash attention′" if "Backward" in target else "flash attention"
    return target.replace("$", " ").replace("_", " ") or "custom call"


def _tpu_kernel(program: Program, instruction: Instruction) -> str:
    """A Pallas kernel for TPUs: attention, or its name, from which XLA names the instruction."""
    shapes = [operand.shape for operand in program.operands(instruction)]
    attention = attention_of(instruction, shapes)
    if attention is not None:
        return "flash attention′" if attention.is_backward else "flash attention"
    return f"{instruction.name.partition('.')[0].replace('_', ' ')} (Pallas)"


def _convolution(program: Program, instruction: Instruction) -> str:
    """`x ∗ w` forward, `dy ∗ wᵀ` and `∂w = x ∗ dy` backward."""
    if "BackwardFilter" in instruction.custom_call_target:
        gradient = _gradient(program, instruction)
        return f"{gradient} = x ∗ dy" if gradient else "x ∗ dy"
    operands = program.operands(instruction)
    found = origin(program, operands[1]) if len(operands) > 1 else None
    name = parameter_name(found.op_name) if found is not None and found.op_name else "filter"
    # cuDNN runs a backward convolution of size 1 as a forward one; only its op name tells.
    is_remat = "rematted" in instruction.op_name
    is_backward = "BackwardInput" in instruction.custom_call_target or (
        "transpose(" in instruction.op_name and not is_remat
    )
    return f"dy ∗ {name}ᵀ" if is_backward else f"x ∗ {name}"


def _operations(program: Program, instruction: Instruction) -> str:
    """The operations of a fusion by name: the heavy ones alone, if there are any."""
    computation = flattened(program, instruction)
    if instruction.opcode == "convert":
        return _cast(instruction, _weights(program, instruction))
    if computation is None:
        named = parameter_name(instruction.op_name) if instruction.opcode == "parameter" else ""
        return named or instruction.opcode
    result = next(instruction.shape.leaves())
    if not result.is_float and not result.dims:
        return "loop condition" if result.dtype == "pred" else "loop counter"
    inside = computation.instructions
    heavy = list(dict.fromkeys(_HEAVY[i.opcode] for i in inside if i.opcode in _HEAVY))
    names = _weights(program, instruction)
    if "scatter" in heavy:
        names = _gradient(program, instruction) or names
    if heavy:
        return _phrase(heavy, names)
    light, moves = _light_operations(inside)
    if not light and not moves:
        return _filled(inside, instruction, names)
    words = [*light, *moves]
    if words[0] == "multiply" and names:
        return ", ".join((f"x × {names}", *words[1:_MOST_WORDS]))
    return _phrase(words, names, "" if light or names else format_bytes(instruction.shape.bytes))


def _light_operations(inside: tuple[Instruction, ...]) -> tuple[list[str], list[str]]:
    """(cheap arithmetic, data movement) of a fusion, each operation once."""
    floats = [i for i in inside if i.shape.is_float]
    light = list(dict.fromkeys(_LIGHT[i.opcode] for i in floats if i.opcode in _LIGHT))
    if _has_zero(inside):
        light = ["relu" if word == "maximum" else word for word in light]
    return light, list(dict.fromkeys(_move(i) for i in floats if i.opcode in _SHUFFLES))


def _phrase(words: list[str], names: str, size: str = "") -> str:
    return " ".join(part for part in (", ".join(words[:_MOST_WORDS]), names, size) if part)


def _has_zero(inside: tuple[Instruction, ...]) -> bool:
    return any(i.opcode == "constant" and i.attributes.get("literal") == "0" for i in inside)


def _weights(program: Program, instruction: Instruction) -> str:
    found = [origin(program, operand) for operand in program.operands(instruction)]
    return _listed([parameter_name(f.op_name) for f in found if f and is_weight(f.op_name)])


def _move(instruction: Instruction) -> str:
    is_split = instruction.opcode == "slice" and instruction.op_name.endswith("/split")
    return "split" if is_split else instruction.opcode


def _filled(inside: tuple[Instruction, ...], instruction: Instruction, names: str) -> str:
    """Fusions without arithmetic: casts, masks and constants."""
    size = format_bytes(sum(leaf.bytes for leaf in instruction.shape.leaves()))
    opcodes = {i.opcode for i in inside}
    if {"iota", "compare"} <= opcodes:
        return f"mask {size}"
    if "convert" in opcodes:
        return _cast(instruction, names)
    literals = {str(i.attributes.get("literal")) for i in inside if i.opcode == "constant"}
    return f"zeros {size}" if literals <= {"0", "false"} and literals else f"fill {size}"


def _cast(instruction: Instruction, names: str) -> str:
    dtype = next(instruction.shape.leaves()).dtype
    return " ".join(part for part in ("cast", names, f"to {dtype}") if part)


_HEAVY = {
    "scatter": "scatter",
    "gather": "gather",
    "sort": "sort",
    "exponential": "exp",
    "exponential-minus-one": "expm1",
    "log": "log",
    "log-plus-one": "log1p",
    "tanh": "tanh",
    "logistic": "sigmoid",
    "erf": "erf",
    "rsqrt": "rsqrt",
    "sqrt": "sqrt",
    "power": "power",
    "cosine": "cos",
    "sine": "sin",
    "rng-bit-generator": "random bits",
}
_SHUFFLES = frozenset(("concatenate", "transpose", "slice", "pad", "reverse"))
_LIGHT = {
    "divide": "divide",
    "multiply": "multiply",
    "subtract": "subtract",
    "add": "add",
    "maximum": "maximum",
    "minimum": "minimum",
    "select": "select",
    "negate": "negate",
}

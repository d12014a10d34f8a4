"""The weights of a model and their layers, from a program or a parameter tree.

Layers are stored in one of two ways:

    params['layers']['q']   bf16[32,4096,4096]     `scan`: one array holds all layers, stacked
    params['layers'][7]['q']  bf16[4096,4096]      unrolled: a number in the path names the layer

In a compiled program, a stacked array is one that a loop slices, and a sharded array is one that is
gathered before use: its size is one device's share times the number of devices.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.dataflow import is_weight, origin

_KEY = re.compile(r"\[['\"]?([^'\"\]]+)['\"]?\]|([A-Za-z_]\w*)")
_NUMBERED = re.compile(r"(.*?)(\d+)$")


@dataclass(frozen=True, slots=True)
class Weight:
    """One array of the model, as large as it is when a device computes with it."""

    path: tuple[str, ...]
    shape: tuple[int, ...]
    elements: int
    bytes: int
    stacked: int = 1
    """the number of layers in the array"""
    layer: str = ""
    """the layer it belongs to, if layers have separate arrays"""
    is_gathered: bool = False
    """whether it is sharded, and gathered before use"""
    groups: str = ""
    """the devices it is gathered from; collectives of different groups are never combined"""
    dimension: int | None = None
    """the dimension it is gathered along"""

    @property
    def key(self) -> str:
        """The layer it counts towards; empty for embeddings and the output layer."""
        return f"stack of {self.stacked}" if self.stacked > 1 else self.layer

    @property
    def layer_bytes(self) -> int:
        return self.bytes // self.stacked


def path_of(op_name: str) -> tuple[str, ...]:
    """`params['layers'][3]['q']` as its keys: params, layers, 3, q."""
    return tuple(a or b for a, b in _KEY.findall(op_name))


def with_layers(weights: Sequence[Weight]) -> list[Weight]:
    """Add the layer's name to weights that belong to numbered layers.

    A number in a path is that of a layer if another number there leads to an array of equal shape.
    """
    numbers: dict[tuple[object, ...], set[str]] = defaultdict(set)
    for weight in weights:
        for place, head, number in _numbered(weight.path):
            numbers[_around(weight, place, head)].add(number)
    found = []
    for weight in weights:
        places = [
            (place, head, number)
            for place, head, number in _numbered(weight.path)
            if weight.stacked == 1 and len(numbers[_around(weight, place, head)]) > 1
        ]
        # The first number after an argument's name may count arguments: `state[0]`.
        places.sort(key=lambda at: (at[0] == 1, at[0]))
        layer = "".join(places[0][1:]) if places else ""
        prefix = ".".join(weight.path[: places[0][0]]) if places else ""
        found.append(replace(weight, layer=f"{prefix}.{layer}".strip(".") if layer else ""))
    return found


def _numbered(path: tuple[str, ...]) -> Iterable[tuple[int, str, str]]:
    """The numbers in a path: position, text before the number, number."""
    for place, part in enumerate(path):
        match = _NUMBERED.fullmatch(part)
        # `w1` at the end of a path is one of several arrays of a layer, not a layer.
        if match and (not match[1] or place < len(path) - 1):
            yield place, match[1], match[2]


def _around(weight: Weight, place: int, head: str) -> tuple[object, ...]:
    return weight.path[:place], head, weight.path[place + 1 :], weight.shape


# From a program.


@dataclass(frozen=True, slots=True)
class _Gather:
    """One weight in one all-gather."""

    elements: int
    bytes: int
    devices: int
    groups: str
    dimension: int | None


def weights_of(program: Program) -> list[Weight]:
    """The weights among a program's parameters, with their gathered sizes."""
    gathers = _gathers(program)
    stacks = _stacks(program)
    found = []
    for parameter in _parameters(program, gathers):
        weight = Weight(
            path_of(parameter.op_name) or (parameter.name,),
            parameter.shape.dims,
            parameter.shape.size,
            parameter.shape.bytes,
            stacks.get(parameter.name, 1),
        )
        if parameter.name in gathers:
            weight = _gathered(weight, gathers[parameter.name])
        found.append(weight)
    return with_layers(found)


def _gathered(weight: Weight, gathers: list[_Gather]) -> Weight:
    # A cast before the gather changes the bytes but not the elements; use the largest gather.
    largest = max(gathers, key=lambda gather: gather.bytes / gather.elements)
    return replace(
        weight,
        elements=weight.elements * largest.devices,
        bytes=round(weight.elements * largest.bytes / largest.elements),
        is_gathered=True,
        groups=largest.groups,
        dimension=largest.dimension,
    )


def _parameters(program: Program, gathers: dict[str, list[_Gather]]) -> list[Instruction]:
    """The entry parameters that are weights: named so, updated, or gathered."""
    floats = [p for p in program.entry.parameters if p.shape.is_float and p.shape.dims]
    named = [p for p in floats if is_weight(p.op_name)]
    if not named:
        named = [p for p in floats if p.name in gathers]
    results = {(leaf.dtype, leaf.dims) for leaf in program.entry.root.shape.leaves()}
    updated = [p for p in named if (p.shape.dtype, p.shape.dims) in results]
    return updated or named


def _gathers(program: Program) -> dict[str, list[_Gather]]:
    """The all-gathers of each entry parameter."""
    found: dict[str, list[_Gather]] = defaultdict(list)
    for instruction in program.runnable:
        collective = instruction.collective
        if collective is None or collective.kind != "all-gather" or instruction.is_done:
            continue
        if program.starter(instruction.name) is not None:
            continue
        operands = program.operands(instruction)
        brought = sum(operand.shape.bytes for operand in operands)
        if not brought:
            continue
        times = round(collective.bytes / brought)
        inner = program.wrapped(instruction.name) or instruction
        dims = inner.attributes.get("dimensions", ())
        dimension = dims[0] if isinstance(dims, tuple) and dims else None
        for operand in operands:
            size, size_bytes = operand.shape.size, operand.shape.bytes
            parameter = origin(program, operand) if size else None
            # An operand larger than the weight is derived from it: the broadcast scale of a norm.
            if parameter is not None and size <= parameter.shape.size:
                groups = str(collective.replica_groups)
                gather = _Gather(size, size_bytes * times, times, groups, dimension)
                found[parameter.name].append(gather)
    return found


def _stacks(program: Program) -> dict[str, int]:
    """The number of layers in each entry parameter that a loop slices."""
    found: dict[str, int] = {}
    for instruction in program.instructions:
        if instruction.opcode != "dynamic-slice":
            continue
        operands = program.operands(instruction)
        loop = program.loop_of(instruction.name) if operands else None
        if loop is None or not instruction.shape.size:
            continue
        layers = operands[0].shape.size // instruction.shape.size
        if not _fits(loop.trip_count, layers):
            continue
        parameter = origin(program, operands[0])
        if parameter is not None and parameter.shape.size == operands[0].shape.size:
            found[parameter.name] = max(found.get(parameter.name, 1), layers)
    return found


def _fits(trips: int | None, layers: int) -> bool:
    """Whether a loop can iterate over so many layers; it may be unrolled by two, or peeled."""
    return layers > 1 and (trips is None or trips <= layers <= 2 * trips + 2)

"""Which devices a collective connects: XLA's notations for groups of devices, expanded.

{{0,1},{2,3}}                  a list
[2,4]<=[4,2]T(1,0)             an iota: count to 8, reshape to 4×2, transpose, cut into 2×4
mesh['data'=2,'model'=4] {'model'}      all devices that differ in these axes only
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from slipstream.profile.program import Collective
from slipstream.profile.shapes import Shape

Groups = tuple[tuple[int, ...], ...]
Axis = tuple[int, int, int]
"""an axis of a mesh, the size of its part before, and the size of its part that is used"""

KINDS = frozenset(
    (
        "all-gather",
        "all-reduce",
        "reduce-scatter",
        "all-to-all",
        "ragged-all-to-all",
        "collective-permute",
        "collective-broadcast",
        "send",
        "recv",
    )
)
_SYNC = re.compile(r'"is_sync"\s*:\s*true')
_PAIR = re.compile(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}")
_LIST = re.compile(r"\{([\d,\s]*)\}")
_IOTA = re.compile(r"\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
# Each part ends at the first character that it can't hold: there is one way to match, tried once.
_MESH = re.compile(r"mesh\[([^\]]*)\](?:,?\s*device_ids=\(([^()]*(?:\([^()]*\))?)\))?\s*\{(.*)\}")
_MESH_AXIS = re.compile(r"'([^']*)'\s*=\s*(\d+)")
_AXIS_REF = re.compile(r"'([^']*)'(?::\((\d+)\)(\d+))?")
MOST_DEVICES = 1 << 20
MOST_AXES = 64
"""of a mesh or an iota; real ones have a few"""


def collective_kind(opcode: str) -> str | None:
    """The kind of communication of an opcode, with or without `-start`; None for other opcodes."""
    kind = opcode.removesuffix("-start")
    return kind if kind in KINDS else None


def describe_collective(
    opcode: str,
    shape: Shape,
    operands: Sequence[Shape],
    *,
    groups: Groups = (),
    pairs: tuple[tuple[int, int], ...] = (),
    channel_id: int | None = None,
    devices: int | None = None,
    backend_config: str = "",
) -> Collective | None:
    """The Collective of an instruction; None if it does not communicate."""
    kind = collective_kind(opcode)
    if kind is None:
        return None
    size: int | None = max(map(len, groups)) if groups else devices
    if kind in ("collective-permute", "send", "recv"):
        size = 2
    return Collective(
        kind,
        _payload(kind, opcode, shape, operands),
        size,
        groups,
        channel_id,
        pairs,
        is_sync=_SYNC.search(backend_config) is not None,
    )


def _payload(kind: str, opcode: str, shape: Shape, operands: Sequence[Shape]) -> int:
    if kind == "all-gather":
        # A start's shape is (operands, results, …), in all notations.
        if opcode.endswith("-start") and len(shape.elements) > 1:
            return shape.elements[1].bytes
        return shape.bytes
    if kind == "recv":
        return shape.elements[0].bytes if shape.elements else 0
    if kind in ("collective-permute", "send", "ragged-all-to-all"):
        return operands[0].bytes if operands else 0
    return sum(operand.bytes for operand in operands)


def list_groups(lists: Sequence[Sequence[int]]) -> Groups:
    return tuple(tuple(group) for group in lists)


def iota_groups(groups: int, each: int, reshape: Sequence[int], order: Sequence[int]) -> Groups:
    """`[groups,each]<=[reshape]T(order)`; ValueError if the numbers don't match."""
    devices = _transposed(list(reshape), list(order))
    if groups * each != len(devices) or each < 1:
        raise ValueError(f"{groups} groups of {each} can't be made of {len(devices)} devices")
    return tuple(tuple(devices[i : i + each]) for i in range(0, len(devices), each))


def mesh_groups(
    sizes: Sequence[int], axes: Sequence[Axis], devices: Sequence[int] | None = None
) -> Groups:
    """Groups along `axes` of a mesh of these sizes; `devices` are its devices if not 0, 1, 2, …"""
    if max(len(sizes), len(axes)) > MOST_AXES:
        raise ValueError(f"groups along {len(axes)} of {len(sizes)} axes")
    split: list[int] = []
    # Index in `split` of each part of each axis: (axis, size of the parts before it).
    places: dict[tuple[int, int], int] = {}
    for number, size in enumerate(sizes):
        mine = [(before, before * part) for axis, before, part in axes if axis == number]
        cuts = sorted({1, size, *(cut for pair in mine for cut in pair)})
        for low, high in pairwise(cuts):
            if low < 1 or high % low:
                raise ValueError(f"an axis of {size} can't be cut at {cuts}")
            places[number, low] = len(split)
            split.append(high // low)
    within = [
        place
        for axis, before, part in axes
        for (number, low), place in places.items()
        if number == axis and before <= low < before * part
    ]
    across = [place for place in range(len(split)) if place not in within]
    ids = _transposed(split, across + within)
    each = math.prod(split[place] for place in within)
    if devices is not None:
        if len(devices) != len(ids):
            raise ValueError(f"a mesh of {len(ids)} places has {len(devices)} devices")
        ids = [devices[i] for i in ids]
    return tuple(tuple(ids[i : i + each]) for i in range(0, len(ids), each))


def devices_of(dims: Sequence[int]) -> int:
    """How many devices are in an array of these dimensions; ValueError if that can't be."""
    if len(dims) > MOST_AXES:
        raise ValueError(f"{len(dims)} dimensions")
    if (count := math.prod(dims)) > MOST_DEVICES:
        raise ValueError(f"{count} devices")
    return count


def _transposed(dims: list[int], order: list[int]) -> list[int]:
    """0, 1, 2, … reshaped to `dims`, transposed by `order`, flattened."""
    devices_of(dims)
    order = order or list(range(len(dims)))
    if sorted(order) != list(range(len(dims))) or any(dim < 1 for dim in dims):
        shown = f"{order[:8]} doesn't permute the dimensions {dims[:8]}"
        raise ValueError(shown[:120])
    values = [0]
    for dim in order:
        stride = math.prod(dims[dim + 1 :])
        values = [value + stride * i for value in values for i in range(dims[dim])]
    return values


def parse_groups(text: str) -> Groups:
    """The groups in a text, () for `{}`; ValueError if the notation is unknown."""
    if match := _IOTA.fullmatch(text):
        shape, reshape, order = (_ints(part or "") for part in match.groups())
        if len(shape) != 2:
            shape = [1, devices_of(shape)]
        return iota_groups(shape[0], shape[1], reshape, order)
    if match := _MESH.fullmatch(text):
        return _parse_mesh(*match.groups())
    if text.startswith("{") and text.endswith("}"):
        return tuple(tuple(_ints(inner)) for inner in _LIST.findall(text[1:-1]))
    raise ValueError(f"unknown replica groups {text[:60]!r}")


def _parse_mesh(mesh: str, devices: str | None, refs: str) -> Groups:
    names = [(name, int(size)) for name, size in _MESH_AXIS.findall(mesh)]
    places = {name: number for number, (name, _) in enumerate(names)}
    axes: list[Axis] = []
    for name, before, part in _AXIS_REF.findall(refs):
        if name not in places:
            raise ValueError(f"the mesh has no axis {name!r}")
        axes.append((places[name], int(before or 1), int(part or names[places[name]][1])))
    ids = None
    if devices and devices.startswith("["):
        dims, _, order = devices.partition("T")
        ids = _transposed(_ints(dims), _ints(order))
    elif devices:
        ids = _ints(devices)
    return mesh_groups([size for _, size in names], axes, ids)


def parse_pairs(text: str) -> tuple[tuple[int, int], ...]:
    """`{{0,1},{1,0}}` as pairs of source and target."""
    return tuple((int(source), int(target)) for source, target in _PAIR.findall(text))


def _ints(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]

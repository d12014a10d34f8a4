"""What the devices receive where a program states that an array in pieces becomes whole.

    weight = with_sharding_constraint(weight, P("fsdp", "tensor"))      in pieces
    weight = with_sharding_constraint(weight, P(None, "tensor"))        gathered over "fsdp"

Between two such statements about one array, every device receives what it lacks. Anything else
that moves, such as gradients and activations, is up to XLA and not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

HOST = ("pinned_host", "unpinned_host")
"""kinds of memory that are not on a device"""


@dataclass(frozen=True)
class Gather:
    """An array whose sharding is stated twice in a row."""

    shape: tuple[int, ...]
    bits: int
    """of an element, in the narrowest type that it has or had"""
    before: Any
    after: Any
    """shardings"""
    times: int = 1
    number: int | None = None
    """of its expression; None outside of the loop that it is in"""


def received_bytes(gathers: Iterable[Gather], domain: int) -> tuple[int, int]:
    """What one device receives, and what a link domain receives over the network; the least.

    `domain` is the number of consecutive devices in a link domain.
    """
    found = [_received(one, domain) for one in gathers]
    return sum(own for own, _ in found), sum(network for _, network in found)


def _received(one: Gather, domain: int) -> tuple[int, int]:
    before, after = _axes(one.before, len(one.shape)), _axes(one.after, len(one.shape))
    if before is None or after is None or one.before.mesh != one.after.mesh:
        return 0, 0
    if any(own[: len(whole)] != whole for own, whole in zip(before, after, strict=True)):
        return 0, 0  # not only a gather
    kept = {axis for axes in after for axis in axes}
    over = [axis for axes in before for axis in axes if axis not in kept]
    ways = math.prod(one.before.mesh.shape[axis] for axis in over)
    piece = one.times * math.prod(one.before.shard_shape(one.shape)) * one.bits // 8
    return (ways - 1) * piece, _entering(one.before.mesh, over, ways, domain) * piece


def _axes(sharding: Any, dimensions: int) -> list[tuple[str, ...]] | None:
    """The mesh axes that cut each dimension; None if that can't be told."""
    spec, mesh = getattr(sharding, "spec", None), getattr(sharding, "mesh", None)
    if spec is None or mesh is None or sharding.memory_kind in HOST:
        return None
    if not hasattr(mesh, "devices"):
        return None  # an abstract mesh
    found = []
    for place in range(dimensions):
        axes = spec[place] if place < len(spec) else None
        axes = (axes,) if isinstance(axes, str) else axes if axes is not None else ()
        if not isinstance(axes, tuple):
            return None  # unconstrained
        found.append(tuple(axis for axis in axes if mesh.shape[axis] > 1))
    return found


def _entering(mesh: Any, over: Sequence[str], ways: int, domain: int) -> int:
    """The pieces that enter a domain, of those domains the least.

    Devices that differ only in axes to gather over are a group. XLA gathers in each group by
    itself, even if another group of the domain gathers the same.
    """
    import numpy as np

    others = [place for place, axis in enumerate(mesh.axis_names) if axis not in over]
    groups = np.indices(mesh.devices.shape).reshape(mesh.devices.ndim, -1)[others].T
    members: dict[int, list[tuple[int, ...]]] = {}
    for device, group in zip(mesh.devices.flat, groups, strict=True):
        members.setdefault(device.id // domain, []).append(tuple(group))
    return min(len(set(own)) * ways - len(own) for own in members.values())

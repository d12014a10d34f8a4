"""Synthetic inputs for a function whose argument shapes are known, the same in every process.

They are made on the devices, each shard where it belongs: a model's state may be larger than the
memory of the host.

    recipe 0   small floats of both signs; integers that are indices as `index_limits` allows,
               others small, since they may be indices all the same
    recipe 1   of subtrees with the same structure (weights and optimizer moments), only the
               weights keep both signs: optimizers take square roots of the others
    recipe 2   nothing is negative

In all of them the scales of norms are near one, as in training. Near zero they make all attention
scores alike, and the GPU draws less power.

Recipes are tried in order until the step returns finite numbers: on NaN every program agrees with
every other, and the GPU draws less power.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax

RECIPES = 3
_LARGEST = 0.035
"""absolute value of floats: their standard deviation is 0.02"""
_INTEGER_LIMIT = 8
_SCALE = re.compile(r"norm|scale|gamma|\bln_?\w*\b", re.IGNORECASE)
"""in the path of a weight that multiplies normalised values"""


class SyntheticInput:
    """One leaf of the arguments: an abstract array gets values, anything else is kept."""

    def __init__(
        self,
        leaf: Any,
        seed: int,
        *,
        is_positive: bool,
        limit: int = _INTEGER_LIMIT,
        middle: float = 0.0,
    ) -> None:
        self._leaf = leaf
        self._seed = seed
        self._is_positive = is_positive
        self._limit = limit
        self._middle = middle

    def on_devices(self) -> Any:
        import jax

        if not isinstance(self._leaf, jax.ShapeDtypeStruct):
            return jax.numpy.array(self._leaf) if hasattr(self._leaf, "shape") else self._leaf
        mine, wanted = self._leaf, self._leaf.sharding
        kind = wanted.memory_kind if wanted is not None else None
        # Programs write to device memory; what belongs on the host is copied there.
        is_elsewhere = kind not in (None, "device")
        made = wanted.with_memory_kind(None) if is_elsewhere else wanted
        draw = _drawing(mine.shape, mine.dtype, made, self._is_positive, self._limit, self._middle)
        values = draw(self._seed)
        return jax.device_put(values, wanted) if is_elsewhere else values

    def is_like(self, result: jax.Array) -> bool:
        """Whether a result can replace this input: same shape, type and sharding."""
        mine = self._leaf
        if not hasattr(mine, "shape") or (result.shape, result.dtype) != (mine.shape, mine.dtype):
            return False
        wanted = getattr(mine, "sharding", None)
        return wanted is None or bool(result.sharding.is_equivalent_to(wanted, result.ndim))


@cache
def _drawing(
    shape: tuple[int, ...], dtype: Any, sharding: Any, is_positive: bool, limit: int, middle: float
) -> Callable[[int], jax.Array]:
    """A compiled function from a seed to values; inputs that are alike share it."""
    import jax

    drawn = partial(_drawn, shape, dtype, is_positive, limit, middle)
    return jax.jit(drawn) if sharding is None else jax.jit(drawn, out_shardings=sharding)


def _drawn(
    shape: tuple[int, ...],
    dtype: Any,
    is_positive: bool,
    limit: int,
    middle: float,
    seed: jax.Array,
) -> jax.Array:
    import jax
    import jax.numpy as jnp

    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return jax.random.split(jax.random.key(seed), shape)
    bits = _random_bits(shape, seed)
    if jnp.issubdtype(dtype, jnp.floating):
        # Uniform: only their spread matters, and normal ones take longer to compile.
        share = bits.astype(jnp.float32) / 2.0**32
        return (middle + _LARGEST * (share if is_positive else 2 * share - 1)).astype(dtype)
    if jnp.issubdtype(dtype, jnp.bool_):
        return (bits % 2).astype(dtype)
    if jnp.issubdtype(dtype, jnp.integer):
        largest = jnp.iinfo(dtype).max  # type: ignore[no-untyped-call]
        limit = min(limit, int(largest))
    return (bits % limit).astype(dtype)


def _random_bits(shape: tuple[int, ...], seed: jax.Array) -> jax.Array:
    """32 bits for each element, from a hash of its place.

    `jax.random` would do as well, but takes half a second to compile for every shape.
    """
    import jax
    import jax.numpy as jnp

    stride = 1
    place: jax.Array = jnp.broadcast_to(seed.astype(jnp.uint32) * jnp.uint32(0x9E3779B9), shape)
    for axis in reversed(range(len(shape))):
        along = jax.lax.broadcasted_iota(jnp.uint32, shape, axis)
        place = place + along * jnp.uint32(stride % 2**32)
        stride *= shape[axis]
    for shift, factor in ((16, 0x21F0AAAD), (15, 0xD35A2D97)):
        place = (place ^ (place >> shift)) * jnp.uint32(factor)
    return place ^ (place >> 15)


def synthetic_inputs(
    arguments: Any, recipe: int, limits: Mapping[int, int] | None = None
) -> list[SyntheticInput]:
    """One input for each leaf of the arguments, in flattening order.

    `limits`: how many values an integer may have, by the number of its leaf.
    """
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(arguments)
    paths = [tuple(map(str, path)) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    companions = _companions(paths, leaves)
    positive = {0: set(), 1: companions, 2: set(range(len(leaves)))}[recipe]
    return [
        SyntheticInput(
            leaf,
            number,
            is_positive=number in positive,
            limit=(limits or {}).get(number, _INTEGER_LIMIT),
            middle=1.0 if number not in companions and _is_scale(paths[number]) else 0.0,
        )
        for number, leaf in enumerate(leaves)
    ]


def _is_scale(path: tuple[str, ...]) -> bool:
    """Whether a weight is the scale of a norm, by its name or that of its module."""
    last = "".join(path[-2:])
    return _SCALE.search(last) is not None and "bias" not in path[-1].lower() if path else False


def _companions(paths: Sequence[tuple[str, ...]], leaves: Sequence[Any]) -> set[int]:
    """Leaves of the largest group of subtrees with equal structure, except those of the weights."""
    inside: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, path in enumerate(paths):
        for length in range(len(path) + 1):
            inside[path[:length]].append(number)
    alike: dict[object, list[tuple[str, ...]]] = defaultdict(list)
    for prefix, numbers in inside.items():
        structure = tuple((paths[n][len(prefix) :], _shape_and_type(leaves[n])) for n in numbers)
        alike[structure].append(prefix)
    groups = [prefixes for prefixes in alike.values() if len(prefixes) > 1]
    if not groups:
        return set()
    largest = max(groups, key=lambda prefixes: len(inside[prefixes[0]]))
    weights = next((p for p in largest if "param" in "".join(p).lower()), largest[0])
    return {n for prefix in largest if prefix != weights for n in inside[prefix]}


def _shape_and_type(leaf: Any) -> tuple[tuple[int, ...], str]:
    return tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf)))

"""Synthetic inputs for a function whose argument shapes are known, the same in every process.

    recipe 0   small floats of both signs; small integers, since they may be indices
    recipe 1   of subtrees with the same structure (weights and optimizer moments), only the
               weights keep both signs: optimizers take square roots of the others
    recipe 2   nothing is negative

Recipes are tried in order until the step returns finite numbers: on NaN every program agrees with
every other, and the GPU draws less power.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import jax
    import numpy as np

RECIPES = 3
_SCALE = 0.02
"""standard deviation of floats"""
_INTEGER_LIMIT = 8
_BLOCK = 1_000_003
"""how many values are drawn before they repeat; a prime, so that no two rows are the same"""


class SyntheticInput:
    """One leaf of the arguments: an abstract array gets values, anything else is kept."""

    def __init__(self, leaf: Any, seed: int, *, is_positive: bool) -> None:
        self._leaf = leaf
        self._seed = seed
        self._is_positive = is_positive
        self._values: np.ndarray | None = None

    def on_devices(self) -> Any:
        import jax

        if not isinstance(self._leaf, jax.ShapeDtypeStruct):
            return jax.numpy.array(self._leaf) if hasattr(self._leaf, "shape") else self._leaf
        if self._values is None:
            self._values = self._drawn()
        return jax.device_put(self._values, self._leaf.sharding)

    def is_like(self, result: jax.Array) -> bool:
        """Whether a result can replace this input: same shape, type and sharding."""
        mine = self._leaf
        if not hasattr(mine, "shape") or (result.shape, result.dtype) != (mine.shape, mine.dtype):
            return False
        wanted = getattr(mine, "sharding", None)
        return wanted is None or bool(result.sharding.is_equivalent_to(wanted, result.ndim))

    def _drawn(self) -> np.ndarray:
        import jax
        import numpy as np

        random = np.random.default_rng(self._seed)
        kind = np.dtype(self._leaf.dtype)
        count = min(int(np.prod(self._leaf.shape)), _BLOCK)
        values: Any
        if jax.numpy.issubdtype(kind, jax.numpy.floating):
            values = random.standard_normal(count, np.float32) * _SCALE
            values = np.abs(values) if self._is_positive else values
        else:
            values = random.integers(0, 2 if kind.kind == "b" else _INTEGER_LIMIT, count)
        return np.resize(values.astype(kind), self._leaf.shape)


def synthetic_inputs(arguments: Any, recipe: int) -> list[SyntheticInput]:
    """One input for each leaf of the arguments, in flattening order."""
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(arguments)
    paths = [tuple(map(str, path)) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    positive = {0: set(), 1: _companions(paths, leaves), 2: set(range(len(leaves)))}[recipe]
    return [
        SyntheticInput(leaf, number, is_positive=number in positive)
        for number, leaf in enumerate(leaves)
    ]


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

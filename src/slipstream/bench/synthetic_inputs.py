"""Arguments for a function of which only shapes are known, the same in every process.

    0  weights are small, of both signs; integers are small, for they may index something
    1  of subtrees that are alike (weights, and an optimizer's moments) one keeps both signs:
       roots are taken of the others
    2  nothing is negative

Each is tried until the step gives back numbers: on NaN all programs agree, and chips are cooler.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

WAYS = 3
_SMALL = 0.02
"""the spread of weights"""
_MOST_INTEGER = 8
_BLOCK = 1_000_003
"""so many numbers are drawn, and repeated; a prime, so that no two rows are the same"""


class SyntheticInput:
    """An array for an abstract one; what is no abstract one stays as it is."""

    def __init__(self, leaf: Any, number: int, *, is_positive: bool) -> None:
        self._leaf = leaf
        self._number = number
        self._is_positive = is_positive
        self._values: Any = None

    def on_devices(self) -> Any:
        import jax

        if not isinstance(self._leaf, jax.ShapeDtypeStruct):
            return jax.numpy.array(self._leaf) if hasattr(self._leaf, "shape") else self._leaf
        if self._values is None:
            self._values = self._drawn()
        return jax.device_put(self._values, self._leaf.sharding)

    def is_like(self, result: Any) -> bool:
        """Whether a result can stand in for it."""
        mine = self._leaf
        if not hasattr(mine, "shape") or (result.shape, result.dtype) != (mine.shape, mine.dtype):
            return False
        wanted = getattr(mine, "sharding", None)
        return wanted is None or bool(result.sharding.is_equivalent_to(wanted, result.ndim))

    def _drawn(self) -> Any:
        import jax
        import numpy as np

        random = np.random.default_rng(self._number)
        kind = np.dtype(self._leaf.dtype)
        count = min(int(np.prod(self._leaf.shape)), _BLOCK)
        values: Any
        if jax.numpy.issubdtype(kind, jax.numpy.floating):
            values = random.standard_normal(count, np.float32) * _SMALL
            values = np.abs(values) if self._is_positive else values
        else:
            values = random.integers(0, 2 if kind.kind == "b" else _MOST_INTEGER, count)
        return np.resize(values.astype(kind), self._leaf.shape)


def synthetic_inputs(arguments: Any, way: int) -> list[SyntheticInput]:
    """An array for each leaf, in the order of the leaves."""
    import jax

    found, _ = jax.tree_util.tree_flatten_with_path(arguments)
    paths = [tuple(map(str, path)) for path, _ in found]
    leaves = [leaf for _, leaf in found]
    positive = {0: set(), 1: _companions(paths, leaves), 2: set(range(len(leaves)))}[way]
    return [
        SyntheticInput(leaf, number, is_positive=number in positive)
        for number, leaf in enumerate(leaves)
    ]


def _companions(paths: Sequence[tuple[str, ...]], leaves: Sequence[Any]) -> set[int]:
    """Leaves of subtrees that look like another one, the largest such: all but the weights'."""
    inside: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for number, path in enumerate(paths):
        for length in range(len(path) + 1):
            inside[path[:length]].append(number)
    alike: dict[Any, list[tuple[str, ...]]] = defaultdict(list)
    for prefix, numbers in inside.items():
        look = tuple((paths[n][len(prefix) :], _look(leaves[n])) for n in numbers)
        alike[look].append(prefix)
    groups = [prefixes for prefixes in alike.values() if len(prefixes) > 1]
    if not groups:
        return set()
    largest = max(groups, key=lambda prefixes: len(inside[prefixes[0]]))
    weights = next((p for p in largest if "param" in "".join(p).lower()), largest[0])
    return {n for prefix in largest if prefix != weights for n in inside[prefix]}


def _look(leaf: Any) -> tuple[Any, ...]:
    return tuple(getattr(leaf, "shape", ())), str(getattr(leaf, "dtype", type(leaf)))

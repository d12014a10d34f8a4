"""Weights from parameter trees: nested mappings, sequences and dataclasses of arrays.

jax is not imported: an array is anything with a shape and a dtype, or a shape alone.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from slipstream.errors import BadInput
from slipstream.flags.thresholds.weights import Weight, with_layers
from slipstream.profile.shapes import BITS

_WORDS = {"float": "f", "uint": "u", "int": "s", "bfloat": "bf", "bool": "pred", "complex": "c"}


@dataclass(frozen=True)
class Sharding:
    """The mesh's axes and sizes, and the axes that weights are gathered over."""

    mesh: Mapping[str, int]
    gathered_over: frozenset[str]


def weights_of_tree(
    tree: Any,
    dtype: str = "bfloat16",
    layers: int | None = None,
    specs: Any = None,
    sharding: Sharding | None = None,
) -> list[Weight]:
    """The arrays of a parameter tree; `dtype` is the type of shapes without one."""
    weights = [_weight(path, leaf, dtype) for path, leaf in _leaves(tree, ())]
    if not weights:
        raise BadInput(
            "the parameter tree has no arrays; expected a nested dict or list of objects with a "
            "shape and a dtype, such as the result of jax.eval_shape(init, key)"
        )
    weights = _stacked(weights, layers)
    if specs is not None and sharding is not None:
        weights = [_sharded(weight, specs, sharding) for weight in weights]
    return with_layers(weights)


def _leaves(tree: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if tree is None:
        return
    if _is_shape(tree) or hasattr(tree, "shape") and hasattr(tree, "dtype"):
        yield path, tree
        return
    children = _children(tree)
    if children is None:
        raise BadInput(
            f"{'.'.join(path) or 'the tree'} is a {type(tree).__name__}; expected a dict, a list, "
            "a dataclass, or something with a shape and a dtype"
        )
    for key, child in children:
        yield from _leaves(child, (*path, key))


def _children(tree: Any) -> Iterable[tuple[str, Any]] | None:
    if isinstance(tree, Mapping):
        return [(str(key), child) for key, child in tree.items()]
    names = getattr(tree, "_fields", None)
    if isinstance(tree, tuple) and names is not None:
        return list(zip(names, tree, strict=True))
    if isinstance(tree, list | tuple):
        return [(str(place), child) for place, child in enumerate(tree)]
    if dataclasses.is_dataclass(tree):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def _is_shape(value: Any) -> bool:
    is_sequence = isinstance(value, list | tuple) and len(value) > 0
    return is_sequence and all(isinstance(size, int) for size in value)


def _weight(path: tuple[str, ...], leaf: Any, dtype: str) -> Weight:
    shape = tuple(leaf if _is_shape(leaf) else leaf.shape)
    bits = _bits(dtype if _is_shape(leaf) else leaf.dtype, path)
    size = math.prod(shape)
    return Weight(path, shape, size, (size * bits + 7) // 8)


def _bits(dtype: Any, path: tuple[str, ...]) -> int:
    if isinstance(getattr(dtype, "itemsize", None), int):
        return 8 * int(dtype.itemsize)
    name = getattr(dtype, "__name__", str(dtype))
    stem = name.rstrip("0123456789")
    short = _WORDS.get(stem, stem) + name[len(stem) :]
    if short not in BITS:
        raise BadInput(
            f"{'.'.join(path) or 'an array'} has the type {name!r}; expected one such as "
            "bfloat16, float32 or int8"
        )
    return BITS[short]


def _stacked(weights: list[Weight], layers: int | None) -> list[Weight]:
    """Mark weights that contain all layers, with the number of layers.

    If the number of layers is given, an array with such a dimension is stacked.  Otherwise, a
    subtree is stacked if all its arrays have the same first dimension and some have three.
    """
    if layers is not None:
        if layers < 1:
            raise BadInput(f"layers is {layers}; expected 1 or more")
        return [
            replace(w, stacked=layers if len(w.shape) > 1 and layers in w.shape[:2] else 1)
            for w in weights
        ]
    found = list(weights)
    for prefix in _prefixes(weights):
        inside = [w for w in found if w.path[: len(prefix)] == prefix]
        first = {w.shape[0] if w.shape else 0 for w in inside}
        is_stack = len(inside) > 1 and len(first) == 1 and min(first) > 1
        if is_stack and max(len(w.shape) for w in inside) > 2:
            found = [replace(w, stacked=w.shape[0]) if w in inside else w for w in found]
    return found


def _prefixes(weights: Sequence[Weight]) -> list[tuple[str, ...]]:
    """All subtrees, outermost first, except those in numbered layers."""
    numbered = {w.path for w in with_layers(weights) if w.layer}
    paths = [w.path for w in weights if w.path not in numbered]
    prefixes = {path[:depth] for path in paths for depth in range(len(path))}
    return sorted(prefixes, key=lambda prefix: (len(prefix), prefix))


def _sharded(weight: Weight, specs: Any, sharding: Sharding) -> Weight:
    """A weight as one device has it once gathered, and the dimension it is gathered along."""
    cut, dimension = 1, None
    for place, entry in enumerate(_spec_at(specs, weight.path)):
        axes = (entry,) if isinstance(entry, str) else tuple(entry or ())
        for axis in axes:
            if axis in sharding.gathered_over:
                dimension = place
            elif axis in sharding.mesh:
                cut *= sharding.mesh[axis]
    return replace(
        weight,
        elements=weight.elements // cut,
        bytes=weight.bytes // cut,
        is_gathered=dimension is not None,
        groups=" ".join(sorted(sharding.gathered_over)),
        dimension=dimension,
    )


def _spec_at(specs: Any, path: tuple[str, ...]) -> tuple[Any, ...]:
    """The spec at a path; a spec applies to everything below it."""
    at = specs
    for key in path:
        children = _children(at)
        entries = dict(children) if children is not None else {}
        if key not in entries or _is_spec(at):
            break
        at = entries[key]
    return tuple(at) if _is_spec(at) else ()


def _is_spec(value: Any) -> bool:
    """`("data", None)` or a PartitionSpec: names of axes, tuples of them, None."""
    if isinstance(value, Mapping) or not isinstance(value, Iterable) or isinstance(value, str):
        return False
    return all(
        entry is None
        or isinstance(entry, str)
        or isinstance(entry, tuple)
        and all(isinstance(axis, str) for axis in entry)
        for entry in value
    )

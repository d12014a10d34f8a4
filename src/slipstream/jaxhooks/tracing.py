"""What JAX knows about a function that it has traced, or only jitted."""

from __future__ import annotations

from typing import Any

from slipstream.jaxhooks import private_api


def without_dead_code(jaxpr: Any) -> Any:
    """A jaxpr without equations that no result needs, also in loops; it keeps its arguments."""
    remove = private_api.DCE_JAXPR.get()
    smaller, _ = remove(jaxpr, [True] * len(jaxpr.outvars), instantiate=True)
    return smaller


def argument_shardings(function: Any, arguments: tuple[Any, ...]) -> tuple[list[Any], list[Any]]:
    """The leaves of a function's arguments, and the sharding of each; None if XLA chooses it."""
    import jax

    tree: Any
    leaves, tree = jax.tree.flatten(arguments)
    # Arrays are on devices of this process.
    own = [leaf.sharding if isinstance(leaf, jax.ShapeDtypeStruct) else None for leaf in leaves]
    if not isinstance(function, private_api.JIT_FUNCTION.get()):
        return leaves, own
    info = private_api.JIT_INFO.of(private_api.JIT_FUNCTION.of(function)._jit_info)
    stated = jax.tree.unflatten(info.in_shardings_treedef, info.in_shardings_leaves)
    try:
        found = tree.flatten_up_to(jax.tree.broadcast(stated, arguments, is_leaf=_is_whole))
    except ValueError:  # static arguments have no sharding
        return leaves, own
    return leaves, [
        one if isinstance(one, jax.sharding.Sharding) else other
        for one, other in zip(found, own, strict=True)
    ]


def _is_whole(value: Any) -> bool:
    import jax

    return value is None or isinstance(value, jax.sharding.Sharding)

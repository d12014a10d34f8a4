"""How large the integers among a function's arguments may be: the size of what they index.

    tokens ─► reshape ─► … ─► gather(embedding, ·)      tokens < rows of the embedding

A model that sees eight different words is another one: rows of its activations are alike, so the
GPU draws less power and runs at a higher clock, and its experts are not balanced.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

Sources = frozenset[int]
"""numbers of the arguments that a value comes from"""
_NOTHING: Sources = frozenset()


def index_limits(jaxpr: Any) -> dict[int, int]:
    """By the number of an argument, how many values it may have if it is used as an index.

    `jaxpr` has one variable for each leaf of the arguments. Empty if it can't be analysed.
    """
    found: dict[int, int] = {}
    plain = getattr(jaxpr, "jaxpr", jaxpr)
    inputs = [
        frozenset({number}) if _is_integer(one.aval) else _NOTHING
        for number, one in enumerate(plain.invars)
    ]
    try:
        _walk(plain, inputs, found)
    except (KeyError, AttributeError, TypeError, ValueError, IndexError):
        # Versions of JAX write jaxprs differently. Without limits, integers are small.
        print("the trace could not be analysed, so integers are small:", file=sys.stderr)
        traceback.print_exc()
        return {}
    return found


def _walk(jaxpr: Any, inputs: Sequence[Sources], found: dict[int, int]) -> list[Sources]:
    """Follow integers through a program; returns where its results come from."""
    known: dict[Any, Sources] = dict(zip(jaxpr.invars, inputs, strict=True))
    for equation in jaxpr.eqns:
        sources = [_of(known, one) for one in equation.invars]
        if any(sources):
            results = _followed(equation, sources, found)
            known |= zip(equation.outvars, results, strict=True)
    return [_of(known, one) for one in jaxpr.outvars]


def _followed(equation: Any, sources: list[Sources], found: dict[int, int]) -> list[Sources]:
    name, parameters = equation.primitive.name, equation.params
    if name == "gather" or name.startswith("scatter"):
        numbers = parameters["dimension_numbers"]
        indexed = getattr(numbers, "start_index_map", None)
        if indexed is None:
            indexed = numbers.scatter_dims_to_operand_dims
        shape = equation.invars[0].aval.shape
        # Of several dimensions, all but the largest are usually indexed by counters.
        limit = max((shape[axis] for axis in indexed), default=0)
        for number in sources[1] if limit else ():
            found[number] = min(limit, found.get(number, limit))
        return [sources[0]] * len(equation.outvars)
    inner = _inner(parameters, len(sources))
    if inner is not None:
        results = _walk(inner, sources, found)
        if len(results) == len(equation.outvars):
            return results
    every = frozenset[int]().union(*sources)
    return [every if _is_integer(one.aval) else _NOTHING for one in equation.outvars]


def _inner(parameters: Mapping[str, Any], count: int) -> Any:
    """The program that an equation calls with its own arguments, if it does."""
    for name in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        called = parameters.get(name)
        called = getattr(called, "jaxpr", called)
        if called is not None and len(called.invars) == count:
            return called
    return None


def _of(known: Mapping[Any, Sources], value: Any) -> Sources:
    # Literals have no hash in some versions of JAX.
    return _NOTHING if hasattr(value, "val") else known.get(value, _NOTHING)


def _is_integer(aval: Any) -> bool:
    import jax.numpy as jnp

    dtype = getattr(aval, "dtype", None)
    return dtype is not None and bool(jnp.issubdtype(dtype, jnp.integer))

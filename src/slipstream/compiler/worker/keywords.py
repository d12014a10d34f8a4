"""Keyword arguments of a target's function: the types that its signature states, and their values.

Requests are JSON, which has no enums, so a member is sent by its name:

    Remat.FULL ──as_json──► "FULL" ──request──► typed_keywords(build, …) ──► build(remat=Remat.FULL)
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Union, get_args, get_origin

_UNRESOLVED = (NameError, AttributeError, ImportError, SyntaxError, TypeError)
"""what evaluating an annotation raises if it is meant for type checkers only"""


def typed_keywords(function: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments from JSON, as the types that the function's signature states."""
    types_by_name = parameter_types(function)
    return {
        name: _typed(value, types_by_name[name]) if name in types_by_name else value
        for name, value in keywords.items()
    }


def parameter_types(function: Any) -> dict[str, Any]:
    """The annotations of a function, also those written as text; not those without a meaning.

    Without an annotation, a default that is a member of an enum tells the type.
    """
    found = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.annotation is parameter.empty:
            if isinstance(parameter.default, enum.Enum):
                found[name] = type(parameter.default)
        else:
            try:
                found[name] = _resolved(parameter.annotation, function)
            except _UNRESOLVED:
                continue
    return found


def alternatives(annotation: Any) -> list[Any]:
    """The members of a union, or the annotation itself."""
    if type(annotation).__name__ == "TypeAliasType":  # `type X = …`, from Python 3.12 on
        return alternatives(annotation.__value__)
    if get_origin(annotation) in (Union, types.UnionType):
        return [one for member in get_args(annotation) for one in alternatives(member)]
    if get_origin(annotation) is Annotated:
        inner, *notes = get_args(annotation)
        return [one if one is type(None) else Annotated[one, *notes] for one in alternatives(inner)]
    return [annotation]


def listed_values(annotation: Any) -> tuple[Any, ...] | None:
    """All values of a type that has only a few; None for any other type."""
    if get_origin(annotation) is Annotated:
        return listed_values(get_args(annotation)[0])
    if annotation is bool:
        return (False, True)
    if annotation is type(None):
        return (None,)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return tuple(annotation)
    return get_args(annotation) if get_origin(annotation) is Literal else None


def as_json(value: Any) -> Any:
    """A value as JSON has it: a member of an enum by its name, everything else as it is."""
    return value.name if isinstance(value, enum.Enum) else value


def _typed(value: Any, annotation: Any) -> Any:
    values = [one for kind in alternatives(annotation) for one in listed_values(kind) or ()]
    same = (one for one in values if type(as_json(one)) is type(value) and as_json(one) == value)
    return next(same, value)


def _resolved(annotation: Any, function: Any) -> Any:
    while isinstance(function, functools.partial):
        function = function.func
    names = getattr(inspect.unwrap(function), "__globals__", {})
    # One at a time: one that can't be evaluated must not hide the others.
    holder = types.SimpleNamespace(__annotations__={"it": annotation})
    return typing.get_type_hints(holder, globalns=names, include_extras=True)["it"]

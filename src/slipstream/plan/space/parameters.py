"""The parameters of a build function, and what their types let vary.

    Literal["none", "full"], an enum, bool      the values that the type lists
    Range[1, 64]                                powers of two, both ends and the default
    Divisor                                     divisors of the number of devices
    Divisor[1, 2, 4, 8]                         those of these sizes that divide it
    X | None                                    the values of X, and None
    anything else                               no choice: the default, unless `--vary` has values

A build function's module may need jax, so `read_parameters` imports it in another process, like
the compiler.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from slipstream.compiler.failures import explain_import
from slipstream.compiler.targets import Target
from slipstream.compiler.worker.keywords import (
    alternatives,
    as_json,
    listed_values,
    parameter_types,
)
from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess
from slipstream.errors import BadInput
from slipstream.plan.space.annotations import Divisor, DivisorOfDevices, Range

Value = int | float | str | bool | None
"""a value as JSON has it; a member of an enum is its name"""
GIVEN = ("devices", "mesh")
"""what Slipstream passes itself"""
PLAIN = (int, float, str)
SCALAR = (*PLAIN, type(None))
_WORKER = "slipstream.plan.space.signature_worker"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a build function."""

    name: str
    kind: str
    """`values`, `range`, `divisor`; `int`, `float` or `str`, which can have any value; `any` if
    nothing says its type; `other` if only Python can make its values"""
    type_text: str = ""
    """its annotation; empty if it has none"""
    values: tuple[Value, ...] = ()
    """the values that its type lists, or to try; empty for all divisors"""
    low: int = 0
    high: int = 0
    default: Value = None
    has_default: bool = False
    varies: bool = False
    """whether its type makes it a choice"""
    enum: str = ""
    """the class, if its values are members of an enum"""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Parameter:
        return Parameter(**{**data, "values": tuple(data["values"])})


def read_parameters(target: Target) -> tuple[Parameter, ...]:
    """The parameters of a Python target's function; its module is imported in another process."""
    if target.kind != "python":
        raise BadInput(
            f"{target.label} is a program, and nothing in it can vary; expected FILE.py:FUNCTION"
        )
    worker = WorkerProcess("", module=_WORKER)
    try:
        answer, _ = worker.ask("parameters", module=target.module, function=target.function)
    except WorkerFailed as failed:
        raise explain_import(failed, target) from None
    finally:
        worker.close()
    return tuple(map(Parameter.from_json, answer["parameters"]))


def parameters_of(build: Any) -> tuple[Parameter, ...]:
    """The parameters of a function that can be passed by name."""
    types = parameter_types(build)
    found = []
    for name, one in inspect.signature(build).parameters.items():
        if one.kind is one.POSITIONAL_ONLY and one.default is one.empty:
            raise BadInput(f"{name} can't be passed by its name; remove the / behind it")
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY) and name not in GIVEN:
            found.append(_parameter(one, types.get(name)))
    return tuple(found)


def _parameter(one: inspect.Parameter, annotation: Any) -> Parameter:
    has_default = one.default is not one.empty
    default = as_json(one.default) if has_default else None
    if one.annotation is one.empty:
        found = _by_default(one.name, one.default)
    elif annotation is None:
        found = Parameter(one.name, "other")  # a type for type checkers only
    else:
        found = _by_type(one.name, annotation, default, has_default)
    return replace(
        found,
        type_text=_text(one.annotation),
        enum=_enum(one.default, annotation),
        default=default if isinstance(default, SCALAR) else None,
        has_default=has_default,
    )


def _by_default(name: str, default: Any) -> Parameter:
    """A parameter without an annotation: its default tells what else it can be."""
    if default is None or default is inspect.Parameter.empty:
        return Parameter(name, "any", values=(None,))
    values = listed_values(type(default))
    if values is not None:
        return Parameter(name, "values", values=tuple(map(as_json, values)))
    plain = next((kind.__name__ for kind in PLAIN if isinstance(default, kind)), "other")
    return Parameter(name, plain)


def _by_type(name: str, annotation: Any, default: Any, has_default: bool) -> Parameter:
    kind, listed, limits = _read(name, annotation)
    if has_default and default is None and None not in listed:
        listed.append(None)  # `remat: Literal["full"] = None` means `| None`
    varies = kind in ("values", "range", "divisor")
    if varies and has_default:
        _check_default(name, kind, default, listed, limits)
        if kind == "range" and default not in listed:
            listed = sorted([*listed, default], key=lambda value: (value is None, value))
    if kind == "divisor":
        listed = [size for size in listed if type(size) is int]  # None is no size of an axis
    return Parameter(name, kind, "", tuple(listed), limits.low, limits.high, varies=varies)


def _read(name: str, annotation: Any) -> tuple[str, list[Any], Range]:
    """The kind of an annotation, the values that it lists, and its limits."""
    kinds: list[str] = []
    listed: list[Any] = []
    limits = Range(0, 0)
    for one in alternatives(annotation):
        mark = _mark(one)
        if isinstance(mark, Range):
            kinds.append("range")
            listed += mark.values
            limits = mark
        elif mark is not None:
            kinds.append("divisor")
            listed += mark.sizes
        elif one is Range:
            raise BadInput(f"{name}: Range has no ends; write Range[1, 64], with yours")
        elif (values := listed_values(one)) is not None:
            listed += map(as_json, values)
        else:
            plain = getattr(one, "__origin__", one)  # without its notes, if it is Annotated
            kinds.append(plain.__name__ if plain in PLAIN else "other")
    if not kinds and any(value is not None for value in listed):
        kinds.append("values")
    is_known = len(kinds) == 1 and all(isinstance(value, SCALAR) for value in listed)
    return kinds[0] if is_known else "other", listed, limits


def _mark(annotation: Any) -> Range | DivisorOfDevices | None:
    """What this package's annotations say of a parameter."""
    if annotation is Divisor:
        return DivisorOfDevices()
    notes = getattr(annotation, "__metadata__", ())
    return next((one for one in notes if isinstance(one, (Range, DivisorOfDevices))), None)


def _check_default(name: str, kind: str, default: Any, listed: list[Any], limits: Range) -> None:
    is_int = type(default) is int
    if default in listed or default is None:
        return
    if kind == "divisor" and not (is_int and default > 0):
        expected = "a positive number of devices"
    elif kind == "range" and not (is_int and limits.low <= default <= limits.high):
        expected = f"a whole number from {limits.low} to {limits.high}"
    elif kind == "values" or (kind == "divisor" and listed):
        expected = "one of " + ", ".join(map(str, listed))
    else:
        return
    raise BadInput(f"{name} has the default {default!r}; its type says {expected}: change either")


def _enum(default: Any, annotation: Any) -> str:
    """`Attention`, where a call needs `Attention.cudnn`."""
    kinds = alternatives(annotation) if annotation is not None else ()
    values = [*(value for kind in kinds for value in listed_values(kind) or ()), default]
    return next((type(one).__name__ for one in values if isinstance(one, Enum)), "")


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if (mark := _mark(annotation)) is not None:
        return str(mark)
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)

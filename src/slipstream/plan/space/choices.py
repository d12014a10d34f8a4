"""What may vary: the choices of a build function's signature, and those of `--vary`.

signature ──► Parameter ──┬──► Choice, with the values to try
--vary tensor=1,2 ────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput
from slipstream.plan.space.parameters import Parameter, Value

_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
_HOW = (
    "annotate a keyword parameter with Literal[…], an enum, bool, slipstream.Range[1, 64] or "
    "slipstream.Divisor, or give it values: --vary NAME=VALUE,VALUE"
)


@dataclass(frozen=True)
class Choice:
    """One argument of the build function, and the values to try."""

    name: str
    values: tuple[Value, ...]
    """in the order to try; empty for all divisors of the number of devices"""
    is_divisor: bool = False
    default: Value = None
    has_default: bool = False
    enum: str = ""
    """the class, if its values are names of the members of an enum"""

    def values_on(self, devices: int) -> tuple[Value, ...]:
        """The values to try with a number of devices; those of `--vary` need not divide it."""
        if self.is_divisor and not self.values:
            return tuple(n for n in range(1, devices + 1) if devices % n == 0)
        return self.values


def choices_of(
    label: str, parameters: Sequence[Parameter], vary: Iterable[str] = ()
) -> tuple[Choice, ...]:
    """The choices of a build function, as `--vary NAME=VALUE,VALUE` narrows or adds to them.

    `label` names the function in messages. The order is that of the signature.
    """
    given = _given(label, parameters, vary)
    for one in parameters:
        if not one.has_default and not one.varies and one.name not in given:
            kind = one.type_text or "no type"
            raise BadInput(
                f"{label} needs a value for {one.name} ({kind}), which has no default and no type "
                f"that lists values; expected either: {_HOW.replace('NAME', one.name)}"
            )
    found = tuple(
        Choice(
            one.name,
            given.get(one.name, one.values),
            one.kind == "divisor",
            one.default,
            one.has_default,
            one.enum,
        )
        for one in parameters
        if one.varies or one.name in given
    )
    if not found:
        names = ", ".join(one.name for one in parameters) or "nothing but devices"
        raise BadInput(f"{label} has nothing that may vary (it takes {names}); {_HOW}")
    return found


def _given(
    label: str, parameters: Sequence[Parameter], vary: Iterable[str]
) -> Mapping[str, tuple[Value, ...]]:
    by_name = {one.name: one for one in parameters}
    found: dict[str, tuple[Value, ...]] = {}
    for text in vary:
        name, equals, listed = (part.strip() for part in text.partition("="))
        texts = [one.strip() for one in listed.split(",")]
        if not name or not equals or not all(texts):
            raise BadInput(f"--vary {text!r} is incomplete; expected NAME=VALUE,VALUE")
        if name not in by_name:
            if not by_name:
                raise BadInput(f"--vary {text!r}: {label} takes no argument but devices")
            raise BadInput(f"--vary {text!r}: {no_such('argument', name, by_name)}")
        if name in found:
            raise BadInput(f"--vary names {name} twice; give it once, with all its values")
        values = (parse_value(by_name[name], one) for one in texts)
        # By type too: 1 and True are equal.
        found[name] = tuple({(type(value), value): value for value in values}.values())
    return found


def parse_value(parameter: Parameter, text: str) -> Value:
    """A value as written on a command line; BadInput if the parameter's type does not allow it."""
    spellings = {str(value): value for value in reversed(parameter.values)}
    if text in spellings:
        return spellings[text]
    found = _PARSERS[parameter.kind](parameter, text)
    if found is None:
        raise BadInput(
            f"--vary {parameter.name}: {text!r} is not a value of {parameter.type_text or 'it'}; "
            f"expected {_expected(parameter)}"
        )
    return found


def _listed(parameter: Parameter, text: str) -> Value:
    """A value of the type's own in another case, or another spelling of a boolean."""
    by_case = {str(value).lower(): value for value in parameter.values if value is not None}
    flag = _BOOLEANS.get(text.lower())
    booleans = [value for value in parameter.values if isinstance(value, bool)]
    return by_case.get(text.lower(), flag if flag in booleans else None)


def _int(parameter: Parameter, text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _in_range(parameter: Parameter, text: str) -> int | None:
    found = _int(parameter, text)
    return found if found is not None and parameter.low <= found <= parameter.high else None


def _positive(parameter: Parameter, text: str) -> int | None:
    found = _int(parameter, text)
    return found if found is not None and found > 0 else None


def _float(parameter: Parameter, text: str) -> float | None:
    try:
        return found if isfinite(found := float(text)) else None
    except ValueError:
        return None


def _any(parameter: Parameter, text: str) -> Value:
    """A value for a parameter whose type nothing states: a number, a boolean, or text."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    readings = (_int(parameter, text), _float(parameter, text))
    return next((number for number in readings if number is not None), text)


_PARSERS: dict[str, Callable[[Parameter, str], Value]] = {
    "values": _listed,
    "range": _in_range,
    "divisor": _positive,
    "int": _int,
    "float": _float,
    "str": lambda parameter, text: text,
    "any": _any,
    "other": lambda parameter, text: None,
}


def _expected(parameter: Parameter) -> str:
    return {
        "values": "one of " + ", ".join(map(str, parameter.values)),
        "range": f"a whole number from {parameter.low} to {parameter.high}",
        "divisor": "a divisor of the number of devices",
        "int": "a whole number",
        "float": "a number",
        "other": "a type that can be written here: int, float, str, bool, Literal[…] or an enum",
    }[parameter.kind]

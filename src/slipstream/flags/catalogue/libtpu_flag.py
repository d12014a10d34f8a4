"""One flag of libtpu, and which values it takes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SWITCH = {
    **dict.fromkeys(("true", "t", "yes", "y", "1"), "true"),
    **dict.fromkeys(("false", "f", "no", "n", "0"), "false"),
}
"""what Abseil reads as a bool, in any case"""
_MEANT = {"1": "true", "0": "false", "yes": "true", "no": "false", "on": "true", "off": "false"}
_INTEGER = re.compile(r"[+-]?(0[xX][0-9a-fA-F]+|\d+)")
_FLOAT = re.compile(
    r"[+-]?(\d+\.?\d*([eE][+-]?\d+)?|\.\d+([eE][+-]?\d+)?|0[xX][0-9a-fA-F]+|inf(inity)?|nan)", re.I
)
_DURATION = re.compile(
    r"[+-]?(0|inf|(\d+\.?\d*|\.\d+)(ns|us|ms|s|m|h)((\d+\.?\d*)(ns|us|ms|s|m|h))*)"
)
ENUMS = ("enum", "enum in any case", "enum or number")
"""exactly one of the words; in any case; in upper or lower case, or its number"""
_EXPECTED = {
    "bool": "true or false",
    "float": "a number",
    "duration": "a duration such as 10s or 1h30m",
}


@dataclass(frozen=True)
class LibtpuFlag:
    """One flag, as one libtpu has it."""

    name: str
    kind: str
    """bool, int32, int64, uint32, uint64, float, duration or one of `ENUMS`, each optionally
    followed by ` or auto` or ` or empty`; string; message (a proto in text format); or other, a
    type whose values aren't known"""
    default: str
    """`auto`: libtpu decides, by the chip and the program"""
    words: tuple[str, ...] = ()
    """the values of an enum"""
    in_compiler_options: bool = False
    """whether `jit(…, compiler_options={…})` accepts it too"""

    @property
    def is_switch(self) -> bool:
        """Whether `--name` and `--noname` are enough."""
        return self.kind == "bool"

    @property
    def short_kind(self) -> str:
        """The kind without how the words of an enum may be written."""
        return self.kind.replace(" in any case", "").replace(" or number", "")

    @property
    def expected(self) -> str:
        """What a value must be, in words."""
        base, *also = self.kind.split(" or ")
        if base.startswith("enum"):
            return "one of " + ", ".join([*self.words, *(word for word in also if word == "auto")])
        integer = re.fullmatch(r"(u?)int\d+", base)
        text = _EXPECTED.get(base, base)
        if integer is not None:
            text = "a whole number from 0 on" if integer[1] else "a whole number"
        return " or ".join([text, *("nothing" if word == "empty" else word for word in also)])

    def accepts(self, value: str) -> bool:
        """Whether libtpu accepts `--name=value`; True for types whose values aren't known."""
        base, *also = self.kind.split(" or ")
        if value == "auto" and "auto" in also or not value and "empty" in also:
            return True
        if base.startswith("enum"):
            return self._has_word(value) or "number" in also and _is_number(value, len(self.words))
        check = _CHECKS.get(base)
        return True if check is None else check(value.strip())

    def normalized(self, value: str) -> str:
        """A value in canonical form, so that different spellings compare equal."""
        text = value.strip().lower()
        base = self.kind.split(" or ")[0]
        if base == "bool":
            return SWITCH.get(text, text)
        if base.startswith("enum"):
            return {"enabled": "true", "disabled": "false"}.get(text, text)
        if _INTEGER.fullmatch(text) and "int" in base:
            return str(_number(text))
        return str(float(text)) if base == "float" and _FLOAT.fullmatch(text) else value

    def meant(self, value: str) -> str | None:
        """The value that was probably meant; None if it is unclear."""
        text = value.strip().strip("'\"")
        # XLA's documentation gives the C++ names of values: kEnabled, kAuto, kBrkga.
        words = [text, text.lower(), text.removeprefix("k").lower(), _MEANT.get(text.lower(), "")]
        return next((word for word in words if word and self.accepts(word)), None)

    def _has_word(self, value: str) -> bool:
        if self.kind.startswith("enum in any case"):
            return value.lower() in (word.lower() for word in self.words)
        is_either = "number" in self.kind
        return value in self.words or is_either and value in (word.lower() for word in self.words)

    def row(self) -> list[Any]:
        """Everything but the name, as stored in files."""
        return [self.kind, self.default, list(self.words), self.in_compiler_options]

    @staticmethod
    def from_row(name: str, row: Sequence[Any]) -> LibtpuFlag:
        """The inverse of `row`."""
        kind, default, words, in_compiler_options = row
        return LibtpuFlag(name, kind, default, tuple(words), in_compiler_options)


def _integer(least: int, most: int) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        return _INTEGER.fullmatch(value) is not None and least <= _number(value) <= most

    return check


def _is_number(value: str, count: int) -> bool:
    """Whether this is the number of one of so many words."""
    return _INTEGER.fullmatch(value.strip()) is not None and 0 <= _number(value) < count


def _number(value: str) -> int:
    return int(value, 16) if "x" in value.lower() else int(value)


_CHECKS: dict[str, Callable[[str], bool]] = {
    "bool": lambda value: value.lower() in SWITCH,
    "int32": _integer(-(2**31), 2**31 - 1),
    "int64": _integer(-(2**63), 2**63 - 1),
    "uint16": _integer(0, 2**16 - 1),
    "uint32": _integer(0, 2**32 - 1),
    "uint64": _integer(0, 2**64 - 1),
    "float": lambda value: _FLOAT.fullmatch(value) is not None,
    "duration": lambda value: _DURATION.fullmatch(value) is not None,
}

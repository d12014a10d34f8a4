"""The grammars of flag values: one for each way in which XLA parses a value.

switch    no value, true, False, 1, 0     words        one of a list of words
int32     1  +3  -1  007                  list         A,B
float     1.5  1e9  0x10  inf  nan        signed list  A,B or +A,-B, which changes the default
duration  10s  1h30m  inf  0              minus list   A,B with _ and - ignored
fuel      pass=10,other=3                 number       a number or a word (compile options)
ranges    1,4:7                           numbers      those, separated by commas
text      anything
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_BLANK = r"[ \t\n\v\f\r]*"
_INTEGER = re.compile(rf"{_BLANK}[+-]?[0-9]+{_BLANK}")
_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_FLOAT = re.compile(
    rf"{_BLANK}[+-]?(?:inf(?:inity)?|nan(?:\([a-z0-9_]*\))?|{_DECIMAL}(?:e[+-]?[0-9]+)?"
    rf"|0x(?:[0-9a-f]+\.?[0-9a-f]*|\.[0-9a-f]+)(?:p[+-]?[0-9]+)?){_BLANK}",
    re.I,
)
_DURATION = re.compile(rf"[+-]?(?:0|inf|(?:{_DECIMAL}(?:ns|us|ms|s|m|h))+)")
_SWITCH = ("true", "false", "1", "0")


@dataclass(frozen=True)
class Grammar:
    """The values that one flag accepts."""

    form: str
    words: tuple[str, ...] = ()
    any_case: bool = False
    """whether the case of words is ignored"""
    least: int | None = None
    """the smallest number, if larger than the type's"""
    is_empty_fine: bool = False

    def accepts(self, value: str | None) -> bool:
        """Whether XLA accepts a value; None is a flag without `=`."""
        if value is None:
            return self.form == "switch"
        return _FORMS[self.form](self, value)

    def expected(self) -> str:
        """What is accepted, for an error message."""
        if self.words:
            return "one of " + ", ".join(self.words)
        if self.form in RANGES:
            least = RANGES[self.form][0] if self.least is None else self.least
            return "an integer in digits" + (f", {least} or more" if self.least else "")
        return _EXPECTED.get(self.form, "another value")

    def has_word(self, word: str) -> bool:
        """Whether this is one of the words, correctly spelt."""
        return word in self.words or (
            self.any_case and word.lower() in (known.lower() for known in self.words)
        )

    def row(self) -> Any:
        """As stored in the data file: the form alone, or with its parameters."""
        extra = {
            "words": list(self.words),
            "any_case": self.any_case,
            "least": self.least,
            "is_empty_fine": self.is_empty_fine,
        }
        given = {key: value for key, value in extra.items() if value not in ([], False, None)}
        return {"form": self.form, **given} if given else self.form

    @staticmethod
    def from_row(row: Any) -> Grammar:
        """The inverse of `row`."""
        if isinstance(row, str):
            return Grammar(row)
        return Grammar(**{**row, "words": tuple(row.get("words", ()))})


def _is_switch(grammar: Grammar, value: str) -> bool:
    return value.lower() in _SWITCH


def _is_word(grammar: Grammar, value: str) -> bool:
    return grammar.has_word(value) if value else grammar.is_empty_fine


def _is_integer(grammar: Grammar, value: str) -> bool:
    if _INTEGER.fullmatch(value) is None:
        return False
    least, most = RANGES[grammar.form]
    return (least if grammar.least is None else grammar.least) <= int(value) <= most


def _is_number_or_word(grammar: Grammar, value: str) -> bool:
    return grammar.has_word(value) or _is_integer(Grammar("int32"), value)


def _is_number_or_words(grammar: Grammar, value: str) -> bool:
    return not value or all(_is_number_or_word(grammar, item) for item in value.split(","))


def _is_list(grammar: Grammar, value: str) -> bool:
    return all(map(grammar.has_word, value.split(",")))


def _is_signed_list(grammar: Grammar, value: str) -> bool:
    items = [item.strip() for item in value.split(",")]
    if not any(item.startswith(("+", "-")) for item in items):
        return all(not item or grammar.has_word(item) for item in items)
    return all(item.startswith(("+", "-")) and grammar.has_word(item[1:]) for item in items)


def _is_minus_list(grammar: Grammar, value: str) -> bool:
    known = set(map(without_separators, grammar.words))
    return all(without_separators(item) in known for item in value.split(",") if item)


def without_separators(word: str) -> str:
    """A word as XLA compares it in minus lists: `all-reduce` equals `ALL_REDUCE`."""
    return re.sub(r"[-_]", "", word).lower()


def _is_fuel(grammar: Grammar, value: str) -> bool:
    pairs = [item.split("=") for item in value.split(",")]
    return all(len(pair) == 2 and _is_int64(pair[1]) for pair in pairs)


def _is_pass_list(grammar: Grammar, value: str) -> bool:
    """Names of passes, each optionally followed by a colon and a number."""
    parts = [item.split(":") for item in value.split(",")]
    return all(len(part) == 1 or len(part) == 2 and _is_int64(part[1]) for part in parts)


def _is_range_list(grammar: Grammar, value: str) -> bool:
    return all(map(_is_range, value.split(",")))


def _is_range(text: str) -> bool:
    ends = text.split(":")
    given = [end for end in ends if end]
    is_open = len(given) < len(ends)
    if not given or len(ends) > 2 or not all(map(_is_int64, given)):
        return False
    return is_open or int(given[0]) <= int(given[-1])


def _is_int64(text: str) -> bool:
    return _is_integer(Grammar("int64"), text)


def _matches(pattern: re.Pattern[str]) -> Callable[[Grammar, str], bool]:
    return lambda grammar, value: pattern.fullmatch(value) is not None


_FORMS: dict[str, Callable[[Grammar, str], bool]] = {
    "switch": _is_switch,
    "words": _is_word,
    "int32": _is_integer,
    "int64": _is_integer,
    "number": _is_number_or_word,
    "numbers": _is_number_or_words,
    "list": _is_list,
    "signed list": _is_signed_list,
    "minus list": _is_minus_list,
    "fuel": _is_fuel,
    "ranges": _is_range_list,
    "passes": _is_pass_list,
    "float": _matches(_FLOAT),
    "duration": _matches(_DURATION),
    "text": lambda grammar, value: True,
}
_EXPECTED = {
    "switch": "true or false",
    "float": "a number",
    "duration": "a duration such as 10s or 1h30m",
    "fuel": "pass=number, separated by commas",
    "ranges": "numbers or ranges, such as 1,4:7",
    "passes": "names of passes, separated by commas, such as pass or pass:2",
    "text": "a text",
}


def wordless_grammars() -> Sequence[Grammar]:
    """The grammars without words, the most specific first."""
    off = Grammar("words", ("false", "0"), any_case=True)
    forms = ("switch", "int32", "int64", "float", "duration", "fuel", "ranges", "passes", "text")
    return (off, *map(Grammar, forms))

"""What is wrong with a flag's value; `XLA_FLAGS` and `compiler_options` differ in what they take.

               XLA_FLAGS                            compiler_options
bool           bare, true, False, 1, 0              True or False, nothing else
enum           words of its own: see spellings      the whole name, or its number
list of enums  A,B and, mostly, +A,-B               A,B, which replaces the default
number         an integer in range                  the same; 1 is no float for Python's sake
"""

from __future__ import annotations

import re

from slipstream.flags.catalogue.catalogue import Flag
from slipstream.flags.catalogue.grammar import RANGES, Grammar
from slipstream.flags.catalogue.release_grammars import (
    TestedGrammar,
    flag_grammar,
    option_grammar,
    tested_releases,
)

_BOOLS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_MEANT_BOOLS = {"yes": "true", "on": "true", "no": "false", "off": "false", **_BOOLS}
_INTEGER = re.compile(r"[+-]?\d+")
_SUFFIXES = {"k": 2**10, "kb": 10**3, "m": 2**20, "mb": 10**6, "g": 2**30, "gb": 10**9}
_SUFFIXES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_LISTS = ("list", "signed list", "minus list", "numbers")


def flag_value_error(flag: Flag, value: str | None, version: str | None = None) -> str | None:
    """What is wrong with a value in `XLA_FLAGS`, and what was expected; None if nothing is.

    `version` is the jaxlib release; without one it is the newest that was tried.
    """
    asked = version or tested_releases()[-1]
    spelling = flag_grammar(flag, asked)
    grammar = spelling.grammar
    if grammar.accepts(value):
        return None
    if value is None:
        return f"has no value; expected --{flag.name}=…, {grammar.expected()}"
    complaint = _list_complaint(grammar, value) or f"is {value!r}; expected {grammar.expected()}"
    return complaint + _unless_tried(spelling, asked)


def option_value_error(
    flag: Flag, value: str, version: str | None = None, python_type: str = "str"
) -> str | None:
    """What is wrong with a value in `compiler_options`, and what was expected.

    `python_type` is the value's: JAX refuses 1 where it wants 1.0, and True where it wants a text.
    """
    asked = version or tested_releases()[-1]
    spelling, types = option_grammar(flag, asked)
    grammar = spelling.grammar
    if python_type not in ("str", *types):
        return (
            f"is {value}, a Python {python_type}; expected {grammar.expected()}, as a text in "
            "quotes" + (f" or a Python {' or '.join(types)}" if types else "")
        )
    if grammar.accepts(value) or python_type != "str" and _is_in_range(flag, value):
        return None
    if grammar.form == "numbers" and value.startswith(("+", "-")):
        return f"is {value!r}; expected the whole list: + and - are understood in XLA_FLAGS only"
    return f"is {value!r}; expected {grammar.expected()}" + _unless_tried(spelling, asked)


def normalized(flag: Flag, value: str | None) -> str:
    """A value in one form, so that two ways of writing it compare equal."""
    text = "true" if value is None else value.strip()
    if flag.kind == "bool":
        return _BOOLS.get(text.lower(), text)
    if flag.kind.startswith("repeated "):
        return ",".join(sorted(item.strip().upper() for item in text.split(",") if item.strip()))
    if flag.kind in ("float", "double"):
        return str(float(text)) if _is_float(text) else text
    return str(int(text)) if flag.kind in RANGES and _INTEGER.fullmatch(text) else text


def repaired_value(
    flag: Flag, value: str | None, is_option: bool, version: str | None = None
) -> str | None:
    """The value that was probably meant; None if that can't be said."""
    if value is None:
        return None
    asked = version or tested_releases()[-1]
    spelling = option_grammar(flag, asked)[0] if is_option else flag_grammar(flag, asked)
    meant = _meant(flag, value, spelling.grammar, is_option)
    return meant if meant is not None and spelling.grammar.accepts(meant) else None


def _meant(flag: Flag, value: str, grammar: Grammar, is_option: bool) -> str | None:
    if flag.kind == "bool":
        meant = _MEANT_BOOLS.get(value.lower())
        return meant.capitalize() if meant and is_option else meant
    if flag.kind in RANGES:
        return _as_integer(value)
    if flag.kind == "enum":
        return _meant_word(value, grammar)
    if flag.kind == "repeated enum" and value and value[0] not in "+-":
        items = [_meant_word(item.strip(), grammar) for item in value.split(",") if item.strip()]
        return ",".join(item for item in items if item) if all(items) and items else None
    return None


def _meant_word(value: str, grammar: Grammar) -> str | None:
    """The one word that is the value in another case, its end, or what it ends with."""
    text = value.upper()
    same = [word for word in grammar.words if word.upper() == text]
    ends = [
        word
        for word in grammar.words
        if text and (word.upper().endswith(f"_{text}") or f"_{word.upper()}_" in f"_{text}_")
    ]
    found = same or ends
    return found[0] if len({word.upper() for word in found}) == 1 else None


def _unless_tried(spelling: TestedGrammar, asked: str) -> str:
    if spelling.is_tried:
        return ""
    if spelling.tried_with is None:
        return f" (not tried with jaxlib {asked})"
    return f" (so it is with jaxlib {spelling.tried_with}; not tried with {asked})"


def _list_complaint(grammar: Grammar, value: str) -> str | None:
    if grammar.form not in _LISTS:
        return None
    items = [item.strip() for item in value.split(",")]
    changes = [item for item in items if item[:1] in ("+", "-")]
    if changes and grammar.form == "signed list" and len(changes) < len(items):
        return f"is {value!r}; expected all with + or -, or none: they change the default"
    if changes and grammar.form == "list":
        return f"is {value!r}; expected names without + and -, {grammar.expected()}"
    wrong = [item for item in items if not grammar.has_word(item.lstrip("+-"))]
    if wrong and wrong[0]:
        return f"is {wrong[0]!r}; expected {grammar.expected()}"
    if not value:
        return f"is empty; expected {grammar.expected()}, or no flag at all"
    return f"is {value!r}; expected names with nothing but commas between them"


def _is_in_range(flag: Flag, value: str) -> bool:
    """Numbers that Python gives as numbers: enums take any."""
    if flag.kind not in RANGES:
        return True
    return Grammar(flag.kind).accepts(value)


def _as_integer(value: str) -> str | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?(?:e\d+)?)\s*([a-z]*)", value.lower())
    if match is None or (match[2] and match[2] not in _SUFFIXES):
        return None
    number = float(match[1]) * _SUFFIXES.get(match[2], 1)
    return str(int(number)) if number == int(number) else None


def _is_float(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True

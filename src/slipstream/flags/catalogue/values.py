"""Check the value of a flag; `XLA_FLAGS` and `compiler_options` accept different values.

               XLA_FLAGS                            compiler_options
bool           no value, true, False, 1, 0          True or False
enum           words of its own: release_grammars   the full name, or its number
list of enums  A,B and, mostly, +A,-B               A,B, which replaces the default
number         a number in range                    the same; 1 is not a float
"""

from __future__ import annotations

import re

from slipstream.did_you_mean import certain_match
from slipstream.flags.catalogue.catalogue import Flag
from slipstream.flags.catalogue.grammar import RANGES, Grammar
from slipstream.flags.catalogue.release_grammars import (
    ReleaseGrammar,
    flag_grammar,
    harvested_releases,
    option_grammar,
)

_BOOLS = {"true": "true", "1": "true", "false": "false", "0": "false"}
_MEANT_BOOLS = {"yes": "true", "on": "true", "no": "false", "off": "false", **_BOOLS}
_INTEGER = re.compile(r"[+-]?\d+")
_SUFFIXES = {"k": 2**10, "kb": 10**3, "m": 2**20, "mb": 10**6, "g": 2**30, "gb": 10**9}
_SUFFIXES |= {"kib": 2**10, "mib": 2**20, "gib": 2**30}
_LISTS = ("list", "signed list", "minus list", "numbers")


def flag_value_error(flag: Flag, value: str | None, version: str | None = None) -> str | None:
    """What is wrong with a value in `XLA_FLAGS`, and what was expected; None if it is valid.

    `version` is the jaxlib release, by default the newest tested one.
    """
    release = version or harvested_releases()[-1]
    tested = flag_grammar(flag, release)
    grammar = tested.grammar
    if grammar.accepts(value):
        return None
    if value is None:
        return f"has no value; expected --{flag.name}=…, {grammar.expected()}"
    error = _list_error(grammar, value) or f"is {value!r}; expected {grammar.expected()}"
    return error + _unless_tested(tested, release)


def option_value_error(
    flag: Flag, value: str, version: str | None = None, python_type: str = "str"
) -> str | None:
    """What is wrong with a value in `compiler_options`, and what was expected; None if it is valid.

    `python_type` is the type of the value: JAX rejects 1 for a float, and True for a string.
    """
    release = version or harvested_releases()[-1]
    tested, types = option_grammar(flag, release)
    grammar = tested.grammar
    if python_type not in ("str", *types):
        return f"is {value}, a Python {python_type}; expected {grammar.expected()}, as a string" + (
            f" or a Python {' or '.join(types)}" if types else ""
        )
    if grammar.accepts(value) or python_type != "str" and _is_in_range(flag, value):
        return None
    if grammar.form == "numbers" and value.startswith(("+", "-")):
        return f"is {value!r}; expected the whole list: only XLA_FLAGS supports + and -"
    return f"is {value!r}; expected {grammar.expected()}" + _unless_tested(tested, release)


def normalized(flag: Flag, value: str | None) -> str:
    """A value in canonical form, so that different spellings compare equal."""
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
    """The value that was probably meant; None if it is unclear."""
    if value is None:
        return None
    release = version or harvested_releases()[-1]
    tested = option_grammar(flag, release)[0] if is_option else flag_grammar(flag, release)
    meant = _meant(flag, value, tested.grammar, is_option)
    return meant if meant is not None and tested.grammar.accepts(meant) else None


def meant_bool(value: str) -> str | None:
    """`true` or `false` for a word that means it: `yes`, `ON`, `ture`, `flase`."""
    text = value.strip().lower()
    return _MEANT_BOOLS.get(text) or certain_match(text, ("true", "false"), 1)


def _meant(flag: Flag, value: str, grammar: Grammar, is_option: bool) -> str | None:
    if flag.kind == "bool":
        meant = meant_bool(value)
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
    """The only word that equals the value in another case, ends with it, or is a part of it."""
    text = value.upper()
    same = [word for word in grammar.words if word.upper() == text]
    ends = [
        word
        for word in grammar.words
        if text and (word.upper().endswith(f"_{text}") or f"_{word.upper()}_" in f"_{text}_")
    ]
    found = same or ends
    return found[0] if len({word.upper() for word in found}) == 1 else None


def _unless_tested(tested: ReleaseGrammar, release: str) -> str:
    if tested.is_tested:
        return ""
    if tested.tested_with is None:
        return f" (not tested with jaxlib {release})"
    return f" (as in jaxlib {tested.tested_with}; not tested with {release})"


def _list_error(grammar: Grammar, value: str) -> str | None:
    if grammar.form not in _LISTS:
        return None
    items = [item.strip() for item in value.split(",")]
    changes = [item for item in items if item[:1] in ("+", "-")]
    if changes and grammar.form == "signed list" and len(changes) < len(items):
        return f"is {value!r}; expected + or - on all names or on none: they change the default"
    if changes and grammar.form == "list":
        return f"is {value!r}; expected names without + and -, {grammar.expected()}"
    wrong = [item for item in items if not grammar.has_word(item.lstrip("+-"))]
    if wrong and wrong[0]:
        return f"is {wrong[0]!r}; expected {grammar.expected()}"
    if not value:
        return f"is empty; expected {grammar.expected()}, or no flag"
    return f"is {value!r}; expected names separated only by commas"


def _is_in_range(flag: Flag, value: str) -> bool:
    """Whether a Python number is in range; enums accept any."""
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

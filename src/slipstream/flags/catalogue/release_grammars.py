"""The grammar of each flag in each release, from values.json (`scripts/harvest_values.py`).

Two releases were tested, with every flag.  For any other, the nearest tested release that has the
flag is used, and findings say so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from slipstream.flags.catalogue.catalogue import Flag
from slipstream.flags.catalogue.grammar import Grammar
from slipstream.flags.catalogue.history import version_key

DATA = Path(__file__).with_name("values.json")
FIRST_WITH_NAMES = (0, 6, 0)
"""the first jaxlib whose compile options accept enums by name; tested with 0.4.18 to 0.7.1"""
_FORMS = {"bool": "switch", "int32": "int32", "int64": "int64", "float": "float", "double": "float"}


@dataclass(frozen=True)
class ReleaseGrammar:
    """A grammar, and the release that it was tested with."""

    grammar: Grammar
    tested_with: str | None
    """None if no tested release has the flag: then any value that may be valid passes"""
    is_tested: bool
    """whether that is the requested release"""


def flag_grammar(flag: Flag, version: str) -> ReleaseGrammar:
    """The values that `XLA_FLAGS` accepts for a flag."""
    for near in _nearest(version):
        row = _data()[near]["flags"].get(flag.name)
        if row is not None:
            grammar = Grammar.from_row(row)
            if near != version:
                grammar = _with_members(grammar, flag)
            return ReleaseGrammar(grammar, near, near == version)
    return ReleaseGrammar(_untested(flag), None, False)


def option_grammar(flag: Flag, version: str) -> tuple[ReleaseGrammar, tuple[str, ...]]:
    """The values that `compiler_options` accepts: as strings, and the Python types."""
    for near in _nearest(version):
        row = _data()[near].get("options", {}).get(flag.kind)
        if row is None:
            continue
        words = ("True", "False") if flag.kind == "bool" else flag.enum_values
        if flag.kind != "bool" and version_key(version) < FIRST_WITH_NAMES:
            words = ()
        grammar = Grammar(row["form"], tuple(words))
        return ReleaseGrammar(grammar, near, near == version), tuple(row["types"])
    return ReleaseGrammar(Grammar("text"), None, False), ("bool", "float", "int")


def harvested_releases() -> tuple[str, ...]:
    """The tested releases, oldest first."""
    return tuple(_data())


def _untested(flag: Flag) -> Grammar:
    """By the flag's type; for enums, any suffix of a member's name is accepted."""
    words = tuple(end for member in flag.enum_values for end in _ends(member))
    forms = {"enum": "words", "repeated enum": "signed list"}
    form = forms.get(flag.kind, "text") if words else _FORMS.get(flag.kind, "text")
    return Grammar(form, words, any_case=True) if words else Grammar(form)


def _with_members(grammar: Grammar, flag: Flag) -> Grammar:
    """Add the enum members that the tested release lacks, with all suffixes of their names."""
    known = {word.upper() for word in grammar.words}
    new = [
        member
        for member in flag.enum_values
        if not any(f"_{word}_" in f"_{member.upper()}_" for word in known)
    ]
    if not new or not grammar.words:
        return grammar
    parts = [part for member in new for part in _ends(member)]
    return replace(grammar, words=(*grammar.words, *parts), any_case=True)


def _ends(member: str) -> list[str]:
    words = member.split("_")
    return ["_".join(words[at:]) for at in range(len(words))]


@cache
def _nearest(version: str) -> tuple[str, ...]:
    """The tested releases, nearest first; of two equally near ones, the newer first."""
    key = _place(version)
    return tuple(sorted(_data(), key=lambda tried: (abs(_place(tried) - key), -_place(tried))))


def _place(version: str) -> float:
    """A release as a number: 0.10.2 is between 0.10.1 and 0.11.0."""
    parts = (*version_key(version), 0, 0, 0)[:4]
    return parts[0] * 1e6 + parts[1] * 1e3 + parts[2] + parts[3] / 10


@cache
def _data() -> Mapping[str, Any]:
    data: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
    return data

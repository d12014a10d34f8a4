"""JSON Schemas of what commands print with `--json`, for docs/schemas/.

Two sources, and each says what the other can't: types are those of the result dataclasses
(`json_shapes.py` says which command prints what), and meanings are those of json.md.
`disagreements` lists the keys that only one of them has.
"""

from __future__ import annotations

import dataclasses
import re
import types
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

DRAFT = "https://json-schema.org/draft/2020-12/schema"
PAGE = Path(__file__).resolve().parent / "json.md"
PLAIN = {
    str: {"type": "string"},
    int: {"type": "integer"},
    # What is not finite is printed as null.
    float: {"type": ["number", "null"]},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Path: {"type": "string"},
    Any: {},
    object: {},
}


class Record(NamedTuple):
    """A dataclass as `asdict` gives it, with keys that the JSON adds, changes or leaves out."""

    of: type
    changed: Mapping[str, Any] = {}
    without: Sequence[str] = ()


class Maybe(NamedTuple):
    """The value of a key that is not always there."""

    shape: Any


class Either(NamedTuple):
    """One of several shapes."""

    shapes: tuple[Any, ...]


class Itself(NamedTuple):
    """The whole document again, one level down."""


class Printed(NamedTuple):
    """What a command prints, and the heading of json.md that describes it."""

    shape: Any
    section: str


def schema_of(command: str, printed: Printed) -> dict[str, Any]:
    """The schema of `slipstream COMMAND --json`."""
    meanings = Meanings(printed.section)
    return {
        "$schema": DRAFT,
        "title": f"slipstream {command} --json",
        "description": f'See "{printed.section}" in docs/json.md. Keys may be added.',
        **convert(printed.shape, meanings, ""),
    }


def convert(shape: Any, meanings: Meanings, inside: str) -> dict[str, Any]:
    """The schema of a shape: our own words above, a dict or list of shapes, or a type."""
    match shape:
        case Record():
            return _object(keys_of(shape), meanings, inside)
        case dict():
            return _object(shape, meanings, inside)
        case list():
            return {"type": "array", "items": convert(shape[0], meanings, inside)}
        case Either():
            return {"anyOf": [convert(one, meanings, inside) for one in shape.shapes]}
        case Itself():
            return {"$ref": "#"}
    if isinstance(shape, type) and shape in PLAIN or shape is Any:
        return dict(PLAIN[shape])
    if dataclasses.is_dataclass(shape):
        return _object(keys_of(Record(shape)), meanings, inside)
    if isinstance(shape, type) and issubclass(shape, Enum):
        return {"enum": [one.value for one in shape]}
    return _generic(shape, meanings, inside)


def _generic(shape: Any, meanings: Meanings, inside: str) -> dict[str, Any]:
    origin, arguments = get_origin(shape), get_args(shape)
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, types.UnionType):
        return _any_of([convert(one, meanings, inside) for one in arguments])
    if origin is tuple and arguments[-1] is not Ellipsis:
        items = [convert(one, meanings, inside) for one in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items)}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {
            "type": "object",
            "additionalProperties": convert(arguments[1], meanings, inside),
        }
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": convert(arguments[0], meanings, inside)}
    raise TypeError(f"no schema is known for {shape!r}; add it to docs/json_schema.py")


def _any_of(schemas: list[dict[str, Any]]) -> dict[str, Any]:
    """Alternatives; plain types become one list of types."""
    if all(set(one) == {"type"} for one in schemas):
        names = [one["type"] for one in schemas]
        flat = [n for name in names for n in (name if isinstance(name, list) else [name])]
        return {"type": list(dict.fromkeys(flat))}
    return {"anyOf": schemas}


def keys_of(record: Record) -> dict[str, Any]:
    hints = get_type_hints(record.of)
    known = {one.name: hints[one.name] for one in dataclasses.fields(record.of)}
    return {
        name: shape
        for name, shape in {**known, **record.changed}.items()
        if name not in record.without
    }


def _object(keys: Mapping[str, Any], meanings: Meanings, inside: str) -> dict[str, Any]:
    properties = {}
    for name, shape in keys.items():
        plain = shape.shape if isinstance(shape, Maybe) else shape
        described = meanings.of(name, inside)
        properties[name] = convert(plain, meanings, name) | (
            {"description": described} if described else {}
        )
    required = [name for name, shape in keys.items() if not isinstance(shape, Maybe)]
    return {"type": "object", "properties": properties, "required": required}


class Meanings:
    """What a section of json.md says about each key."""

    def __init__(self, heading: str) -> None:
        self.text = section(heading)
        self._rows = {(inside, key): text for inside, keys, text in rows(self.text) for key in keys}

    def of(self, key: str, inside: str) -> str:
        """The meaning of a key of the document, or of what its key `inside` has; may be empty."""
        return self._rows.get((inside, key), "")

    def keys(self) -> set[str]:
        """The keys that tables list in their first column."""
        return {key for _, key in self._rows}


def section(heading: str) -> str:
    """The text below a heading of json.md, without drawings; empty if there is no such heading."""
    page = re.sub(r"^```.*?^```\n", "", PAGE.read_text(encoding="utf-8"), flags=re.M | re.S)
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def rows(text: str) -> Iterator[tuple[str, list[str], str]]:
    """Each row of a section's tables: the key whose value the table is about, its keys, their text.

    A table is about the whole document, unless the line before it (`One of `ops`:`, or
    ``what_if`:`) or its first heading (`key of `moves``) names a key.
    """
    inside, before, in_table = "", "", False
    for line in text.splitlines():
        if not line.startswith("|"):
            in_table, before = False, line.strip() or before
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not in_table:
            in_table = True
            named = re.findall(r"`(\w+)`", cells[0]) or re.findall(
                r"^(?:One of )?`(\w+)`.*:$", before
            )
            inside = named[0] if named else ""
            is_of_keys = cells[0].startswith("key")
        elif is_of_keys and not cells[0].startswith("---"):
            spans = re.findall(r"`([^`]+)`", cells[0])
            keys = [re.split(r"\W", span)[0] for span in spans]
            dotted = [span for span in spans if re.fullmatch(r"\w+\.\w+", span)]
            for span in dotted:
                outer, inner = span.split(".")
                yield outer, [inner], cells[1]
            names = f"{cells[0]}: " if len(keys) > 1 else ""
            if keys and not dotted:
                yield inside, keys, f"{names}{cells[1]}"


def documented(heading: str, command: str = "") -> set[str]:
    """Every word that a section, or one that it links to, writes as code.

    Where a table has one row for each command, the rows of other commands don't count.
    """
    text = section(heading)
    if "| command | keys |" in text:
        text = re.sub(rf"^\| `(?!{command}[` ]).*\n", "", text, flags=re.M)
    found = {word for span in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", span)}
    for linked in re.findall(r"\[`([^`]+)`\]\(#", text):
        if linked != heading:
            found |= documented(linked) | documented(f"`{linked}`")
    return found


def names(schema: Any) -> set[str]:
    """Every key that a schema lists, at any depth."""
    if isinstance(schema, list):
        return {name for item in schema for name in names(item)}
    if not isinstance(schema, dict):
        return set()
    own = set(schema["properties"]) if isinstance(schema.get("properties"), dict) else set()
    return own | {name for value in schema.values() for name in names(value)}


def disagreements(command: str, printed: Printed, schema: Mapping[str, Any]) -> list[str]:
    """Keys that the page and the schema don't both have, as sentences."""
    where = f"docs/json.md, section {printed.section}"
    if not section(printed.section):
        return [f"{where}: missing; write what each key of slipstream {command} --json means"]
    listed = names(schema)
    missing = sorted(listed - documented(printed.section, command))
    unknown = sorted(Meanings(printed.section).keys() - listed)
    return [
        *(f"{where}: says nothing about {key} of {command}" for key in missing),
        *(f"{where}: {command} has no key {key}" for key in unknown),
    ]

"""Checks that what a command prints with `--json` is what docs/schemas/ says."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from typer.core import TyperGroup

from slipstream.cli.app import RootGroup

SCHEMAS = Path(__file__).resolve().parent.parent / "docs" / "schemas"


def check(command: str, text: str) -> None:
    """`text` is valid, and has no key that the schema doesn't know: users may have newer keys."""
    problems = [
        f"{command} --json at {error.json_path}: {error.message[:300]}"
        for error in _validator(command).iter_errors(json.loads(text))
    ]
    assert not problems, "\n".join([*problems[:5], "see docs/json_shapes.py, then: make docs"])


def checked(dumps: Callable[[Any], str]) -> Callable[[Any], str]:
    """`dumps`, which checks what it is given while a command runs."""
    click = TyperGroup.__mro__[1].__module__.rpartition(".")[0]
    current_context = import_module(f"{click}.globals").get_current_context

    def with_check(data: Any) -> str:
        text = dumps(data)
        names, context = [], current_context(silent=True)
        while context is not None and context.parent is not None:
            names.insert(0, context.info_name)
            context = context.parent
        # A test may call a group on its own; then its commands have lost the group's name.
        if names and isinstance(context.command, RootGroup):
            check(" ".join(names), text)
        return text

    return with_check


@cache
def _validator(command: str) -> Draft202012Validator:
    path = SCHEMAS / f"{command.replace(' ', '-')}.json"
    schema = json.loads(path.read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(_closed(schema))


def _closed(schema: Any) -> Any:
    """The schema, which allows only the keys that it lists."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: _closed(value) for key, value in schema.items()}
    is_object = schema.get("type") == "object" and "properties" in schema
    return {**inner, "additionalProperties": False} if is_object else inner

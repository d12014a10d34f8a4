"""The command line described as data: what `slipstream [COMMAND] --help --json` prints.

Everything is read from the commands that Typer built, as the help text is, so neither can say
what the other doesn't.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any

HELP_FLAGS = ("--help", "-h")
TYPES = {
    "str": "text", "text": "text", "int": "integer", "integer": "integer", "float": "number",
    "bool": "boolean", "boolean": "boolean",
}  # fmt: skip
"""how releases of Typer and Click call types, and our words; a range has its ends, too"""


def asked_command(arguments: Sequence[str]) -> list[str] | None:
    """The command whose help is asked for as JSON; None where something else is asked.

    Only a command's name, `--help` and `--json` count: the help of a job's own command
    (`run -- python train.py --help --json`) is not ours.
    """
    names = [one for one in arguments if not one.startswith("-")]
    flags = list(arguments[len(names) :])
    is_help = "--json" in flags and any(flag in flags for flag in HELP_FLAGS)
    is_all = set(flags) <= {"--json", *HELP_FLAGS} and list(arguments[: len(names)]) == names
    return names if is_help and is_all else None


def command_at(root: Any, names: Sequence[str]) -> Any:
    """The command or group of this name below the root; None if there is none."""
    found = root
    for name in names:
        found = getattr(found, "commands", {}).get(name)
        if found is None:
            return None
    return found


def command_tree(command: Any, path: Sequence[str]) -> dict[str, Any]:
    """One command and all below it; `path` is what to type, as `["slipstream", "flags"]`."""
    return {
        "name": path[-1],
        "command": " ".join(path),
        "group": _text(getattr(command, "rich_help_panel", None)),
        "summary": command.get_short_help_str(limit=200),
        "help": inspect.cleandoc(command.help or ""),
        "default": getattr(command, "default", None),
        "parameters": [parameter(one) for one in visible_parameters(command)],
        "commands": [command_tree(one, [*path, name]) for name, one in subcommands(command)],
    }


def subcommands(command: Any) -> Iterator[tuple[str, Any]]:
    """The visible commands right below a group, in the order of its help."""
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            if not command.commands[name].hidden:
                yield name, command.commands[name]


def visible_parameters(command: Any) -> list[Any]:
    return [one for one in command.params if not getattr(one, "hidden", False)]


def parameter(param: Any) -> dict[str, Any]:
    """One argument or option, as JSON."""
    is_option = param.param_type_name == "option"
    return {
        "name": param.name,
        "kind": param.param_type_name,
        "flags": list(param.opts) if is_option else [],
        "off_flags": list(param.secondary_opts) if is_option else [],
        "type": _type(param.type),
        "takes_value": not getattr(param, "is_flag", False),
        "required": bool(param.required),
        "repeatable": bool(getattr(param, "multiple", False) or param.nargs == -1),
        "default": _default(param.default),
        "choices": [_plain(one) for one in getattr(param.type, "choices", None) or ()],
        "minimum": getattr(param.type, "min", None),
        "maximum": getattr(param.type, "max", None),
        "metavar": param.metavar,
        "help": " ".join((getattr(param, "help", None) or "").split()),
    }


def _type(kind: Any) -> str:
    name = str(kind.name)
    return "choice" if hasattr(kind, "choices") else TYPES.get(name.partition(" ")[0], name)


def _default(value: Any) -> Any:
    """A default as JSON; one that is computed when the command runs is null."""
    return None if callable(value) or repr(value) == "Sentinel.UNSET" else _plain(value)


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None

"""Man pages of all commands, made from the same tree as `slipstream --help --json`.

    python -m slipstream.cli.man_pages ~/.local/share/man/man1

`slipstream-flags-lint.1` is the page of `slipstream flags lint`; `man slipstream` lists all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

EXIT_CODES = (
    ("0", "Done. `run` ends with the exit code of the job."),
    ("1", "A check or a gate failed."),
    ("2", "Bad input or usage."),
    ("3", "Something is missing on this machine."),
)
JSON_NOTE = "Every command with --json is described in docs/json.md."


def man_pages(tree: dict[str, Any], release: str) -> dict[str, str]:
    """{file name: page} for a command and all below it; `tree` is a `command_tree`."""
    pages = {f"{_page_name(tree)}.1": man_page(tree, release)}
    for below in tree["commands"]:
        pages |= man_pages(below, release)
    return pages


def man_page(node: dict[str, Any], release: str) -> str:
    """One page, as roff with the macros of man(7)."""
    lines = [
        f'.TH "{_page_name(node).upper()}" 1 "" "Slipstream {release}"',
        ".SH NAME",
        f"{_text(_page_name(node))} \\- {_text(node['summary'].rstrip('.'))}",
        ".SH SYNOPSIS",
        *_synopsis(node),
        ".SH DESCRIPTION",
        *_paragraphs(node["help"]),
        *_section("ARGUMENTS", _entries(node, "argument")),
        *_section("OPTIONS", _entries(node, "option")),
        *_section("COMMANDS", ((_page_name(one), one["summary"]) for one in node["commands"])),
        *_section("EXIT STATUS", EXIT_CODES),
        *_section("SEE ALSO", _see_also(node)),
    ]
    return "\n".join(lines) + "\n"


def _page_name(node: dict[str, Any]) -> str:
    return str(node["command"]).replace(" ", "-")


def _synopsis(node: dict[str, Any]) -> Iterator[str]:
    arguments = [_metavar(one) for one in node["parameters"] if one["kind"] == "argument"]
    below = ["COMMAND ..."] if node["commands"] else []
    yield f".B {_text(node['command'])}"
    yield _text(" ".join(["[OPTIONS]", *arguments, *below]))


def _paragraphs(text: str) -> Iterator[str]:
    for index, paragraph in enumerate(text.split("\n\n")):
        if index:
            yield ".PP"
        yield _text(" ".join(paragraph.split()))


def _entries(node: dict[str, Any], kind: str) -> Iterator[tuple[str, str]]:
    for one in node["parameters"]:
        if one["kind"] == kind:
            yield _signature(one), _explained(one)


def _signature(one: dict[str, Any]) -> str:
    """`-o, --output FILE`, or an argument's own name."""
    if one["kind"] == "argument":
        return _metavar(one)
    flags = ", ".join([*one["flags"], *one["off_flags"]])
    return f"{flags} {_metavar(one)}" if one["takes_value"] else flags


def _metavar(one: dict[str, Any]) -> str:
    return str(one["metavar"] or one["name"].upper())


def _explained(one: dict[str, Any]) -> str:
    """The help, the choices, and the default where one is shown as it is typed."""
    parts = [one["help"]]
    if one["choices"]:
        parts.append(f"One of {', '.join(map(str, one['choices']))}.")
    if isinstance(one["default"], int | float | str) and not isinstance(one["default"], bool):
        parts.append(f"Default: {one['default']}.")
    return " ".join(part for part in parts if part)


def _see_also(node: dict[str, Any]) -> Iterator[tuple[str, str]]:
    parent = _page_name(node).rpartition("-")[0]
    if parent:
        yield f"{parent}(1)", ""
    yield "docs/", JSON_NOTE


def _section(title: str, entries: Any) -> Iterator[str]:
    for index, (term, text) in enumerate(entries):
        if not index:
            yield f".SH {title}"
        yield ".TP"
        yield f"\\fB{_text(term)}\\fR"
        yield _text(text) or "\\&"


def _text(text: str) -> str:
    """Text that roff shows as it is: no escapes, no dashes made longer, no line a request."""
    shown = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


def main(arguments: list[str]) -> int:
    """Write all pages to a folder."""
    if len(arguments) != 1 or arguments[0].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 2
    import typer.main

    from slipstream.cli.command_tree import command_tree
    from slipstream.cli.main import app

    tree = command_tree(typer.main.get_command(app), ["slipstream"])
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    pages = man_pages(tree, version("slipstream"))
    for name, page in pages.items():
        (folder / name).write_text(page, encoding="utf-8")
    print(f"{len(pages)} pages in {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

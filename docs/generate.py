"""Writes the generated parts of the pages in docs/: command help and column tables.

    python docs/generate.py            rewrite what is out of date
    python docs/generate.py --check    change nothing; exit 1 if something is out of date

A page marks where they go; everything around the marks is written by people:

    docs/summary.md    <!-- help:begin -->                     help of `slipstream summary`, and of
                       <!-- help:end -->                       the commands below it in a group
    docs/columns.md    <!-- columns:EVENT_COLUMNS:begin -->    a tuple of slipstream.profile.events
                       <!-- columns:EVENT_COLUMNS:end -->
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Help must not depend on who asks: typer reads these when it is imported.
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(name, None)
os.environ |= {"COLUMNS": "80", "TERMINAL_WIDTH": "80", "NO_COLOR": "1"}

import typer.main  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from slipstream.cli.main import app  # noqa: E402
from slipstream.profile import events  # noqa: E402

DOCS = Path(__file__).resolve().parent
COLUMNS_PAGE = "columns.md"


class PageError(Exception):
    """A page or a mark that a person has to write."""


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    check = arguments == ["--check"]
    failed = False
    for page, blocks in pages().items():
        try:
            before = read(page)
            after = fill(page, before, blocks)
        except PageError as error:
            print(error, file=sys.stderr)
            failed = True
            continue
        if after == before:
            continue
        if check:
            print(f"docs/{page} is out of date; run: make docs", file=sys.stderr)
            failed = True
        else:
            (DOCS / page).write_text(after, encoding="utf-8")
            print(f"docs/{page} rewritten")
    return int(failed)


def pages() -> dict[str, dict[str, str]]:
    """Every page with generated parts: {page: {mark: text}}."""
    root = typer.main.get_command(app)
    found = {
        f"{name}.md": {"help": help_text(command, [name])} for name, command in subcommands(root)
    }
    tables = {name: value for name, value in vars(events).items() if name.endswith("_COLUMNS")}
    if tables:
        found[COLUMNS_PAGE] = {
            f"columns:{name}": column_table(columns) for name, columns in tables.items()
        }
    return found


def subcommands(command: Any) -> Iterator[tuple[str, Any]]:
    """The visible commands right below a group; none below a plain command."""
    if not hasattr(command, "list_commands"):
        return
    context = command.make_context("slipstream", [], resilient_parsing=True)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        if not found.hidden:
            yield name, found


def help_text(command: Any, path: list[str]) -> str:
    """What `slipstream <path> --help` prints, then the same for each command below it."""
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="slipstream")
    if result.exit_code != 0:
        raise PageError(f"slipstream {' '.join(path)} --help failed: {result.output}")
    lines = [line.rstrip() for line in result.output.strip().splitlines()]
    shown = "\n".join([f"$ slipstream {' '.join(path)} --help", *lines])
    below = [help_text(child, [*path, name]) for name, child in subcommands(command)]
    return "\n\n".join([f"```text\n{shown}\n```", *below])


def column_table(columns: tuple[events.Column, ...]) -> str:
    rows = ["| column | type | meaning |", "| --- | --- | --- |"]
    for column in columns:
        meaning = " ".join(column.doc.split()).replace("|", r"\|")
        kind = "text" if column.text else column.dtype.name
        rows.append(f"| `{column.name}` | {kind} | {meaning} |")
    return "\n".join(rows)


def read(page: str) -> str:
    try:
        return (DOCS / page).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise PageError(f"docs/{page} is missing: write it, with the marks for its parts") from None


def fill(page: str, text: str, blocks: dict[str, str]) -> str:
    """`text` with each block between its marks; marks and blocks must match one to one."""
    marks = re.findall(r"^<!-- ((?:help|columns:\w+)):begin -->$", text, flags=re.MULTILINE)
    for unknown in set(marks) - set(blocks):
        raise PageError(f"docs/{page}: nothing is called {unknown}; known: {', '.join(blocks)}")
    for mark, block in blocks.items():
        begin, end = f"<!-- {mark}:begin -->\n", f"<!-- {mark}:end -->\n"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(end) < text.index(begin):
            raise PageError(f"docs/{page} needs these two lines, once:\n{begin}{end}")
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = f"{head}{begin}{block}\n{end}{tail}"
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

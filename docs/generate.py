"""Writes the generated parts of docs/: command help, tables, and JSON Schemas.

    python docs/generate.py            rewrite what is out of date
    python docs/generate.py --check    change nothing; exit 1 if something is out of date

A page marks where they go; everything around the marks is written by people:

    docs/summary.md    <!-- help:begin -->                     help of `slipstream summary`, and of
                       <!-- help:end -->                       the commands below it in a group
    docs/columns.md    <!-- columns:EVENT_COLUMNS:begin -->    a tuple of slipstream.profile.events
                       <!-- columns:EVENT_COLUMNS:end -->
    docs/glossary.md   <!-- glossary:begin -->                 and others: see generated_tables.py
                       <!-- glossary:end -->                   and comparison_tables.py
    README.md          <!-- figures:begin -->                  see figure_tables.py
                       <!-- figures:end -->

docs/schemas/ is generated as a whole: what each command prints with `--json` (json_schema.py).
"""

import json
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

import comparison_tables  # noqa: E402
import generated_tables  # noqa: E402
import json_schema  # noqa: E402
import typer.main  # noqa: E402
from json_shapes import PRINTED  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

from slipstream.cli.command_tree import command_tree  # noqa: E402
from slipstream.cli.main import app  # noqa: E402
from slipstream.profile import events  # noqa: E402

DOCS = Path(__file__).resolve().parent
COLUMNS_PAGE = "columns.md"
SCHEMAS = "schemas"


class PageError(Exception):
    """A page or a mark that a person has to write."""


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    check = arguments == ["--check"]
    failed = False
    try:
        wanted = pages()
    except comparison_tables.DataError as error:
        print(error, file=sys.stderr)
        return 1
    for page, blocks in wanted.items():
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
            print(f"{shown(page)} is out of date; run: make docs", file=sys.stderr)
            failed = True
        else:
            (DOCS / page).write_text(after, encoding="utf-8")
            print(f"{shown(page)} rewritten")
    return int(write_schemas(check) or failed)


def write_schemas(check: bool) -> bool:
    """Write or check docs/schemas/; whether something is wrong that a person must see."""
    troubles = [f"docs/json_shapes.py lacks {name}" for name in with_json() - set(PRINTED)]
    wanted = {}
    for command, printed in PRINTED.items():
        schema = json_schema.schema_of(command, printed)
        troubles += json_schema.disagreements(command, printed, schema)
        text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
        wanted[DOCS / SCHEMAS / schema_file(command)] = text
    (DOCS / SCHEMAS).mkdir(exist_ok=True)
    there = {path: path.read_text(encoding="utf-8") for path in (DOCS / SCHEMAS).iterdir()}
    for path in sorted({*wanted, *there}):
        if wanted.get(path) == there.get(path):
            continue
        if check:
            troubles.append(f"docs/{SCHEMAS}/{path.name} is out of date; run: make docs")
        elif path in wanted:
            path.write_text(wanted[path], encoding="utf-8")
            print(f"docs/{SCHEMAS}/{path.name} rewritten")
        else:
            path.unlink()
            print(f"docs/{SCHEMAS}/{path.name} removed")
    for trouble in troubles:
        print(trouble, file=sys.stderr)
    return bool(troubles)


def with_json() -> set[str]:
    """The commands that have `--json`, as they are typed, and the help itself."""
    found, nodes = {"--help"}, [command_tree(typer.main.get_command(app), ["slipstream"])]
    for node in nodes:
        nodes.extend(node["commands"])
        if any("--json" in one["flags"] for one in node["parameters"]):
            found.add(node["command"].removeprefix("slipstream "))
    return found


def schema_file(command: str) -> str:
    """`flags-lint.json` for `flags lint`."""
    return f"{command.strip('-').replace(' ', '-')}.json"


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
    tree = command_tree(root, ["slipstream"])
    return found | generated_tables.pages(tree) | comparison_tables.pages()


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


def shown(page: str) -> str:
    """A page's path in the repository."""
    return os.path.normpath(f"docs/{page}")


def fill(page: str, text: str, blocks: dict[str, str]) -> str:
    """`text` with each block between its marks; marks and blocks must match one to one."""
    marks = re.findall(r"^<!-- (\w+(?::\w+)?):begin -->$", text, flags=re.MULTILINE)
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

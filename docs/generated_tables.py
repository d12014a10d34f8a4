"""Tables of pages that come from elsewhere in the repository, for generate.py.

docs/commands.md      commands      every command, from the command line itself
docs/glossary.md      glossary      the table of ARCHITECTURE.md
docs/benchmarks.md    scripts       the scripts of benchmarks/, by their first sentence
                      figures       docs/figures.toml, also in README.md: see figure_tables.py
docs/guides/*.md      flags         each flag line of a guide, and what to write today
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figure_tables

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

from check_guides import GUIDE_LINES, VERSIONS, findings, verdict  # noqa: E402

NEWEST = VERSIONS[-1]
GUIDE_PAGES = {
    "pgle": "guides/pgle-nsight.md",
    "jax": "guides/jax-gpu-tips.md",
    "llm": "guides/llm-tips.md",
    "megascale": "guides/megascale.md",
}
"""pages of the guides that name flags"""
REJECTED = re.compile(r"^jaxlib \S+ rejects \w+, and XLA aborts at startup\. ")


def pages(tree: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Every page with such tables: {page: {mark: text}}; `tree` is that of all commands."""
    guides = {page: {"flags": guide_flags(guide)} for guide, page in GUIDE_PAGES.items()}
    rows = figure_tables.rows()
    return {
        "../README.md": {"figures": figure_tables.readme(rows)},
        "commands.md": {"commands": commands(tree)},
        "glossary.md": {"glossary": section_table("ARCHITECTURE.md", "Glossary")},
        "benchmarks.md": {
            "figures": figure_tables.benchmarks(rows),
            "scripts": scripts(),
        },
        **guides,
    }


def commands(tree: dict[str, Any]) -> str:
    """The groups of the help, each with a table of its commands."""
    parts: dict[str, list[str]] = {}
    for command in tree["commands"]:
        rows = parts.setdefault(command["group"], [])
        rows.extend(
            f"| [`{one['command']}`]({command['name']}.md) | {one['summary']} |"
            for one in with_subcommands(command)
        )
    head = ["| command | |", "| --- | --- |"]
    return "\n\n".join(f"## {part}\n\n" + "\n".join([*head, *rows]) for part, rows in parts.items())


def with_subcommands(command: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield command
    for below in command["commands"]:
        yield from with_subcommands(below)


def section_table(page: str, heading: str) -> str:
    """The first table below a heading of a page."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows: list[str] = []
    for line in lines[lines.index(f"## {heading}") + 1 :]:
        if line.startswith("|"):
            rows.append(line)
        elif rows:
            break
    return "\n".join(rows)


def scripts() -> str:
    """The scripts of benchmarks/; modules that only serve them are left out."""
    rows = ["| script | what it measures |", "| --- | --- |"]
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if '__name__ == "__main__"' in text:
            told = ast.get_docstring(ast.parse(text)) or ""
            first = " ".join(told.partition("\n\n")[0].split())
            rows.append(f"| [`{path.name}`](../benchmarks/{path.name}) | {first} |")
    return "\n".join(rows)


def guide_flags(guide: str) -> str:
    """Each flag line of a guide: what becomes of it with the newest jaxlib, and what to write."""
    rows = [f"| the guide's line | jaxlib {NEWEST} | today |", "| --- | --- | --- |"]
    for line in dict.fromkeys(line for key, line in GUIDE_LINES if key == guide):
        rows.append(f"| `{line}` | {verdict(line, NEWEST)} | {advice(line)} |")
    return "\n".join(rows)


def advice(line: str) -> str:
    """What lint says of a line, as a cell of a table; empty where it just works."""
    found = findings(line, NEWEST)
    told = next((one for one in found if one.severity != "note"), found[0] if found else None)
    if told is None:
        return ""
    text = REJECTED.sub("", told.message)
    text = re.sub(r"(--[a-z_]+=?[\w./]*)", r"`\1`", text).replace("|", r"\|")
    return text[:1].upper() + text[1:] if text.startswith("it ") else text

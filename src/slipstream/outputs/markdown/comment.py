"""What comments of pull requests have in common: the mark, tables, and names that are only text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from slipstream.outputs.formatting import printable

_QUOTED = re.compile(r"[^\w.:/,=+@ -]")
_SPECIAL = re.compile(r"([\\`*_\[\]<>|#~])")


def comment(command: str, title: str, lines: Sequence[str], footer: str, subject: str = "") -> str:
    """A whole comment; its first line says of what it is, so that the next run finds it again."""
    head = [mark(command, subject), f"### {title}", ""]
    return "\n".join([*head, *lines, f"<sub>{escaped(footer)}</sub>"]) + "\n"


def mark(command: str, subject: str = "") -> str:
    """`<!-- slipstream predict train.py:build on 8xH100 -->`, which workflows quote as it is."""
    # Quotes would end a workflow's string, and two hyphens are not allowed in an HTML comment.
    plain = re.sub(r"-{2,}", "-", _QUOTED.sub("_", f"{command} {subject}"))
    return f"<!-- slipstream {plain.strip(' -')} -->"


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> list[str]:
    """A table whose first `left` columns are text; all others are numbers."""
    ruler = ["---"] * left + ["---:"] * (len(headings) - left)
    return [_row([escaped(one) for one in headings]), _row(ruler), *map(_row, rows), ""]


def sentence(text: str) -> str:
    """A verdict in bold, as a line of its own."""
    shown = escaped(text)
    return f"**{shown[0].upper()}{shown[1:]}**"


def escaped(text: str) -> str:
    """Names come from programs and files; in a comment they are only text."""
    return _SPECIAL.sub(r"\\\1", printable(text))


def _row(cells: Sequence[str]) -> str:
    # An empty cell has no text to keep its bars apart.
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"

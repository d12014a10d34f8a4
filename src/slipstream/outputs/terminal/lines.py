"""Lines of a terminal's text: a heading, tables, notes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.text import Text

from slipstream.outputs.terminal.layout import TextColumn, paragraph, table, wrap

WIDTH = 80
LEAST_WIDTH = 72

Line = tuple[str, str]
"""one line of text and its style"""


def text(lines: Iterable[Line]) -> Text:
    """Lines as one styled text."""
    return Text("\n").join(Text(line.rstrip(), style=style) for line, style in lines)


def heading(parts: Sequence[str], width: int) -> list[Line]:
    """Bold parts with dots between them, and an empty line."""
    return [*((line, "bold") for line in wrap(parts, width)), ("", "")]


def tabled(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int, top: int | None = None
) -> list[Line]:
    """A table of all rows or the first `top`, and how many were left out."""
    shown = rows[:top]
    head, *body = table(columns, shown, width)
    lines: list[Line] = [(head, "dim"), *((line, "") for line in body)]
    if left := len(rows) - len(shown):
        lines.append((f"… and {left} more: --top {len(rows)}", "dim"))
    return lines


def remarks(texts: Iterable[str], width: int) -> list[Line]:
    """What a reader must know, one paragraph each."""
    lines = [line for one in texts for line in paragraph(one, width, "! ", "  ")]
    return [("", ""), *((line, "yellow") for line in lines)] if lines else []


def what(phase: str, scope: str, description: str) -> str:
    """`backward · block/mlp · all-gather 12 MB`."""
    return " · ".join(
        part for part in (phase if phase != "other" else "", scope, description) if part
    )

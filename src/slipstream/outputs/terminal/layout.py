"""Lines of text that fit a width: headings, tables, bars, notes, elided names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from slipstream.outputs.formatting import printable

WIDTH = 80
"""columns where the output is not a terminal"""
MIN_WIDTH = 72
"""columns below which the analyses' tables are not laid out"""
ELLIPSIS = "…"
_EIGHTHS = " ▏▎▍▌▋▊▉"

Line = tuple[str, str]
"""one line of text and its style"""


@dataclass(frozen=True)
class TextColumn:
    """One column of a table: its heading, its alignment, and its width limits."""

    heading: str
    right: bool = False
    min_width: int | None = None
    """columns to which it may shrink; None if it is never cut"""
    max_width: int = 10**6
    """most columns it takes, however long its texts are"""


def elide(text: str, width: int) -> str:
    """`text`, with its middle cut out if it is wider than `width`: `loop_mult…fusion.12`."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    tail = (width - 1) // 2
    head = width - 1 - tail
    return set_cell_size(text, head).rstrip() + ELLIPSIS + _tail(text, tail)


def _tail(text: str, width: int) -> str:
    start = len(text) - width
    while cell_len(text[start:]) > width:
        start += 1
    return text[start:]


def pad(text: str, width: int, right: bool = False) -> str:
    """`text` padded with spaces to `width` columns."""
    spaces = " " * (width - cell_len(text))
    return spaces + text if right else text + spaces


def wrap(parts: Sequence[str], width: int, separator: str = " · ", indent: str = "") -> list[str]:
    """Parts joined by `separator`, wrapped only between parts."""
    lines: list[str] = []
    for part in parts:
        joined = f"{lines[-1]}{separator}{part}" if lines else indent + part
        if lines and cell_len(joined) > width:
            lines.append(indent + part)
        elif lines:
            lines[-1] = joined
        else:
            lines.append(joined)
    return [elide_line(line, width) for line in lines]


def elide_line(line: str, width: int) -> str:
    """Like `elide`, but keeps leading spaces."""
    indent = line[: len(line) - len(line.lstrip())]
    return indent + elide(line[len(indent) :], width - len(indent))


def paragraph(text: str, width: int, first: str = "", other: str = "") -> list[str]:
    """Words in lines of at most `width`; `first` starts the first line, `other` all others."""
    lines = [first]
    empty = True
    for word in text.split():
        joined = lines[-1] + word if empty else f"{lines[-1]} {word}"
        if not empty and cell_len(joined) > width:
            lines.append(other + word)
        else:
            lines[-1] = joined
        empty = False
    return lines


def table(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    width: int,
    gap: int = 2,
    stretch: int = 0,
) -> list[str]:
    """Headings and rows as lines of at most `width`; long texts are elided in the middle.

    If the texts need less than `stretch`, the first column takes the rest.
    """
    rows = [[printable(text) for text in row] for row in rows]
    widths = column_widths(columns, rows, width - gap * (len(columns) - 1))
    widths[0] += max(0, stretch - sum(widths) - gap * (len(columns) - 1))
    lines = [_line(columns, [c.heading for c in columns], widths, gap)]
    lines += [_line(columns, row, widths, gap) for row in rows]
    return lines


def _line(
    columns: Sequence[TextColumn], texts: Sequence[str], widths: Sequence[int], gap: int
) -> str:
    cells = [
        pad(elide(text, w), w, column.right)
        for column, text, w in zip(columns, texts, widths, strict=True)
    ]
    return (" " * gap).join(cells).rstrip()


def column_widths(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int
) -> list[int]:
    """Widths that fit the texts; if `width` is too small, the widest columns shrink first."""
    widths = []
    for position, column in enumerate(columns):
        longest = max((cell_len(row[position]) for row in rows), default=0)
        widths.append(max(cell_len(column.heading), min(longest, column.max_width)))
    while sum(widths) > width:
        can_shrink = [
            i for i, c in enumerate(columns) if c.min_width is not None and widths[i] > c.min_width
        ]
        if not can_shrink:
            break
        widths[max(can_shrink, key=lambda i: widths[i])] -= 1
    return widths


def styled_text(lines: Iterable[Line | Text]) -> Text:
    """Lines as one text.

    Styles vanish where there is no terminal or NO_COLOR is set; nothing is said by colour alone.
    """
    return Text("\n").join(
        line if isinstance(line, Text) else Text(printable(line[0]).rstrip(), style=line[1])
        for line in lines
    )


def heading(parts: Sequence[str], width: int) -> list[Line]:
    """Bold parts with dots between them, and an empty line."""
    return [*((line, "bold") for line in wrap(parts, width)), ("", "")]


def table_lines(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int, top: int | None = None
) -> list[Line]:
    """A table of all rows or the first `top`, and how many were left out."""
    shown = rows[:top]
    head, *body = table(columns, shown, width)
    lines: list[Line] = [(head, "dim"), *((line, "") for line in body)]
    if left := len(rows) - len(shown):
        lines.append((f"… and {left} more: --top {len(rows)}", "dim"))
    return lines


def note_lines(texts: Iterable[str], width: int) -> list[Line]:
    """Notes on a result, one paragraph each."""
    lines = [line for one in texts for line in paragraph(one, width, "! ", "  ")]
    return [("", ""), *((line, "yellow") for line in lines)] if lines else []


def bar(share: float, width: int) -> str:
    """A bar that fills `share` of `width` columns; any share above 0 shows at least `▏`."""
    clipped = min(max(share, 0.0), 1.0) if share == share else 0.0
    eighths = round(clipped * width * 8)
    if clipped > 0 and eighths == 0:
        eighths = 1
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(width)

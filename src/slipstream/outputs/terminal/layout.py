"""Lines of text that fit a width: headings, tables, bars, notes, elided names."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from slipstream.outputs.formatting import SEPARATOR, printable, share_text
from slipstream.outputs.terminal.table_options import arranged, is_wide

WIDTH = 80
"""columns where the output is not a terminal"""
MIN_WIDTH = 72
"""columns below which the analyses' tables are not laid out"""
MAX_TEXT_WIDTH = 120
"""columns of sentences, however wide the terminal is: longer lines are hard to read"""
ELLIPSIS = "…"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_UNITS = r"(?:[pnµum]?s|min|h|[kMGTP]?B(?:/s)?|[MGTP]?FLOP(?:/s)?|[MG]Hz|W|×)"
_QUANTITY = re.compile(rf"[\d.,]*\d {_UNITS}(?![^\W_])")
"""`1.07 GB`: neither a line's end nor an ellipsis comes between its number and its unit"""
_BREAK_IN_QUANTITY = re.compile(rf"(?<=\d) (?={_UNITS}(?![^\W_]))")
_NO_BREAK = "\N{NO-BREAK SPACE}"

Line = tuple[str, str]
"""one line of text and its style"""


def elide(text: str, width: int) -> str:
    """`text`, with its middle cut out if it is wider than `width`: `loop_mult…fusion.12`.

    What it ends with is kept if that is a quantity: `all-to-all ∂l…, ∂post.w 1.07 GB`.
    """
    text = printable(text)
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return ELLIPSIS[:width]
    tail = (width - 1) // 2
    quantities = list(_QUANTITY.finditer(text))
    if _ends_with_quantity(text):
        tail = max(tail, min(cell_len(quantities[-1][0]), width - 2))
    first = len(set_cell_size(text, width - 1 - tail).rstrip())
    last = len(text) - len(_tail(text, tail))
    for found in quantities:
        # The rest of a number would be another number.
        first = found.start() if found.start() < first < found.end() else first
        last = found.end() if found.start() < last < found.end() else last
    return text[:first].rstrip() + ELLIPSIS + text[last:]


def _ends_with_quantity(text: str) -> bool:
    return any(found.end() == len(text) for found in _QUANTITY.finditer(text))


def _tail(text: str, width: int) -> str:
    start = len(text) - width
    while cell_len(text[start:]) > width:
        start += 1
    return text[start:]


def elide_what(text: str, width: int) -> str:
    """`∂logits_ffn.w = …`: of a result and how it is computed, the result remains."""
    text = printable(text)
    result, equals, how = text.partition(" = ")
    room = width - cell_len(result + equals)
    if cell_len(text) <= width or not equals:
        return elide(text, width)
    if room < 1:
        return elide(result, width)
    return result + equals + (elide(how, room) if room >= _LEAST_SCOPE else ELLIPSIS)


def elide_source(source: str, width: int) -> str:
    """`embedding_s….py:390`: of a source line, the end of the file's name and the line remain."""
    source = printable(source)
    name, colon, line = source.rpartition(":")
    end = f".py:{line}" if name.endswith(".py") else f"{colon}{line}"
    room = width - cell_len(end) - 1
    if cell_len(source) <= width or not name or room < 1:
        return elide(source, width)
    return set_cell_size(name.removesuffix(".py"), room).rstrip() + ELLIPSIS + end


def elide_scope(scope: str, width: int) -> str:
    """`…/self_attention/pv_einsum`: of a scope, its innermost elements remain."""
    scope = printable(scope)
    parts = scope.split("/")
    while cell_len(scope) > width and len(parts) > 1:
        parts = parts[1:]
        scope = "/".join((ELLIPSIS, *parts))
    return elide(scope, width)


def elide_op(text: str, width: int) -> str:
    """`backward · …/self_attention · exp`: the scope is cut first, and what was computed last."""
    text = printable(text)
    if cell_len(text) <= width:
        return text
    parts = text.split(SEPARATOR)
    first = 1 if parts[0].strip() in _PHASES else 0
    if len(parts) - first < 2:
        return _without_middle(parts, width)
    before, scope, after = parts[:first], parts[first], parts[first + 1 :]
    room = width - cell_len(SEPARATOR.join((*before, "", *after)))
    if room >= min(cell_len(scope), _LEAST_SCOPE):
        return SEPARATOR.join((*before, elide_scope(scope, room), *after))
    return _without_middle((*before, *after), width)


_PHASES = ("forward", "backward", "remat", "optimizer")
"""`profile.semantics.names.PHASES` without `other`; importing it takes longer than most tables"""
_LEAST_SCOPE = 6
"""columns below which the rest of a scope tells nothing"""


def _without_middle(parts: Sequence[str], width: int) -> str:
    """Parts in `width`, with the middle of the last one cut out."""
    *before, last = parts
    head = "".join(f"{part}{SEPARATOR}" for part in before)
    room = width - cell_len(head)
    return head + elide_what(last, room) if room >= _LEAST_SCOPE else elide(head + last, width)


@dataclass(frozen=True)
class TextColumn:
    """One column of a table: its heading, its alignment, and its width limits."""

    heading: str
    right: bool = False
    min_width: int | None = None
    """columns to which it may shrink; None if it is never cut"""
    max_width: int = 10**6
    """most columns it takes, however long its texts are"""
    key: str = ""
    """what `--sort` and `--columns` call it; by default, its heading"""
    weight: int = 1
    """how many times as wide as other columns it stays where texts must be cut"""
    is_optional: bool = False
    """left out rather than texts cut"""
    is_hidden: bool = False
    """shown only if `--columns` names it"""
    shorten: Callable[[str, int], str] = elide

    @property
    def name(self) -> str:
        return self.key or self.heading


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
    """Words in lines of at most `width`; `first` starts the first line, `other` all others.

    A number and its unit stay on one line.
    """
    width = min(width, MAX_TEXT_WIDTH)
    lines = [first]
    empty = True
    for word in _words(text):
        joined = lines[-1] + word if empty else f"{lines[-1]} {word}"
        if not empty and cell_len(joined) > width:
            lines.append(other + word)
        else:
            lines[-1] = joined
        empty = False
    return lines


def _words(text: str) -> list[str]:
    glued = _BREAK_IN_QUANTITY.sub(_NO_BREAK, " ".join(text.split()))
    return [word.replace(_NO_BREAK, " ") for word in glued.split(" ") if word]


def table(
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    width: int,
    gap: int = 2,
    stretch: int = 0,
    is_fixed: bool = False,
) -> list[str]:
    """Headings and rows as lines of at most `width`; long texts are elided.

    If the texts need less than `stretch`, the first column that may shrink takes the rest. The
    user's options (`table_options`) arrange the rows, unless the table `is_fixed`: a list of facts,
    or arranged before.
    """
    if not is_fixed:
        found = arranged(columns, rows)
        columns, rows = found.columns, found.rows
        if found.note:
            return [_headings(columns, gap), found.note]
    rows = [[printable(text) for text in row] for row in rows]
    columns, rows, width = _fitting(columns, rows, width, gap)
    widths = column_widths(columns, rows, width - gap * (len(columns) - 1))
    stretched = next((i for i, c in enumerate(columns) if c.min_width is not None), 0)
    widths[stretched] += max(0, stretch - sum(widths) - gap * (len(columns) - 1))
    cells = [
        _cells(column, [row[at] for row in rows], widths[at]) for at, column in enumerate(columns)
    ]
    lines = [_line(columns, [c.heading for c in columns], widths, gap)]
    lines += [_line(columns, row, widths, gap) for row in zip(*cells, strict=True)]
    return lines


def _cells(column: TextColumn, texts: Sequence[str], width: int) -> list[str]:
    """Texts in `width`; if several are cut to the same, they are cut where they are the same."""
    cells = [column.shorten(text, width) for text in texts]
    same: dict[str, set[str]] = {}
    for text, cell in zip(texts, cells, strict=True):
        if cell != text:
            same.setdefault(cell, set()).add(text)
    apart: dict[str, str] = {}
    for cut in same.values():
        if len(cut) > 1 and column.shorten in (elide, elide_op):
            apart |= told_apart(sorted(cut), width)
    return [apart.get(text, cell) for text, cell in zip(texts, cells, strict=True)]


def told_apart(texts: Sequence[str], width: int) -> dict[str, str]:
    """Texts in `width` that show where they differ: `sm80_gemm…tilesize64x256x8_sta…`.

    Those that differ in nothing but scopes, or end with a quantity, are left out.
    """
    phases = [text.partition(SEPARATOR)[0] for text in texts]
    heads = [f"{one}{SEPARATOR}" if one.strip() in _PHASES else "" for one in phases]
    whats = [text.rpartition(SEPARATOR)[2] for text in texts]
    if len(set(whats)) < len(whats) or any(_ends_with_quantity(what) for what in whats):
        return {}
    return {
        text: head + what
        for text, head, what in zip(
            texts, heads, _apart(whats, width - max(map(len, heads))), strict=True
        )
    }


def _apart(names: Sequence[str], width: int) -> list[str]:
    """Names from the word on in which they differ, after their beginning."""
    shared = len(commonprefix(list(names)))
    start = max((names[0].rfind(mark, 0, shared) + 1 for mark in "_ :<(,./-"), default=0)
    first = width // 3
    if start <= first + 1:
        found = [name if len(name) <= width else name[: width - 1] + ELLIPSIS for name in names]
    else:
        ends = [name[start:] for name in names]
        room = width - first - 1
        ends = [end if len(end) <= room else end[: room - 1] + ELLIPSIS for end in ends]
        found = [name[:first] + ELLIPSIS + end for name, end in zip(names, ends, strict=True)]
    for same in {one for one in found if found.count(one) > 1}:
        places = [at for at, one in enumerate(found) if one == same]
        if len(places) < len(names):
            for at, one in zip(places, _apart([names[at] for at in places], width), strict=True):
                found[at] = one
    return found


def _headings(columns: Sequence[TextColumn], gap: int) -> str:
    return _line(columns, [c.heading for c in columns], [cell_len(c.heading) for c in columns], gap)


def _fitting(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], width: int, gap: int
) -> tuple[list[TextColumn], list[list[str]], int]:
    """The table without columns for which there is no room, and its width."""
    kept = list(range(len(columns)))
    if is_wide():
        wide = [replace(column, max_width=10**6) for column in columns]
        return wide, [list(row) for row in rows], 10**6
    for place in reversed(range(len(columns))):
        used = [columns[one] for one in kept]
        texts = [[row[one] for one in kept] for row in rows]
        needed = sum(column_widths(used, texts, 10**6)) + gap * (len(kept) - 1)
        if needed > width and columns[place].is_optional:
            kept.remove(place)
    return [columns[one] for one in kept], [[row[one] for one in kept] for row in rows], width


def _line(
    columns: Sequence[TextColumn], texts: Sequence[str], widths: Sequence[int], gap: int
) -> str:
    cells = [
        pad(text, w, column.right) for column, text, w in zip(columns, texts, widths, strict=True)
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
        widths[max(can_shrink, key=lambda i: widths[i] / columns[i].weight)] -= 1
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
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    width: int,
    top: int | None = None,
    shares: Sequence[float] = (),
    are_filtered: bool = True,
) -> list[Line]:
    """A table of all rows or the first `top`, and how many were left out.

    `shares` of the rows, if given, say how much those together are.
    """
    found = arranged(columns, rows, are_filtered=are_filtered)
    shown = found.rows[:top]
    head, *body = table(found.columns, shown, width, is_fixed=True)
    lines: list[Line] = [(head, "dim"), *((line, "") for line in body)]
    if found.note:
        lines.append((found.note, ""))
    if left := len(found.rows) - len(shown):
        rest = sum(shares[row] for row in found.order[len(shown) :]) if shares else None
        together = f", {share_text(rest)} together" if rest is not None else ""
        lines.append((f"… and {left} more{together}: --top {len(found.rows)}", "dim"))
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

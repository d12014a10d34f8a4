"""Rows that a query returned, as a table, CSV or JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import isfinite
from numbers import Number
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from slipstream.outputs.formatting import csv_cell
from slipstream.outputs.terminal.layout import TextColumn, elide, pad, table
from slipstream.outputs.terminal.table_options import arranged, is_asked, is_wide

MAX_ROWS = 1000
"""rows printed to a terminal; CSV and JSON get all"""


@dataclass(frozen=True)
class QueryResult:
    """What a query returned."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]


def render_rows(found: QueryResult, width: int = 80) -> Text:
    """A table with right-aligned numbers and elided texts."""
    # Rows behind these are looked at only to be sorted or filtered.
    rows = found.rows if is_asked() else found.rows[:MAX_ROWS]
    cells = [_cells([row[i] for row in rows]) for i in range(len(found.columns))]
    columns = [
        TextColumn(name, right=_numeric(row[i] for row in rows), min_width=_least(cells[i]))
        for i, name in enumerate(found.columns)
    ]
    asked = arranged(columns, list(zip(*cells, strict=True)))
    shown = asked.rows[:MAX_ROWS]
    heading, *lines = table(asked.columns, shown, width, is_fixed=True)
    if not is_wide() and max((cell_len(line) for line in lines), default=0) > width:
        heading, *lines = _one_below_another([one.heading for one in asked.columns], shown, width)
    lines = lines or [asked.note or "no rows"]
    if left := len(found.rows) - len(rows) + len(asked.rows) - len(shown):
        lines.append(f"… and {left} more rows; add a limit, or get all with --csv or --json")
    return Text("\n").join([Text(heading, style="dim"), *(Text(line) for line in lines)])


def _one_below_another(
    names: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> list[str]:
    """For rows of too many columns to stand side by side."""
    longest = max(cell_len(name) for name in names)
    lines = []
    for number, row in enumerate(rows, 1):
        lines.append(f"row {number}")
        for name, cell in zip(names, row, strict=True):
            lines.append(f"  {pad(name, longest)}  {elide(cell, width - longest - 4)}")
    return lines


def rows_csv(found: QueryResult) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(csv_cell, found.columns))
    writer.writerows(map(csv_cell, row) for row in found.rows)
    return out.getvalue().removesuffix("\n")


def rows_json(found: QueryResult) -> list[dict[str, Any]]:
    """What `query --json` prints: one object for each row."""
    return [dict(zip(found.columns, row, strict=True)) for row in found.rows]


def _numeric(values: Iterable[Any]) -> bool:
    known = [value for value in values if value is not None]
    return bool(known) and all(isinstance(v, Number) and not isinstance(v, bool) for v in known)


def _least(cells: list[str]) -> int | None:
    """Numbers are never cut, and texts not below eight columns."""
    return None if all(cell.lstrip("-")[:1].isdigit() for cell in cells) else 8


def _cells(values: list[Any]) -> list[str]:
    """Texts of a column; its decimals all have as many digits, six in the largest number."""
    largest = max((abs(v) for v in values if isinstance(v, float) and isfinite(v)), default=0.0)
    digits = max(0, 6 - len(f"{largest:.0f}"))
    return [
        "–" if v is None else f"{v:.{digits}f}" if isinstance(v, float) else str(v) for v in values
    ]

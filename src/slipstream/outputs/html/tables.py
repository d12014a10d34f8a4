"""Sortable tables: aligned numbers, the first rows, and a button for the rest."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from slipstream.outputs.formatting import column_unit, name_and_size, share_text, time_text
from slipstream.outputs.html.markup import Html, tag
from slipstream.units import format_bytes

SHOWN = 10
MOST_DIGITS = 3
"""behind the point of a time, however small the changes beside it are"""
MOST = 300
"""rows of a table; longer ones refer to the command line"""


@dataclass(frozen=True)
class TableColumn:
    """One column; wide ones are hidden on phones."""

    title: str
    is_number: bool = False
    is_wide: bool = False
    is_code: bool = False

    def classes(self, is_head: bool = False) -> str | None:
        marks = (("n", self.is_number), ("c", self.is_code and not is_head), ("w", self.is_wide))
        return " ".join(mark for mark, wanted in marks if wanted) or None


def number(title: str, wide: bool = False) -> TableColumn:
    return TableColumn(title, is_number=True, is_wide=wide)


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and the value it sorts by."""

    shown: Html | str
    value: float | None = None


Row = list[Cell | Html | str]


def table(
    columns: Sequence[TableColumn],
    rows: Sequence[Row],
    label: str,
    shown: int = SHOWN,
    more: str = "",
) -> Html:
    """A table in a scrollable box; `more` is the command that prints rows beyond the limit."""
    name = f"table-{re.sub(r'[^a-z0-9]+', '-', label.lower())}"
    heads = [
        tag(
            "th",
            tag("button", column.title, type="button"),
            class_=column.classes(True),
            scope="col",
        )
        if column.title and len(rows) > 1
        else tag("th", column.title, class_=column.classes(True), scope="col")
        for column in columns
    ]
    body = [
        tag(
            "tr",
            [_cell(cell, column) for cell, column in zip(row, columns, strict=True)],
            class_="more" if at >= shown else None,
        )
        for at, row in enumerate(rows[:MOST])
    ]
    made = tag(
        "table",
        tag("thead", tag("tr", heads)),
        tag("tbody", body),
        id=name,
        class_="sortable",
        aria_label=label,
    )
    box = tag("div", made, class_="scroll", role="region", aria_label=label, tabindex=0)
    left = f" The other {len(rows) - MOST:,}: {more}" if len(rows) > MOST and more else ""
    note = tag("p", f"The first {MOST} of {len(rows):,} rows.{left}", class_="note")
    return tag(
        "div", box, _button(name, min(len(rows), MOST), shown), note if len(rows) > MOST else None
    )


def _button(name: str, count: int, shown: int) -> Html | None:
    if count <= shown:
        return None
    text = f"Show all {count}"
    return tag(
        "button",
        text,
        type="button",
        class_="button showall",
        aria_controls=name,
        aria_expanded="false",
        data_text=text,
    )


def _cell(cell: Cell | Html | str, column: TableColumn) -> Html:
    if isinstance(cell, Cell):
        # Unknown values sort below all others.
        value = -1e300 if cell.value is None or math.isnan(cell.value) else cell.value
        return tag("td", cell.shown, class_=column.classes(), data_v=repr(value))
    return tag("td", cell, class_=column.classes())


# Cells.


def us_cell(us: float | None) -> Cell:
    text = "–" if us is None else time_text(us) if us else "0"
    return Cell(text, us)


def bytes_cell(size: float | None) -> Cell:
    return Cell("–" if size is None else format_bytes(size), size)


def rate_cell(bytes_per_second: float | None) -> Cell:
    text = "–" if bytes_per_second is None else f"{format_bytes(bytes_per_second)}/s"
    return Cell(text, bytes_per_second)


def count_cell(count: float | None) -> Cell:
    return Cell("–" if count is None else f"{count:,.0f}", count)


def share_cell(share: float | None, digits: int = 1) -> Cell:
    return Cell("–" if share is None else share_text(share, digits), share)


def named_cell(name: str, below: str = "") -> Html:
    """A description, and the name below it in small letters."""
    start, size = name_and_size(name)
    shown = (start, " ", tag("span", size, class_="nb")) if size else (name,)
    return tag("span", *shown, tag("small", below, class_="c") if below and below != name else None)


def with_equals(name: str, count: int) -> str:
    """`fusion.24 and 11 like it`: an instruction, and how many do the same in other layers."""
    return f"{name} and {count - 1} like it" if count > 1 else name


class TimeColumn:
    """Cells of one column in one unit, so that digits line up."""

    def __init__(self, times_us: Sequence[float | None], changes_us: Sequence[float] = ()) -> None:
        """`changes_us` are shown in the same unit, with digits enough for the smallest."""
        known = [us for us in times_us if us is not None]
        self.unit, self._scale, self._digits = column_unit(known)
        least = min((abs(us) for us in changes_us if us and math.isfinite(us)), default=math.inf)
        if least < self._scale:
            wanted = 1 - math.floor(math.log10(least / self._scale))
            self._digits = max(self._digits, min(wanted, MOST_DIGITS))

    def text(self, us: float) -> str:
        return f"{us / self._scale:.{self._digits}f}" if math.isfinite(us) else "–"

    def cell(self, us: float | None) -> Cell:
        if us is None or math.isnan(us):
            return Cell("–", None)
        return Cell(self.text(us), us)

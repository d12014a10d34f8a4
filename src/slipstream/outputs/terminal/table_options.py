"""Which rows and columns of tables a user asked for: `--sort`, `--filter`, `--columns`, `--wide`.

Every table of a command is arranged by the same options, which `arranging` sets while it renders:

    rows ─► those that match ─► sorted ─► chosen columns ─► the first `--top`

Cells are texts by then, so numbers are read back from them: `1.2 ms` sorts above `900 µs`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.outputs.terminal.layout import TextColumn

T = TypeVar("T")
_ORDERS = ("asc", "desc")
_NUMBER = re.compile(
    r"[<~≥>]?\s*(?P<number>[+\-−]?\d[\d,]*(?:\.\d+)?(?:e[+\-]?\d+)?)\s*(?P<unit>[A-Za-zµ%×/]*)"
)
_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12, "PB": 1e15}
_SCALES = {
    **{"ps": 1e-12, "ns": 1e-9, "µs": 1e-6, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0},
    **{"h": 3600.0, "d": 86400.0, "%": 0.01, "×": 1.0, "": 1.0, "k": 1e3, "M": 1e6, "T": 1e12},
    **_BYTES,
    **{f"{unit}/s": scale for unit, scale in _BYTES.items()},
    **{f"{unit}FLOP": scale for unit, scale in zip("MGTP", (1e6, 1e9, 1e12, 1e15), strict=True)},
}


@dataclass
class TableOptions:
    """What was asked for, and the columns that the tables turned out to have."""

    sort: str = ""
    """name of a column, with `:asc` or `:desc`"""
    matching: re.Pattern[str] | None = None
    """rows are shown if one of their texts, shown or not, matches"""
    columns: tuple[str, ...] = ()
    is_wide: bool = False
    known: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """columns of the tables that were rendered, and all that each may be called"""
    has_match: bool = False
    """whether a row of one of these tables matched"""
    has_miss: bool = False
    """whether one of them said that no row matches"""

    @property
    def sorted_by(self) -> tuple[str, str]:
        """The column to sort by, and the order if one was asked for."""
        name, _, order = self.sort.rpartition(":")
        return (name, order) if name and order in _ORDERS else (self.sort, "")


_options: ContextVar[TableOptions | None] = ContextVar("table_options", default=None)


def table_options(
    sort: str | None = None,
    pattern: str | None = None,
    columns: str | None = None,
    is_wide: bool = False,
) -> TableOptions:
    """The options as typed; BadInput if the pattern is not a regular expression."""
    matching = None
    if pattern is not None:
        try:
            matching = re.compile(pattern, re.IGNORECASE)
        except re.error as error:
            raise BadInput(
                f"--filter {pattern!r} is not a regular expression ({error}); to search for the "
                f"characters themselves: --filter '{re.escape(pattern)}'"
            ) from None
    names = tuple(name.strip() for name in (columns or "").split(",") if name.strip())
    if columns is not None and not names:
        raise BadInput(
            "--columns names no column; expected names with commas: --columns what,share"
        )
    return TableOptions(sort or "", matching, names, is_wide)


@contextmanager
def arranging(options: TableOptions | None) -> Iterator[None]:
    """Tables that are rendered inside follow these options."""
    token = _options.set(options)
    try:
        yield
    finally:
        _options.reset(token)


def arranged_tables(render: Callable[[], T]) -> T:
    """What `render` returns; none of its tables says that no row matches if another has one."""
    found = render()
    options = _options.get()
    if options is not None and options.has_match and options.has_miss:
        return render()  # tables before the one with the match couldn't know of it
    return found


def check_columns() -> None:
    """BadInput if a column that was asked for is in none of the tables that were rendered."""
    options = _options.get()
    if options is None or not options.known:
        return
    for name in (*options.columns, *([options.sorted_by[0]] if options.sort else [])):
        if not any(_same(name, one) for names in options.known.values() for one in names):
            raise BadInput(no_such("column", name, list(options.known)))


def is_asked() -> bool:
    """Whether the user asked for anything."""
    return _options.get() is not None


def is_wide() -> bool:
    """Whether tables may be as wide as their texts."""
    options = _options.get()
    return options is not None and options.is_wide


@dataclass(frozen=True)
class Arranged:
    """A table as asked for."""

    columns: Sequence[TextColumn]
    rows: Sequence[Sequence[str]]
    order: Sequence[int]
    """which of the given rows each one is"""
    note: str = ""
    """said in place of rows, if none is left in any table"""


def is_match(texts: Iterable[str]) -> bool:
    """Whether one of the texts matches `--filter`, or nothing is filtered."""
    options = _options.get()
    pattern = options.matching if options is not None else None
    return pattern is None or any(pattern.search(text) for text in texts)


def is_filtered() -> bool:
    """Whether the user asked for rows that match."""
    options = _options.get()
    return options is not None and options.matching is not None


def no_match() -> str:
    """What is said in place of rows that all were filtered out; empty if nothing is filtered."""
    options = _options.get()
    return _nothing(options) if options is not None and is_filtered() else ""


def arranged(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], *, are_filtered: bool = True
) -> Arranged:
    """Rows and columns as the options ask; without options, the columns that are not hidden."""
    options = _options.get()
    order = list(range(len(rows)))
    note = ""
    if options is not None:
        options.known |= {column.name: _names(column) for column in columns if column.name}
        order = [row for row in order if not are_filtered or is_match(rows[row])]
        options.has_match |= are_filtered and bool(order)
        note = _nothing(options) if rows and not order and not options.has_match else ""
        options.has_miss |= bool(note)
        order = _in_order(options, columns, rows, order)
    places = _places(options, columns)
    chosen = [columns[place] for place in places]
    if options is not None and options.columns:
        chosen = [replace(column, is_optional=False) for column in chosen]
    return Arranged(chosen, [[rows[row][place] for place in places] for row in order], order, note)


def _nothing(options: TableOptions) -> str:
    pattern = options.matching.pattern if options.matching is not None else ""
    return f"no row matches {pattern!r}"


def _in_order(
    options: TableOptions,
    columns: Sequence[TextColumn],
    rows: Sequence[Sequence[str]],
    order: list[int],
) -> list[int]:
    """Rows by one column: numbers from the largest on, texts from A on; unknown ones are last."""
    name, asked = options.sorted_by
    place = _place(columns, name) if name else None
    if place is None:
        return order
    texts = {row: rows[row][place] for row in order}
    numbers = {row: number for row in order if (number := cell_number(texts[row])) is not None}
    if not columns[place].right:
        return sorted(order, key=lambda row: texts[row].casefold(), reverse=asked == "desc")
    sign = 1 if asked == "asc" else -1
    return sorted(order, key=lambda row: (row not in numbers, sign * numbers.get(row, 0.0)))


def _places(options: TableOptions | None, columns: Sequence[TextColumn]) -> list[int]:
    if options is not None and options.columns:
        found = [_place(columns, name) for name in options.columns]
        if any(place is not None for place in found):
            return [place for place in found if place is not None]
    return [place for place, column in enumerate(columns) if not column.is_hidden]


def _place(columns: Sequence[TextColumn], name: str) -> int | None:
    """A column by its name, or by what stands above it."""
    by_name = [place for place, column in enumerate(columns) if _same(name, column.name)]
    called = [
        place
        for place, column in enumerate(columns)
        if any(_same(name, one) for one in _names(column))
    ]
    return next(iter([*by_name, *called]), None)


def _names(column: TextColumn) -> tuple[str, ...]:
    """All that `--sort` and `--columns` may call a column: `time` and `ms`, `net` and `net, ms`."""
    short, _, _ = column.heading.partition(", ")
    # The unit depends on the recording: a command typed for one must work for another.
    is_time = column.name == "time" or column.heading in _TIME_UNITS
    units = _TIME_UNITS if is_time else ()
    return tuple(dict.fromkeys(one for one in (column.name, column.heading, short, *units) if one))


_TIME_UNITS = ("s", "ms", "µs", "us")


def _same(asked: str, name: str) -> bool:
    return asked.strip().casefold().replace("_", " ") == name.casefold().replace("_", " ")


def cell_number(text: str) -> float | None:
    """The number that a cell shows, in its unit's base: `1.5 ms` is 0.0015; None if it has none."""
    found = _NUMBER.match(text.strip())
    if found is None:
        return None
    number = float(found["number"].replace(",", "").replace("−", "-"))
    return number * _SCALES.get(found["unit"], 1.0)

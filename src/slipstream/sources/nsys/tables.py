"""Tables of an Nsight Systems export as columns.

Exports differ by release: empty tables are missing, columns come and go, and a name is an index
into `StringIds` or the text itself. So callers name columns and their defaults; native code reads
them (see `sqlite_pages`), or SQL where it can't.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import Array
from slipstream.sources.files import open_bytes
from slipstream.sources.nsys.sqlite_pages import (
    IGNORED,
    MIXED,
    TEXT,
    SqlitePages,
    intern,
    read_rows,
)

_AT_ONCE = 65536
"""rows fetched at once by SQL"""
_LONGEST = 64 << 20
"""bytes of the longest text"""
_STEPS_AT_ONCE = 1_000_000
_STEPS_PER_BYTE = 16
"""steps of SQLite's virtual machine that a query may take: reading a whole file takes about one
for each byte; pages that lead to each other would take forever"""
_ACTIONS = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_PRAGMA)


@dataclass(frozen=True)
class ExportRows:
    """Columns of one table by name; text columns are indices into `texts`, -1 for none."""

    columns: Mapping[str, Array]
    texts: Mapping[str, list[str]] = field(default_factory=dict)
    rowid: Array = field(default_factory=lambda: np.empty(0, np.int64))
    digest: Array = field(default_factory=lambda: np.empty(0, np.int64))
    """equal for rows whose mixed columns are equal"""

    def __len__(self) -> int:
        return len(self.rowid)

    def __getitem__(self, column: str) -> Array:
        return self.columns[column]


class Export:
    """An open export; `source` is the file to name in errors, if `path` is temporary.

    A file may define views, functions and recursive queries under the names of an export's tables.
    Only tables are read, and no query runs longer than it takes to read the whole file.
    """

    def __init__(self, path: Path, source: Path | None = None) -> None:
        self.path = path
        self.source = source or path
        self.table = "sqlite_master"
        """the table that was last read, for errors"""
        # A log next to the file holds rows that are not in the file yet.
        settled = not any(Path(f"{path}{end}").exists() for end in ("-wal", "-journal"))
        options = "mode=ro&immutable=1" if settled else "mode=ro"
        try:
            self.connection = sqlite3.connect(
                f"{path.resolve().as_uri()}?{options}", uri=True, check_same_thread=False
            )
            self._limit(path.stat().st_size)
            found = self._execute("SELECT name, type, rootpage FROM sqlite_master").fetchall()
        except (sqlite3.Error, UnicodeDecodeError, OSError) as error:
            raise damaged_export(self.source, error) from None
        self._roots = {n: r for n, kind, r in found if kind == "table" and isinstance(r, int)}
        self._views = {name for name, kind, _ in found if kind == "view"}
        self._pages = SqlitePages.of(open_bytes(path)) if settled else None
        self._columns: dict[str, dict[str, str]] = {}

    def _limit(self, size: int) -> None:
        connection = self.connection
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST)
        connection.execute("PRAGMA trusted_schema = OFF")
        # Names of kernels are not always valid UTF-8.
        connection.text_factory = lambda text: text.decode("utf-8", "replace")
        connection.set_authorizer(_authorize)
        self._most_steps = _STEPS_PER_BYTE * size + 10 * _STEPS_AT_ONCE
        connection.set_progress_handler(self._count_steps, _STEPS_AT_ONCE)

    def _count_steps(self) -> bool:
        """Whether to interrupt the query."""
        self._steps += _STEPS_AT_ONCE
        return self._steps > self._most_steps

    def _execute(self, query: str, values: tuple[Any, ...] = ()) -> sqlite3.Cursor:
        self._steps = 0
        return self.connection.execute(query, values)

    def close(self) -> None:
        self.connection.close()

    def has(self, table: str) -> bool:
        return table in self._roots

    def columns(self, table: str) -> dict[str, str]:
        """Declared type of each of a table's columns; empty if there is no such table."""
        self.table = table
        if table in self._views or self._roots.get(table) == 0:
            raise self.damaged("a query under the name of a table")
        if table not in self._columns:
            found = self._execute(f'PRAGMA table_info("{table}")') if self.has(table) else ()
            self._columns[table] = {row[1]: row[2].upper() for row in found}
        return self._columns[table]

    def damaged(self, seen: str) -> BadInput:
        """The error for content of the table that was last read."""
        return BadInput(
            f"{self.source} is damaged: table {self.table} has {seen}; export it again with: "
            "nsys export --type sqlite report.nsys-rep"
        )

    def first_of(self, table: str, *names: str) -> str | None:
        """The first of these columns that the table has: new and old names of one column."""
        known = self.columns(table)
        return next((name for name in names if name in known), None)

    def read(
        self,
        table: str,
        numbers: Mapping[str, int],
        texts: Sequence[str] = (),
        mixed: Sequence[str] = (),
    ) -> ExportRows:
        """Columns of a table; `numbers` maps names to the default for NULL and missing columns."""
        known = self.columns(table)
        if not known:
            empty = np.empty(0, np.int64)
            return ExportRows(dict.fromkeys((*numbers, *texts), empty), {t: [] for t in texts})
        query = _Query(
            {name: fill for name, fill in numbers.items() if name in known},
            numbers,
            [name for name in texts if name in known],
            texts,
            # A column is read into one place only.
            [name for name in mixed if name in known and name not in numbers],
        )
        rows = self._read_pages(table, query) if self._pages else None
        return query.completed(rows or self._read_sql(table, query))

    def _read_pages(self, table: str, query: _Query) -> ExportRows | None:
        known = list(self.columns(table))
        slots = np.full(len(known), IGNORED, np.int64)
        fills = np.zeros(len(known), np.int64)
        for place, (name, fill) in enumerate(query.numbers.items()):
            slots[known.index(name)], fills[known.index(name)] = place + 2, fill
        for place, name in enumerate(query.texts):
            slots[known.index(name)] = TEXT + 2 + len(query.numbers) + 2 * place
        for name in query.mixed:
            slots[known.index(name)] = MIXED
        assert self._pages is not None
        count = 2 + len(query.numbers) + 2 * len(query.texts)
        found = read_rows(self._pages, self._roots[table], slots, fills, count)
        if found is None:
            return None
        columns = dict(zip(query.numbers, found[2:], strict=False))
        texts = {}
        for name in query.texts:
            at = int(slots[known.index(name)]) - TEXT
            columns[name], texts[name] = intern(self._pages.data, found[at], found[at + 1])
        return ExportRows(columns, texts, found[0], found[1])

    def _read_sql(self, table: str, query: _Query) -> ExportRows:
        names = (*query.numbers, *query.texts, *query.mixed)
        listed = ", ".join(("rowid", *(f'"{name}"' for name in names)))
        fills = [query.numbers.get(name) for name in names]
        words: dict[str, dict[str, int]] = {name: {} for name in query.texts}
        pieces = []
        cursor = self._execute(f'SELECT {listed} FROM "{table}"')
        while rows := cursor.fetchmany(_AT_ONCE):
            self._check_integers(rows, names, {*query.numbers, *query.mixed})
            pieces.append(_numbered(rows, query, fills, words))
        table_ = np.concatenate(pieces, axis=1) if pieces else np.empty((len(names) + 2, 0), int)
        columns = dict(zip((*query.numbers, *query.texts), table_[2:], strict=False))
        return ExportRows(columns, {n: list(w) for n, w in words.items()}, table_[0], table_[1])

    def select(
        self, table: str, *names: str, of_any_type: Sequence[str] = ()
    ) -> Iterator[tuple[Any, ...]]:
        """Rows of a small table, by SQL: integers or None, other values only where named.

        A missing column is None in every row.
        """
        known = self.columns(table)
        if not known:
            return iter(())
        listed = ", ".join(f'"{name}"' if name in known else "NULL" for name in names)
        rows = self._execute(f'SELECT rowid, {listed} FROM "{table}"').fetchall()
        self._check_integers(rows, names, {*names} - {*of_any_type})
        return (row[1:] for row in rows)

    def rows_by_id(
        self, table: str, ids: Sequence[int], names: Sequence[str]
    ) -> list[tuple[int | None, ...]]:
        """Integers of rows of a table, in the order of `ids`."""
        known = self.columns(table)
        listed = ", ".join(f'"{name}"' if name in known else "NULL" for name in names)
        query = f'SELECT rowid, {listed} FROM "{table}" WHERE rowid = ?'
        found = []
        for one in ids:
            row = self._execute(query, (one,)).fetchone()
            if row is None:
                raise self.damaged(f"row {one} in its pages, but not in its index")
            found.append(row)
        self._check_integers(found, names, set(names))
        return [row[1:] for row in found]

    def strings(self, ids: Array) -> dict[int, str]:
        """Texts of `StringIds` by id."""
        wanted = set(ids.tolist())
        if not {"id", "value"} <= self.columns("StringIds").keys():
            return {}
        found = self._execute('SELECT "id", "value" FROM "StringIds"')
        return {number: str(text) for number, text in found if number in wanted}

    def _check_integers(
        self, rows: Sequence[tuple[Any, ...]], names: Sequence[str], integers: set[str]
    ) -> None:
        """BadInput for values of other types; rows start with their id."""
        for place, name in enumerate(names, 1):
            if name not in integers:
                continue
            for row in rows:
                if type(row[place]) is not int and row[place] is not None:
                    seen = f"{str(row[place])[:40]!r} in column {name} of row {row[0]}"
                    raise self.damaged(f"{seen}, expected an integer")


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, view: str | None
) -> int:
    """Allow to read tables, not to run what a file defines: views, functions, recursion."""
    allowed = action in _ACTIONS and view is None
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY


def damaged_export(path: Path, error: Exception) -> BadInput:
    """The error for a file that SQLite can't read."""
    return BadInput(
        f"{path} is not a complete SQLite file ({error}); export it again with: "
        "nsys export --type sqlite report.nsys-rep"
    )


@dataclass(frozen=True)
class _Query:
    """What to read from a table: columns that it has, and those that were asked for."""

    numbers: Mapping[str, int]
    fills: Mapping[str, int]
    texts: Sequence[str]
    asked_texts: Sequence[str]
    mixed: Sequence[str]

    def completed(self, rows: ExportRows) -> ExportRows:
        """Rows with the defaults of the columns that the table lacks."""
        columns = dict(rows.columns)
        for name, fill in self.fills.items():
            if name not in columns:
                columns[name] = np.full(len(rows), fill, np.int64)
        missing = [name for name in self.asked_texts if name not in columns]
        columns |= {name: np.full(len(rows), -1, np.int32) for name in missing}
        texts = {**rows.texts, **{name: [] for name in missing}}
        return ExportRows(columns, texts, rows.rowid, rows.digest)


def _numbered(
    rows: list[tuple[Any, ...]],
    query: _Query,
    fills: list[int | None],
    words: dict[str, dict[str, int]],
) -> Array:
    """Rows as integers: rowid, digest, numbers, and indices of texts."""
    numbers, texts = len(query.numbers), len(query.texts)
    out = []
    for row in rows:
        values = [f if v is None else v for v, f in zip(row[1:], fills, strict=True)]
        for place, name in enumerate(query.texts, numbers):
            known = words[name]
            text = row[1 + place]
            values[place] = -1 if text is None else known.setdefault(str(text), len(known))
        digest = hash(tuple(values[numbers + texts :]))
        out.append((row[0], digest, *values[: numbers + texts]))
    return np.ascontiguousarray(np.array(out, np.int64).T)

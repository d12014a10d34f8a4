"""SQLite's pages, read without SQL, against what SQL says."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.sources.nsys.sqlite_pages import IGNORED, SqlitePages, read_rows
from slipstream.sources.nsys.tables import Export

_VALUES = st.one_of(
    st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1), st.integers(-(2**33), 2**33)
)


@given(
    rows=st.lists(
        st.tuples(_VALUES, st.none() | st.text(max_size=300), _VALUES, _VALUES), max_size=400
    ),
    page=st.sampled_from([512, 4096, 65536]),
)
def test_pages_hold_what_sql_says(
    rows: list[tuple[int | None, str | None, int | None, int | None]],
    page: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("pages") / "t.sqlite"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"PRAGMA page_size = {page}")
        db.execute("CREATE TABLE t (a INTEGER, text TEXT, b INTEGER)")
        db.executemany("INSERT INTO t VALUES (?, ?, ?)", [row[:3] for row in rows])
        # Rows from before a column was added end before it.
        db.execute("ALTER TABLE t ADD COLUMN c INTEGER")
        db.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    with closing(Export(path)) as export:
        fast = export.read("t", {"a": -5, "b": 7, "c": 0, "d": 9}, ("text",), ("b", "c"))
        export._pages = None
        slow = export.read("t", {"a": -5, "b": 7, "c": 0, "d": 9}, ("text",), ("b", "c"))
    assert len(fast) == 2 * len(rows)
    for column in ("a", "b", "c", "d"):
        assert fast[column].tolist() == slow[column].tolist()
    texts = [[r.texts["text"][i] if i >= 0 else None for i in r["text"]] for r in (fast, slow)]
    assert texts[0] == texts[1] == [row[1] for row in rows] * 2


HUGE = 2**63 - 1


def varint(value: int) -> bytes:
    """As SQLite writes it: the highest seven bits first, all eight of a ninth byte."""
    if value >= 1 << 56:
        rest = value >> 8
        return bytes(rest >> 7 * i & 127 | 128 for i in range(7, -1, -1)) + bytes([value & 255])
    size = max(1, -(-value.bit_length() // 7))
    return bytes(value >> 7 * i & 127 | (128 if i else 0) for i in range(size - 1, -1, -1))


def one_row(payload: int, header: int, *types: int) -> SqlitePages:
    """A table of one row, whose sizes are what they say."""
    cell = b"".join(varint(number) for number in (payload, 1, header, *types))
    data = bytearray(1024)
    data[512:522] = bytes([13, 0, 0, 0, 1, 0, 0, 0]) + (16).to_bytes(2, "big")
    data[528 : 528 + len(cell)] = cell
    return SqlitePages(np.frombuffer(bytes(data), np.uint8), 512, 512)


@pytest.mark.parametrize(
    "sizes",
    [
        (HUGE, HUGE, 1),
        (HUGE, HUGE - 800, 1),
        (HUGE, 40, HUGE, HUGE, 1),
        (HUGE, 40, HUGE, HUGE, HUGE),
        (2**62, 40, HUGE, HUGE, 12),
        (100, 5, 200, 200, 1),
    ],
)
def test_sizes_that_wrap_are_refused(sizes: tuple[int, ...]) -> None:
    """A row states the sizes of all its values, also of those in columns that nobody reads."""
    pages = one_row(*sizes)
    slots = np.array([IGNORED, IGNORED, 2], np.int64)
    assert read_rows(pages, 2, slots, np.zeros(3, np.int64), 3) is None


def test_the_row_of_these_tests_is_one() -> None:
    found = read_rows(one_row(6, 4, 8, 9, 9), 2, np.array([IGNORED, 2, 3]), np.zeros(3, int), 4)
    assert found is not None
    assert found[[0, 2, 3]].tolist() == [[1], [1], [1]]

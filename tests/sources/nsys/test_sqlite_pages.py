"""SQLite's pages, read without SQL, against what SQL says."""

import sqlite3
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

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

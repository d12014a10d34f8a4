"""Tables, and their conversion to pandas, polars and pyarrow."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import profile
from slipstream.errors import Missing
from slipstream.profile.events import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    TRANSFER_COLUMNS,
    Table,
    Texts,
)

ALL = (EVENT_COLUMNS, HOST_COLUMNS, TRANSFER_COLUMNS)


def plain(table: Table) -> dict[str, list[object]]:
    """A table as lists, text by text."""
    return {
        c.name: [table.text(c.name, row) for row in range(len(table))]
        if c.text
        else table[c.name].tolist()
        for c in table.columns
    }


@st.composite
def tables(draw: st.DrawFn) -> Table:
    columns = draw(st.sampled_from(ALL))
    texts = ["", *draw(st.lists(st.text(min_size=1, max_size=5), max_size=4, unique=True))]
    size = draw(st.integers(0, 5))
    arrays = {}
    for column in columns:
        values = st.integers(0, len(texts) - 1)
        if not column.text and column.dtype != bool:
            least = np.iinfo(column.dtype)
            values = st.integers(int(least.min), int(least.max))
        elif column.dtype == bool:
            values = st.booleans()
        drawn = draw(st.lists(values, min_size=size, max_size=size))
        arrays[column.name] = np.array(drawn, column.dtype)
    return Table(columns, arrays, texts)


@given(tables())
def test_round_trips(table):
    expected = plain(table)
    assert {name: list(column) for name, column in table.to_pandas().items()} == expected
    assert table.to_arrow().to_pydict() == expected
    assert table.to_polars().to_dict(as_series=False) == expected
    decoded = {c.name: table.decoded(c).tolist() for c in table.columns}
    assert decoded == expected


def test_types_survive():
    table = profile().kernel("dot.1", 10).build().events
    frame = table.to_pandas()
    assert str(frame["start_ps"].dtype) == "int64"
    assert str(frame["name"].dtype) == "category"
    assert str(table.to_arrow().schema.field("lane").type) == "int32"
    assert str(table.to_polars()["op"].dtype).startswith("Categorical")


@pytest.mark.parametrize(
    "method, package, extra",
    [("to_pandas", "pandas", "tables"), ("to_polars", "polars", "tables"),
     ("to_arrow", "pyarrow", "parquet")],
)  # fmt: skip
def test_a_missing_package_is_named_with_the_line_that_installs_it(
    monkeypatch, method, package, extra
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(Missing) as caught:
        getattr(Table.empty(EVENT_COLUMNS), method)()
    assert str(caught.value) == (
        f"{method}() needs the package {package}, which is not installed; "
        f"install it with: pip install 'slipstream[{extra}]'"
    )


def test_take_and_replace_leave_the_table_as_it_was():
    table = profile().kernel("dot.1", 10).kernel("add.2", 5).build().events
    part = table.take(np.array([False, True]))
    assert plain(part)["op"] == ["add.2"]
    longer = table.replace(duration_ps=table["duration_ps"] * 2)
    assert longer["duration_ps"].tolist() == [20_000_000, 10_000_000]
    assert table["duration_ps"].tolist() == [10_000_000, 5_000_000]
    assert plain(table)["op"] == ["dot.1", "add.2"]


@given(st.lists(st.text(max_size=3)))
def test_interned_texts(words):
    texts = Texts()
    indices = [texts.index(word) for word in words]
    assert [texts.values[i] for i in indices] == words
    assert texts.values[0] == ""
    assert len(set(texts.values)) == len(texts.values)
    assert texts.map(words).tolist() == indices
    assert [texts.values[i] for i in texts.map(words, str.upper)] == [w.upper() for w in words]


def test_every_column_says_what_it_holds():
    for columns in ALL:
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        assert all(len(column.doc) > 10 for column in columns)

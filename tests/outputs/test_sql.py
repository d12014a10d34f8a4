from __future__ import annotations

import sys

import pytest

from outputs.results import OPS, PROGRAMS, small_profile
from slipstream.errors import BadInput, Missing
from slipstream.outputs import sql
from slipstream.outputs.query_rows import QueryResult, render_rows, rows_csv, rows_json
from slipstream.outputs.terminal.table_options import arranging, table_options

LONGEST = "select name, duration_ps from events order by duration_ps desc, start_ps limit 2"


def test_query():
    assert sql.query(small_profile(), LONGEST) == QueryResult(
        ("name", "duration_ps"), (("gemm_kernel", 10_000_000), ("side_kernel", 9_000_000))
    )


def test_events_know_their_lane_device_and_host():
    found = sql.query(
        small_profile(), "select distinct lane_name, device, host from events order by lane_name"
    )
    assert found.rows == (
        ("Stream #14(Compute)", "/device:GPU:0", "worker-0"),
        ("Stream #15(MemcpyD2H)", "/device:GPU:0", "worker-0"),
    )


def test_every_table_can_be_read(monkeypatch):
    monkeypatch.setattr(sql, "ops", lambda profile: OPS)
    monkeypatch.setattr(sql, "programs", lambda profile: PROGRAMS)
    counts = {
        name: sql.query(small_profile(), f"select count(*) from {name}").rows[0][0]
        for name in sql.TABLES
    }
    assert counts == {
        "events": 4,
        "host_events": 5,
        "transfers": 0,
        "ops": 3,
        "lanes": 3,
        "devices": 1,
        "programs": 2,
        "instructions": 0,
    }
    shown = sql.query(small_profile(), "show tables").rows
    assert sorted(row[0] for row in shown) == sorted(sql.TABLES)


def test_names_of_tables_have_no_case():
    assert sql.query(small_profile(), "select count(*) from LANES").rows == ((3,),)


def test_an_error_names_the_tables():
    with pytest.raises(BadInput) as caught:
        sql.query(small_profile(), "select nme from events")
    message = str(caught.value)
    assert message.startswith("the query failed: Binder Error")
    assert '"name"' in message
    assert "tables: events, host_events, transfers, ops, lanes, devices, programs" in message


def test_an_unknown_table_suggests_the_nearest():
    with pytest.raises(BadInput, match="name evnts does not exist; did you mean events"):
        sql.query(small_profile(), "select * from evnts")


@pytest.mark.parametrize(
    "statement",
    [
        "select * from read_csv('/etc/passwd')",
        "copy (select 1) to '{folder}/x.csv'",
        "attach '{folder}/x.db'",
        "set enable_external_access = true",
        "install httpfs",
    ],
)
def test_a_query_reaches_nothing_else(statement, tmp_path):
    with pytest.raises(BadInput):
        sql.query(small_profile(), statement.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_without_duckdb(monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(Missing, match=r"pip install 'slipstream\[sql\]'"):
        sql.query(small_profile(), "select 1")


FOUND = QueryResult(("name", "ms", "n"), (("a, b", 1.23456789, 3), (None, 20.5, 40)))


def test_rows_as_a_table():
    assert render_rows(FOUND).plain == "name       ms   n\na, b   1.2346   3\n–     20.5000  40"


def test_too_many_columns_stand_one_below_another():
    wide = QueryResult(tuple(f"column_{i}" for i in range(9)), ((1, "x" * 99, *range(7)),))
    lines = render_rows(wide).plain.splitlines()
    assert lines[:3] == [
        "row 1",
        "  column_0  1",
        "  column_1  " + "x" * 34 + "…" + "x" * 33,
    ]
    assert len(lines) == 10


def test_rows_are_arranged_as_asked():
    several = QueryResult(("name", "n"), (("fusion.1", 2), ("copy.1", 30), ("fusion.2", 4)))
    with arranging(table_options(sort="n", pattern="fusion", columns="n,name")):
        assert render_rows(several).plain == "n  name\n4  fusion.2\n2  fusion.1"
    with arranging(table_options(pattern="dot")):
        assert render_rows(several).plain == "name  n\nno row matches 'dot'"
    wide = QueryResult(tuple(f"column_{i}" for i in range(9)), ((1, "x" * 99, *range(7)),))
    with arranging(table_options(is_wide=True)):
        assert "x" * 99 in render_rows(wide).plain.splitlines()[1]


def test_no_rows():
    assert render_rows(QueryResult(("name",), ())).plain == "name\nno rows"


def test_rows_as_csv():
    assert rows_csv(FOUND) == 'name,ms,n\n"a, b",1.23456789,3\n,20.5,40'


def test_rows_as_json():
    assert rows_json(FOUND) == [
        {"name": "a, b", "ms": 1.23456789, "n": 3},
        {"name": None, "ms": 20.5, "n": 40},
    ]


def test_many_rows_are_cut_on_a_terminal_only():
    many = QueryResult(("n",), tuple((i,) for i in range(1500)))
    assert render_rows(many).plain.splitlines()[-1] == (
        "… and 500 more rows; add a limit, or get all with --csv or --json"
    )
    assert len(rows_csv(many).splitlines()) == 1501

"""Tables: cells, what they sort by, and how many there are."""

import re

from slipstream.outputs.html.tables import (
    MOST,
    Cell,
    TableColumn,
    TimeColumn,
    bytes_cell,
    count_cell,
    named_cell,
    number,
    rate_cell,
    share_cell,
    table,
    us_cell,
)  # fmt: skip


def test_a_table():
    text = table([TableColumn("Op"), number("A step", wide=True)], [["a", us_cell(1500)]], "Ops")
    assert '<th scope="col">Op</th><th class="n w" scope="col">A step</th>' in text
    assert '<td>a</td><td class="n w" data-v="1500">1.5 ms</td>' in text
    assert 'role="region" aria-label="Ops" tabindex="0"' in text
    assert "showall" not in text


def test_columns_sort_where_there_is_something_to_sort():
    text = table([TableColumn("Op")], [["a"], ["b"]], "Ops")
    assert '<th scope="col"><button type="button">Op</button></th>' in text


def test_more_rows_wait_for_a_click():
    text = table([TableColumn("Op")], [[str(i)] for i in range(12)], "Ops", shown=10)
    assert text.count('<tr class="more">') == 2
    assert 'aria-controls="table-ops"' in text and "Show all 12" in text
    assert 'id="table-ops"' in text


def test_very_many_rows_are_for_the_command_line():
    text = table(
        [TableColumn("Op")], [[str(i)] for i in range(MOST + 5)], "Ops", more="slipstream ops"
    )
    assert len(re.findall("<tr", text)) == MOST + 1
    assert f"The first {MOST} of 305 rows. The other 5: slipstream ops" in text


def test_cells_say_what_is_not_known():
    unknown = [make(None) for make in (us_cell, bytes_cell, rate_cell, count_cell, share_cell)]
    assert unknown == [Cell("–", None)] * 5
    assert [us_cell(0).shown, bytes_cell(2e6).shown, rate_cell(2e9).shown] == [
        "0",
        "2 MB",
        "2 GB/s",
    ]
    assert [count_cell(1234).shown, share_cell(0.25).shown] == ["1,234", "25.0%"]
    assert named_cell("x @ w", "dot.1") == '<span>x @ w<small class="c">dot.1</small></span>'
    assert named_cell("dot.1", "dot.1") == "<span>dot.1</span>"


def test_a_column_of_times_has_one_unit():
    times = TimeColumn([1234.5, 20.0, None])
    assert times.unit == "ms"
    assert [times.cell(us).shown for us in (1234.5, 20.0, None)] == ["1.23", "0.02", "–"]

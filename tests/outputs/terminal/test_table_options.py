from __future__ import annotations

import pytest

from slipstream.errors import BadInput
from slipstream.outputs.terminal.layout import (
    _PHASES,
    TextColumn,
    elide_op,
    elide_scope,
    elide_source,
    table,
    table_lines,
)
from slipstream.outputs.terminal.table_options import (
    arranged_tables,
    arranging,
    cell_number,
    check_columns,
    table_options,
)
from slipstream.profile.semantics.names import PHASES

COLUMNS = (
    TextColumn("what", min_width=6),
    TextColumn("ms", right=True, key="time"),
    TextColumn("shapes", min_width=4, is_hidden=True),
)
ROWS = [("gelu", "900 µs", "f32[8]"), ("Exp", "1.2 ms", "bf16[8]"), ("dot", "–", "bf16[9]")]


def shown(top=None, rows=ROWS, width=80, **options):
    with arranging(table_options(**options)):
        lines = [line for line, _ in table_lines(COLUMNS, rows, width, top)]
        check_columns()
    return lines


def names(**options):
    return [line.split()[0] for line in shown(**options)[1:]]


def test_without_options_hidden_columns_are_hidden():
    assert table(COLUMNS, ROWS, 80) == [
        "what      ms",
        "gelu  900 µs",
        "Exp   1.2 ms",
        "dot        –",
    ]


def test_numbers_sort_by_value_and_texts_by_letter():
    assert names(sort="time") == ["Exp", "gelu", "dot"]
    assert names(sort="time:asc") == ["gelu", "Exp", "dot"]
    assert names(sort="what") == ["dot", "Exp", "gelu"]
    assert names(sort="what:desc") == ["gelu", "Exp", "dot"]


def test_rows_match_by_any_text_even_a_hidden_one():
    assert names(pattern="BF16") == ["Exp", "dot"]
    assert names(pattern="^dot$") == ["dot"]
    assert shown(pattern="conv") == ["what  ms", "no row matches 'conv'"]


@pytest.mark.parametrize("pattern", ["gelu", "tanh", "conv"])
def test_no_row_matches_only_if_none_of_any_table_does(pattern):
    others = [("tanh", "1 µs", "f32[8]")]

    def render():
        tables = [table_lines(COLUMNS, rows, 80) for rows in (ROWS, others, ROWS)]
        return [line for lines in tables for line, _ in lines]

    with arranging(table_options(pattern=pattern)):
        lines = arranged_tables(render)
    assert ("no row matches 'conv'" in lines) == (pattern == "conv")
    assert len([line for line in lines if "no row" in line]) == (3 if pattern == "conv" else 0)


def test_rows_are_cut_after_they_are_sorted():
    assert shown(top=1, sort="what") == ["what  ms", "dot    –", "… and 2 more: --top 3"]


def test_columns_are_chosen_in_order():
    assert shown(columns="shapes, what")[:2] == ["shapes   what", "f32[8]   gelu"]


def test_a_column_is_called_by_its_name_or_by_what_stands_above_it():
    assert shown(columns="ms,what")[:2] == ["    ms  what", "900 µs  gelu"]
    assert names(sort="ms") == names(sort="µs") == names(sort="time")


def test_a_column_that_no_table_has_is_an_error():
    with pytest.raises(BadInput, match="no column 'tine'; did you mean time"):
        shown(sort="tine")
    with pytest.raises(BadInput, match="choose from: what, time, shapes"):
        shown(columns="what,foo")


def test_bad_options_are_errors():
    with pytest.raises(BadInput, match="is not a regular expression"):
        table_options(pattern="(")
    with pytest.raises(BadInput, match="names no column"):
        table_options(columns=" , ")


def test_wide_tables_cut_nothing():
    long = "x" * 200
    assert shown(rows=[(long, "1", "")], is_wide=True)[1].startswith(long)
    assert "…" in shown(rows=[(long, "1", "")])[1]


def test_optional_columns_go_before_texts_are_cut():
    columns = (TextColumn("a", min_width=4), TextColumn("b", min_width=4, is_optional=True))
    rows = [("a" * 10, "b" * 10)]
    assert table(columns, rows, 22)[1] == "a" * 10 + "  " + "b" * 10
    assert table(columns, rows, 21) == ["a", "a" * 10]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5 ms", 1.5e-3),
        ("900 µs", 900e-6),
        ("2,560", 2560),
        ("8 ×", 8),
        ("70.9 MB", 70.9e6),
        ("23 GB/s", 23e9),
        ("<0.1%", 0.001),
        ("−0.73 ~", -0.73),
        ("64 TFLOP", 64e12),
        ("–", None),
        ("", None),
    ],
)
def test_numbers_of_cells(text, number):
    assert cell_number(text) == (pytest.approx(number) if number is not None else None)


def test_the_telling_part_of_a_name_remains():
    op = "backward · xformer_lm/lm/x_layers_*/self_attention · exp"
    assert elide_op(op, 60) == op
    assert elide_op(op, 36) == "backward · …/self_attention · exp"
    assert elide_op(op, 16) == "backward · exp"
    assert elide_op("backward · reduce-scatter ∂post.w, ∂ffn.w 70.9 MB", 30) == (
        "backward · reduce-sc…w 70.9 MB"
    )
    assert elide_op("lm/softmax/logits · x @ w", 20) == "…/logits · x @ w"
    assert elide_scope("lm/x_layers_*/self_attention/pv", 20) == "…/self_attention/pv"
    assert elide_source("embedding_softmax.py:390", 20) == "embedding_so….py:390"
    assert set(_PHASES) == set(PHASES) - {"other"}

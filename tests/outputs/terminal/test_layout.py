import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from slipstream.outputs.terminal.layout import (
    TextColumn,
    bar,
    elide,
    elide_op,
    elide_what,
    paragraph,
    table,
    wrap,
)


def test_elide_keeps_both_ends():
    assert elide("loop_multiply_add_fusion.12", 14) == "loop_mu…ion.12"
    assert elide("short", 14) == "short"
    assert elide("anything", 1) == "…"
    assert elide("anything", 0) == ""


@given(st.text(), st.integers(0, 30))
def test_elided_text_fits(text, width):
    assert cell_len(elide(text, width)) <= width


def test_what_an_op_computes_is_cut_less_than_its_name():
    columns = [
        TextColumn("op", min_width=8),
        TextColumn("what", min_width=8, weight=2),
        TextColumn("ms", right=True),
    ]
    row = ["all-gather-start.1234567", "all-gather logits_ffn.w 77.3 MB", "0.65"]
    assert table(columns, [row], 48, is_fixed=True) == [
        "op             what                           ms",
        "all-ga…234567  all-gather lo…ffn.w 77.3 MB  0.65",
    ]


def test_a_quantity_is_not_cut():
    assert elide("reduce-scatter ∂post.w, ∂ffn.w 70.9 MB", 14) == "reduce…70.9 MB"
    assert elide("all-to-all 1.07 GB, exposed", 20) == "all-to-all…, exposed"
    assert elide("1.07 GB by all-to-all, exposed", 9) == "…osed"


def test_names_that_would_be_cut_to_the_same_are_cut_elsewhere():
    rows = [
        ("kernel sm80_xmma_gemm_f32f32_tn_n_tilesize64x256x8_stage3_execute_kernel__5x", "1"),
        ("kernel sm80_xmma_gemm_f32f32_tn_n_tilesize128x128x8_stage3_execute_kernel__5x", "2"),
        ("kernel sm80_xmma_gemm_f32f32_nn_n_tilesize128x128x8_stage3_execute_split_k", "3"),
        ("loop_multiply_convert_add_select_fusion.1234567", "4"),
    ]
    columns = (TextColumn("what", min_width=8, shorten=elide_op), TextColumn("ms", right=True))
    assert table(columns, rows, 40) == [
        "what                                  ms",
        "kernel sm80_…tilesize64x256x8_stage…   1",
        "kernel sm80_…tilesize128x128x8_stag…   2",
        "kernel sm80_xmma_g…3_execute_split_k   3",
        "loop_multiply_conv…ct_fusion.1234567   4",
    ]


def test_ops_that_differ_only_in_what_is_left_out_stay_alike():
    rows = [
        ("backward · lm/self_attention · exp",),
        ("backward · lm/soft_attention · exp",),
        ("backward · all-gather ffn_layer1.w, post.w 70.9 MB",),
        ("backward · all-gather ffn_layer2.w, post.w 70.9 MB",),
    ]
    columns = (TextColumn("what", min_width=8, shorten=elide_op),)
    assert table(columns, rows, 24) == [
        "what",
        "backward · …/s…ion · exp",
        "backward · …/s…ion · exp",
        "backward · all-g…70.9 MB",
        "backward · all-g…70.9 MB",
    ]


def test_of_a_result_and_how_it_is_computed_the_result_remains():
    assert elide_what("∂logits_ffn.w = xᵀ @ dy", 24) == "∂logits_ffn.w = xᵀ @ dy"
    assert elide_what("∂logits_ffn.w = xᵀ @ dy", 20) == "∂logits_ffn.w = …"
    assert elide_what("∂logits_ffn.w = xᵀ @ dy", 11) == "∂logi…ffn.w"
    assert elide_what("everything", 6) == "eve…ng"


def test_wrap_breaks_between_parts_only():
    assert wrap(["one", "two two", "three"], 15) == ["one · two two", "three"]
    assert wrap([], 10) == []


def test_paragraph():
    assert paragraph("a few words in lines", 9, "! ", "  ") == [
        "! a few",
        "  words",
        "  in",
        "  lines",
    ]


def test_a_number_and_its_unit_stay_on_one_line():
    assert paragraph("it went from 1.2 ms to 375 µs in 3 steps", 12) == [
        "it went from",
        "1.2 ms to",
        "375 µs in 3",
        "steps",
    ]


def test_table_shrinks_what_may_shrink():
    columns = [TextColumn("name", min_width=6), TextColumn("ms", right=True)]
    rows = [("a_long_name_indeed", "1.00"), ("b", "20.00")]
    assert table(columns, rows, 17) == [
        "name           ms",
        "a_lon…deed   1.00",
        "b           20.00",
    ]


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0, "    "),
        (1, "████"),
        (0.5, "██  "),
        (0.53, "██▏ "),
        (1e-9, "▏   "),
        (0.97, "███▉"),
        (1.7, "████"),
        (-1, "    "),
        (math.nan, "    "),
    ],
)
def test_bar(share, expected):
    assert bar(share, 4) == expected

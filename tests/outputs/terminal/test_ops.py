from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from outputs.results import COPY, MATMUL, OPS
from slipstream.outputs.terminal.ops import render_ops, render_scope_tree
from slipstream.outputs.terminal.table_options import arranging, table_options


def text(result, width=80, **options):
    return render_ops(result, width, **options).plain


def test_ops():
    assert text(OPS, top=2) == (
        """\
device time by instruction · 79 ms per step · 3 steps counted
99.8% attributed to instructions

what                                             source       count    ms  share
backward · block/mlp · x @ w1ᵀ                   model.py:26      1  41.0   9.2%
remat · softmax of everything that came before   model.py:21      2  38.0   8.5%
… and 1 more, <0.1% together: --top 3"""
    )


def test_flat_ops_have_the_names_of_instructions():
    assert text(OPS, top=2, flat=True).splitlines()[3:] == [
        "instruction         what                         source       count    ms  share",
        "gemm_fusion_dot.7   backward · …/mlp · x @ w1ᵀ   model.py:26      1  41.0   9.2%",
        "loop_soft…usion.12  remat · softmax o…me before  model.py:21      2  38.0   8.5%",
        "… and 1 more, <0.1% together: --top 3",
    ]


def test_equal_ops_of_layers_are_one_line_that_names_them_where_there_is_room():
    layers = [
        replace(MATMUL, instruction=f"dot.{n}", scope=f"h_{n}/mlp", source="") for n in range(12)
    ]
    lines = text(replace(OPS, ops=tuple(layers)), width=100).splitlines()[2:]
    assert lines == [
        "what                          instruction  source  count     ms   share",
        "backward · h_*/mlp · x @ w1ᵀ  dot.0, +11              12  492.0  110.4%",
    ]


def test_a_tree_of_scopes():
    tree = OPS.tree(1)
    assert render_scope_tree(replace(OPS, by="scope"), tree).plain.splitlines()[3:] == [
        "scope        ops  own, ms    ms  share",
        "block          2           79.0  17.7%",
        "  mlp          1     41.0  41.0   9.2%",
        "  attention    1           38.0   8.5%",
        "(none)         1      0.0   0.0  <0.1%",
    ]


def test_a_filter_finds_scopes_at_any_depth_and_shows_what_they_are_in():
    act = replace(COPY, instruction="gelu", scope="block/mlp/act", per_step_us=3.0)
    ops = replace(OPS, ops=(*OPS.ops, act), by="instruction")
    with arranging(table_options(pattern="act|mlp")):
        lines = render_scope_tree(replace(ops, by="scope"), ops.tree()).plain.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["scope", "block", "mlp"]
    with arranging(table_options(pattern="ACT")):
        lines = render_scope_tree(replace(ops, by="scope"), ops.tree()).plain.splitlines()
    assert [line.split()[0] for line in lines[3:]] == ["scope", "block", "mlp", "act"]
    with arranging(table_options(pattern="dropout")):
        lines = render_scope_tree(replace(ops, by="scope"), ops.tree()).plain.splitlines()
    assert lines[3:] == ["no row matches 'dropout'"]


def test_ops_of_the_whole_recording_by_kernel():
    by_kernel = replace(OPS, by="kernel", steps=0, ops=(COPY,), total_us=15.0)
    assert text(by_kernel) == (
        """\
device time by kernel · 5 µs per device in the whole recording
99.8% attributed to instructions

kernel  count    µs  share
copy.3      1  5.00  <0.1%"""
    )


def test_ops_of_several_programs_name_them():
    other = replace(COPY, program="jit_init(2)")
    by_category = replace(OPS, by="category", ops=(replace(COPY, instruction="copy"), other))
    assert text(by_category).splitlines()[3:] == [
        "category  program      count    µs  share",
        "copy      jit_step(1)      1  5.00  <0.1%",
        "copy.3    jit_init(2)      1  5.00  <0.1%",
    ]


@pytest.mark.parametrize("width", [72, 80, 100])
def test_no_line_is_too_long(width):
    assert max(cell_len(line) for line in text(OPS, width).splitlines()) <= width


def test_names_can_not_break_the_screen():
    nasty = replace(OPS, by="kernel", ops=(replace(COPY, instruction="a\nb\x1b[31mc"),))
    assert text(nasty).splitlines()[-1] == "a b [31mc      1  5.00  <0.1%"

from __future__ import annotations

from dataclasses import replace

import pytest

from analyses.pax import both
from slipstream.analyses.collectives import CollectiveRow, Collectives
from slipstream.analyses.op_groups import Op, OpGroup, ScopeTotal, op_groups, scope_tree
from slipstream.analyses.ops import Ops, ops
from slipstream.analyses.roofline import Roofline, RooflineRow
from slipstream.errors import BadInput

EXP = Op(
    "jit_step(1)", "exp.0", 2, 20.0, 10.0, 0.1, "backward", "elementwise", "h.0/attn", "a.py:1",
    "exp", 1.0, "f32[8] → f32[8]",
)  # fmt: skip


def layer(number: int, us: float = 10.0, **other: str) -> Op:
    name = {"instruction": f"exp.{number}", "scope": f"h.{number}/attn", **other}
    return replace(EXP, total_us=2 * us, per_step_us=us, **name)


def test_equal_ops_of_layers_are_one():
    found = op_groups([layer(0), layer(1, 30.0), layer(2)])
    assert found == (
        OpGroup(
            "jit_step(1)", "exp.1", 6, 100.0, 50.0, pytest.approx(0.3), "backward", "elementwise",
            "h.*/attn", "a.py:1", "exp", 3.0, "f32[8] → f32[8]", ("exp.1", "exp.0", "exp.2"),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        {"phase": "forward"},
        {"scope": "h.1/mlp"},
        {"source": "a.py:2"},
        {"shapes": "f32[9] → f32[9]"},
        {"description": "tanh"},
        {"category": "copy"},
        {"program": "jit_other(2)"},
    ],
)
def test_ops_that_differ_are_not(other):
    assert len(op_groups([layer(0), layer(1, **other)])) == 2


def test_collectives_of_the_same_size_are_one():
    said = {"description": "all-to-all 134 MB", "category": "all-to-all"}
    both = [layer(0, **said), layer(1, shapes="f32[2,4] → f32[2,4]", **said)]
    assert [(group.count, group.shapes) for group in op_groups(both)] == [(4, "")]


def test_an_op_alone_keeps_the_number_of_its_layer():
    (group,) = op_groups([layer(7)])
    assert (group.scope, group.instructions) == ("h.7/attn", ("exp.7",))


def test_ops_without_a_description_are_not_taken_for_equal():
    unknown = [layer(n, description="", scope="", shapes="") for n in (0, 1)]
    assert len(op_groups(unknown)) == 2


def test_scopes_of_layers_are_one():
    rows = [
        replace(EXP, instruction=f"h.{n}/attn", scope="", phase=phase)
        for n, phase in enumerate(("forward", "backward"))
    ]
    (group,) = Ops("scope", 2, 1.0, tuple(rows), 40.0).groups
    assert (group.instruction, group.instructions) == ("h.*/attn", ("h.0/attn", "h.1/attn"))
    assert (group.phase, group.description, group.per_step_us) == ("", "2 scopes", 20.0)


def test_kernels_are_never_merged():
    rows = tuple(replace(EXP, instruction=f"kernel_{n}") for n in (0, 1))
    assert len(Ops("kernel", 2, 1.0, rows, 40.0).groups) == 2


def test_a_tree_of_scopes_has_totals():
    rows = [
        layer(0),
        layer(1, 30.0),
        layer(0, 5.0, instruction="gelu", scope="h.0/mlp/act"),
        layer(0, 2.0, instruction="add", scope="h.0"),
        layer(0, 50.0, instruction="copy", scope=""),
    ]
    assert scope_tree(rows, 1) == (
        ScopeTotal("", 0, 1, 100.0, 50.0, 50.0, 0.1),
        ScopeTotal("h.*", 1, 4, 94.0, 47.0, 2.0, pytest.approx(0.4)),
        ScopeTotal("h.*/attn", 2, 2, 80.0, 40.0, 40.0, 0.2),
        ScopeTotal("h.*/mlp", 2, 1, 10.0, 5.0, 0.0, 0.1),
    )
    assert [one.scope for one in scope_tree(rows, 1, flat=True)] == ["", "h.1", "h.0"]
    # What is alone in another scope is no level of its own.
    assert [one.scope for one in scope_tree(rows[:4], 1)] == ["h.*", "h.*/attn", "h.*/mlp"]
    assert scope_tree(rows[2:3], 1)[-1].scope == "h.*/mlp/act"
    assert scope_tree(rows)[-1].scope == "h.*/mlp/act"
    with pytest.raises(BadInput, match="by kernel have no scopes"):
        Ops("kernel", 2, 1.0, (), 0.0).tree()


GATHER = CollectiveRow(
    "jit_step(1)", "all-gather.0", "all-gather", 1000, 4, 1, 2, 10.0, 4.0, 5.0, 5.0, 200e6, 150e6,
    0.5, 2, 1.0, scope="h.0", description="all-gather w 1 kB", per_step_count=1.0,
)  # fmt: skip


def test_equal_collectives_are_one_with_the_rate_of_all_bytes():
    slow = replace(
        GATHER, instruction="all-gather.1", scope="h.1", per_step_us=30.0, moving_us=15.0,
        bandwidth=200e6 / 3, bus_bandwidth=50e6, link_share=0.5 / 3, wait_us=None,
    )  # fmt: skip
    other = replace(GATHER, instruction="all-gather.2", bytes=2000)
    result = Collectives(1, "", None, "", (GATHER, slow, other), (), None)
    group, alone = result.groups
    assert group.instructions == ("all-gather.1", "all-gather.0")
    assert (group.per_step_us, group.exposed_us, group.per_step_count) == (40.0, 8.0, 2.0)
    assert (group.moving_us, group.wait_us, group.scope) == (10.0, 1.0, "h.*")
    assert group.bandwidth == pytest.approx(100e6)  # 2000 bytes in 20 µs
    assert alone.instructions == ("all-gather.2",)


def test_equal_ops_have_one_share_of_the_roof():
    row = RooflineRow(
        "p", "dot.0", 2, 10.0, 100, 10, "bf16", 5.0, 0.5, "compute", 20e6, 2e6,
        description="x @ w", scope="h.0", shapes="s",
    )  # fmt: skip
    other = replace(
        row, instruction="dot.1", scope="h.1", per_step_us=30.0, roof_share=1 / 6,
        flops_rate=20e6 / 3,
    )  # fmt: skip
    result = Roofline("", 1, 1.0, "bf16", None, None, 0.0, 0.0, 0.0, None, None, 1.0, (other, row))
    (group,) = result.groups
    assert group.instructions == ("dot.1", "dot.0")
    assert (group.per_step_us, group.best_us, group.lost_us) == (40.0, 10.0, 30.0)
    assert group.roof_share == 0.25
    # 400 operations in 80 µs of both steps together.
    assert group.flops_rate == pytest.approx(10e6)


def test_groups_of_a_recording_add_up(external):
    found = ops(both(external))
    groups = found.groups
    assert sum(group.total_us for group in groups) == pytest.approx(found.total_us)
    names = [name for group in groups for name in group.instructions]
    assert len(names) == len(found.ops) > 8 * len(groups)
    first = groups[0]
    assert (len(first.instructions), first.description, first.phase) == (12, "exp", "backward")
    assert first.scope == "xformer_lm/lm/transformer/x_layers_*/self_attention"
    assert [one.scope.removeprefix("xformer_lm/") for one in found.tree(1)] == [
        "xformer_lm", "lm", "lm/transformer", "lm/softmax", "lm/position_emb", "lm/final_ln", "",
    ]  # fmt: skip

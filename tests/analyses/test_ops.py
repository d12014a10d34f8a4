"""Device time op by op: whole tables of small profiles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from builders import PS, STEP, Ref, hlo, profile, program, space
from slipstream.analyses.ops import GROUPINGS, Op, Ops, has_scopes, in_loops, ops
from slipstream.errors import BadInput
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.load import load
from slipstream.sources.proto_schema import message


def steps(count: int = 2):
    """Steps of a matmul, an all-reduce half hidden behind it, and a copy."""
    built = profile()
    for at in range(0, 100 * count, 100):
        built.at(at).kernel("dot.1", 40, "gemm").all_reduce(30, hidden=15).copy(10)
        built.execution_of()
    return built


def row(name: str, count: int, total: float, share: float, **more: str) -> Op:
    return Op(STEP, name, count, total, total / 2, share, per_step_count=count / 2, **more)


def test_by_instruction():
    dot = {"phase": "other", "category": "matmul", "description": "x @ y"}
    reduce = {"phase": "other", "category": "all-reduce", "description": "all-reduce 32 B"}
    copy = {"phase": "other", "category": "data movement", "description": "copy 32 B"}
    dot["shapes"] = "f32[8], f32[8] → f32[8]"
    reduce["shapes"] = copy["shapes"] = "f32[8] → f32[8]"
    assert ops(steps().build()) == Ops(
        by="instruction",
        steps=2,
        attributed_share=1.0,
        ops=(
            row("dot.1", 2, 80.0, 0.5, **dot),
            row("all-reduce.1", 2, 60.0, 0.375, **reduce),
            row("copy-start.1", 2, 20.0, 0.125, **copy),
        ),
        total_us=160.0,
    )


def test_by_kernel():
    assert ops(steps().build(), by="kernel") == Ops(
        by="kernel",
        steps=2,
        attributed_share=1.0,
        ops=(
            row("gemm", 2, 80.0, 0.5, category="matmul"),
            row(
                "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 2, 60.0, 0.375, category="communication"
            ),
            row("MemcpyD2H", 2, 20.0, 0.125, category="host copy"),
        ),
        total_us=160.0,
    )


def located(sources: dict[str, tuple[str, str, int]]) -> object:
    """A program whose instructions say which line of the model they are of."""
    proto = message("HloProto").FromString(hlo("jit_step", list(sources)))
    for instruction in proto.hlo_module.computations[0].instructions:
        if instruction.name in sources:
            meta = instruction.metadata
            meta.op_name, meta.source_file, meta.source_line = sources[instruction.name]
    return program_from_proto(proto.SerializeToString())


MODEL = {
    "dot.1": ("jit(step)/jvp(block)/mlp/dot_general", "model.py", 12),
    "dot.2": ("jit(step)/transpose(jvp(block))/mlp/dot_general", "model.py", 12),
    "add.3": ("jit(step)/jvp(block)/mlp/add", "model.py", 13),
}


def model(count: int = 2):
    built = profile().with_program(STEP, located(MODEL))
    for at in range(0, 100 * count, 100):
        built.at(at).kernel("dot.1", 20).kernel("dot.2", 30).kernel("add.3", 10)
        built.kernel("?", 5, "stray", instruction="").execution_of()
    return built.build()


@pytest.mark.parametrize(
    "by, expected",
    [
        ("phase", [("backward", 60.0), ("forward", 60.0), ("(none)", 10.0)]),
        ("category", [("matmul", 100.0), ("elementwise", 20.0), ("unattributed", 10.0)]),
        ("source", [("model.py:12", 100.0), ("model.py:13", 20.0), ("(none)", 10.0)]),
        ("scope", [("block/mlp", 120.0), ("(none)", 10.0)]),
    ],
)
def test_other_groupings(by, expected):
    found = ops(model(), by=by)
    assert [(op.instruction, op.total_us) for op in found.ops] == expected
    assert found.attributed_share == 120 / 130


def test_a_group_says_what_its_members_have_in_common():
    (first, second, _) = ops(model(), by="source").ops
    assert (first.category, first.phase, first.description) == ("matmul", "", "2 instructions")
    assert (second.category, second.phase, second.scope) == ("elementwise", "forward", "block/mlp")


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", ["nccl2_lhs_r0", "off_default", "attention_graphs", "single"])
def test_every_grouping_adds_up_to_the_same(data: Path, name: str, whole: bool):
    found = load(data / f"{name}.xplane.pb.gz")
    tables = [ops(found, by, whole) for by in GROUPINGS]
    total = tables[0].total_us
    for table in tables:
        assert table.total_us == pytest.approx(total, rel=1e-12)
        assert sum(op.total_us for op in table.ops) == pytest.approx(total, rel=1e-9)
        assert sum(op.share for op in table.ops) == pytest.approx(1, rel=1e-9)
        assert table.attributed_share == tables[0].attributed_share
        assert [op.total_us for op in table.ops] == sorted(
            (op.total_us for op in table.ops), reverse=True
        )
    if whole:
        assert total * PS == pytest.approx(float(found.events["duration_ps"].sum()), rel=1e-12)


def test_only_what_starts_in_a_step_counts_unless_all_does():
    built = profile().kernel("dot.2", 7).execution_of()
    for at in (100, 200, 300):
        built.at(at).kernel("dot.1", 40).kernel("dot.2", 10).execution_of()
    found = built.build()
    cut, whole = ops(found), ops(found, whole=True)
    assert (cut.steps, cut.total_us) == (3, 150.0)
    assert (whole.steps, whole.total_us) == (0, 157.0)
    assert [(op.instruction, op.count) for op in cut.ops] == [("dot.1", 3), ("dot.2", 3)]
    assert [(op.instruction, op.count) for op in whole.ops] == [("dot.1", 3), ("dot.2", 4)]
    assert whole.ops[0].per_step_us == whole.ops[0].total_us


def test_per_step_is_of_one_device():
    built = steps(3)
    built.device("GPU:1").execution_of()
    for at in (0, 100, 200):
        built.at(at).kernel("dot.1", 80, "gemm").all_reduce(30).copy(10).execution_of()
    (dot, *_) = ops(built.build()).ops
    assert (dot.instruction, dot.count, dot.total_us) == ("dot.1", 6, 3 * 40 + 3 * 80)
    assert dot.per_step_us == 60


def test_unattributed_kernels_are_shown_one_by_one():
    built = profile().kernel("command_buffer_1", 10, "alpha", instruction="")
    built.kernel("command_buffer_1", 20, "beta", instruction="")
    found = ops(built.kernel("command_buffer_1", 5, "alpha", instruction="").build())
    assert found.attributed_share == 0
    assert [(op.instruction, op.count, op.description) for op in found.ops] == [
        ("unattributed", 1, "kernel beta"),
        ("unattributed", 2, "kernel alpha"),
    ]
    assert {op.category for op in found.ops} == {"unattributed"}


def test_how_often_an_instruction_ran_that_launches_several_kernels():
    built = profile()
    for at in (0, 100):
        built.at(at).kernel("dot.1", 1, "memset").kernel("dot.1", 9, "gemm")
        built.kernel("sort.2", 3, "radix").kernel("sort.2", 3, "radix").execution_of()
    counts = {op.instruction: op.count for op in ops(built.build()).ops}
    assert counts == {"dot.1": 2, "sort.2": 2}


def test_how_often_an_instruction_of_a_loop_ran():
    found = program(STEP, ["while.1", "add.9"], {"while.1": (3, ["dot.2"])})
    built = profile().with_program(STEP, found)
    for at in (0, 100):
        built.at(at)
        for _ in range(3):
            # A library call that is two kernels of one name.
            built.kernel("dot.2", 4, "gemm").kernel("dot.2", 4, "gemm")
        built.kernel("add.9", 1).execution_of()
    counts = {op.instruction: (op.count, op.total_us) for op in ops(built.build()).ops}
    assert counts == {"dot.2": (6, 48.0), "add.9": (2, 2.0)}


def test_own_time_where_operations_nest(tmp_path: Path):
    built = space().program(STEP, hlo("jit_step", ["while.1"], {"while.1": (2, ["dot.2"])}))
    line = built.host().line("tf_XLAEigen/1")
    labels = {"hlo_module": Ref("jit_step"), "program_id": 1}
    for run, at in enumerate((0, 100, 200), 1):
        line.event("while.1", at, 50, hlo_op=Ref("while.1"), run_id=run, **labels)
        for inside in (at + 5, at + 25):
            line.event("dot.2", inside, 15, hlo_op=Ref("dot.2"), run_id=run, **labels)
    found = load(built.write(tmp_path / "cpu.xplane.pb"))
    table = ops(found)
    assert [(op.instruction, op.count, op.total_us) for op in table.ops] == [
        ("dot.2", 6, 90.0),
        ("while.1", 3, 60.0),
    ]
    assert table.total_us == 150


def test_a_profile_without_events():
    found = ops(profile().build())
    assert found == Ops("instruction", 0, 0.0, (), 0.0)
    assert ops(profile().build(), by="kernel").ops == ()


def test_events_of_no_program():
    built = profile(known=False).kernel("", 10, "MemcpyH2D", instruction="").build()
    zeros = np.zeros_like(built.events["program"])
    found = ops(built.with_events(built.events.replace(program=zeros)))
    assert [(op.program, op.instruction, op.description) for op in found.ops] == [
        ("", "unattributed", "kernel MemcpyH2D")
    ]


def test_loops_and_lines_of_a_model_without_scopes(data: Path):
    found = load(data / "nccl2_lhs_r0.xplane.pb.gz")
    first, *_ = ops(found, by="loop").ops
    assert (first.instruction, first.per_step_count) == (
        "loop at model.py:32, 4 turns/model.py:22",
        pytest.approx(116),
    )
    assert not has_scopes(ops(found, by="scope"))
    tree = in_loops(found, ops(found)).tree(1, flat=True)
    assert [one.scope for one in tree][:2] == ["loop at model.py:32, 4 turns", "model.py:33"]
    assert sum(one.total_us for one in tree) == pytest.approx(ops(found).total_us)


def test_ops_of_which_no_line_is_known_have_the_name_of_their_program():
    found = profile().kernel("dot.1", 40).kernel("dot.2", 10).build()
    (only,) = ops(found, by="loop", whole=True).ops
    assert only.instruction == found.events.text("program", 0).partition("(")[0]


def test_an_unknown_grouping():
    with pytest.raises(BadInput) as caught:
        ops(profile().build(), by="colour")
    assert str(caught.value) == (
        "can't group ops by 'colour'; choose one of: instruction, category, phase, scope, loop, "
        "source, kernel"
    )


@pytest.mark.parametrize("name", ["off_lhs_nocb", "off_default", "nccl2_lhs_r0"])
def test_the_ops_of_a_recording_counted_one_by_one(data: Path, name: str):
    """Time and, where each execution is one kernel, counts: event by event."""
    found = load(data / f"{name}.xplane.pb.gz")
    events, steps = found.events, found.steps
    windows = list(zip(steps.start_ps.tolist(), steps.end_ps.tolist(), strict=True))
    times: dict[tuple[str, str], int] = {}
    seen: dict[tuple[str, str], int] = {}
    for row in range(len(events)):
        start = int(events["start_ps"][row])
        if any(begin <= start < end for begin, end in windows):
            label = events.text("instruction", row) or f"kernel {events.text('name', row)}"
            key = (events.text("program", row), label)
            times[key] = times.get(key, 0) + int(events["duration_ps"][row])
            seen[key] = seen.get(key, 0) + 1
    table = {
        (op.program, op.instruction if op.instruction != "unattributed" else op.description): op
        for op in ops(found).ops
    }
    assert {key: op.total_us for key, op in table.items()} == pytest.approx(
        {key: ps / PS for key, ps in times.items()}, rel=1e-12
    )
    assert all(0 < op.count <= seen[key] for key, op in table.items())
    assert all(seen[key] % op.count == 0 for key, op in table.items())
    total = sum(times.values())
    for key, op in table.items():
        assert op.share == pytest.approx(times[key] / total)
        assert op.per_step_us == pytest.approx(times[key] / PS / len(windows))

"""Structure: spans of modules, phases, loop turns and scopes."""

from __future__ import annotations

from builders import STEP, hlo, profile, program
from slipstream.analyses.structure import Structure, structure
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message

US = 1_000_000
JVP = "jit(step)/jvp(Model)/layer_{}/mlp/dot_general"
BACK = "jit(step)/transpose(jvp(Model))/layer_{}/mlp/dot_general"


def spans(found: Structure, name: str, depth: int = 0) -> list[tuple[str, int, int]]:
    """(text, start, end) in µs."""
    (level,) = [one for one in found.levels if (one.name, one.depth) == (name, depth)]
    ends = (level.start_ps + level.duration_ps).tolist()
    columns = zip(level.text.tolist(), level.start_ps.tolist(), ends, strict=True)
    return [(found.texts[text], start // US, end // US) for text, start, end in columns]


def named(names: dict[str, str]) -> Program:
    """A program whose instructions have op names."""
    proto = message("HloProto")()
    proto.ParseFromString(hlo("jit_step", list(names)))
    for one in proto.hlo_module.computations[0].instructions:
        one.metadata.op_name = names.get(one.name, "")
    return program_from_proto(proto.SerializeToString())


def test_phases_and_scopes_are_spans_of_kernels_that_follow_each_other() -> None:
    names = {
        "dot.1": JVP.format(0), "copy.2": "", "dot.3": JVP.format(0), "dot.4": JVP.format(1),
        "dot.5": BACK.format(1), "dot.6": BACK.format(0),
    }  # fmt: skip
    built = profile().with_program(STEP, named(names))
    for name in names:
        built.kernel(name, 10)
    built.all_reduce(30, hidden=30, op="all-reduce.7")
    found = structure(built.build(), 0)
    assert spans(found, "module") == [("jit_step", 0, 60)]
    assert spans(found, "phase") == [("forward", 0, 40), ("backward", 40, 60)]
    # The model's own name says nothing, and the copy without a name does not end its layer.
    assert spans(found, "scope") == [
        ("layer_0", 0, 30), ("layer_1", 30, 40), ("layer_1", 40, 50), ("layer_0", 50, 60),
    ]  # fmt: skip
    assert "backward of layer_1" in found.descriptions
    assert [text for text, *_ in spans(found, "scope", 1)] == ["mlp"] * 4


def test_a_small_op_that_was_moved_does_not_cut_a_phase_in_two() -> None:
    names = {"dot.1": JVP.format(0), "dot.2": BACK.format(0), "dot.3": JVP.format(1)}
    built = profile().with_program(STEP, named(names))
    built.kernel("dot.1", 500).kernel("dot.2", 2).kernel("dot.3", 500)
    assert spans(structure(built.build(), 0), "phase") == [("forward", 0, 1002)]


def test_turns_are_counted_in_each_execution() -> None:
    loop = program(STEP, ["while.1"], {"while.1": (3, ["dot.2", "add.3"])})
    built = profile().with_program(STEP, loop)
    for _ in range(2):
        built.execution_of(STEP)
        for _ in range(3):
            built.kernel("dot.2", 4).kernel("dot.2", 4, name="split_k").kernel("add.3", 2)
    found = structure(built.build(), 0)
    turns = [f"turn {number}" for number in range(3)]
    assert [text for text, *_ in spans(found, "turn")] == turns * 2
    assert spans(found, "turn")[:2] == [("turn 0", 0, 10), ("turn 1", 10, 20)]


def test_an_empty_recording_has_no_structure() -> None:
    assert structure(profile().build(), 0).levels == ()


def test_the_path_is_what_the_step_waits_for() -> None:
    built = profile().kernel("dot.1", 10).kernel("add.2", 10)
    built.all_reduce(30, hidden=10).kernel("dot.3", 5).idle(50).copy(20).kernel("dot.4", 5)
    found = structure(built.build(), 0)
    assert spans(found, "path") == [
        ("compute", 0, 20), ("all-reduce 32 B", 20, 40), ("compute", 40, 45),
        ("copy 32 B", 95, 115), ("compute", 115, 120),
    ]  # fmt: skip

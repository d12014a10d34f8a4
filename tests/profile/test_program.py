import dataclasses
import gc
import weakref
from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded import recorded
from slipstream.errors import BadInput
from slipstream.profile.program import Collective, Instruction, Program, once_per_instruction
from slipstream.profile.shapes import Shape
from slipstream.sources.hlo.reader import program_from_text

LOOP = """
HloModule loops, is_scheduled=true

%sum (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}

%inner_body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8]{0} get-tuple-element(%p), index=1
  %start = f32[8]{0} all-reduce-start(%x), replica_groups={{0,1},{2,3}}, to_apply=%sum
  %exp = f32[8]{0} exponential(%x)
  %done = f32[8]{0} all-reduce-done(%start)
  ROOT %out = (s32[], f32[8]{0}) tuple(%i, %done)
}

%inner_cond (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]{0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

%outer_body (r: (s32[], f32[8])) -> (s32[], f32[8]) {
  %r = (s32[], f32[8]{0}) parameter(0)
  ROOT %inner = (s32[], f32[8]{0}) while(%r), condition=%inner_cond, body=%inner_body, \
backend_config={"known_trip_count":{"n":"3"}}
}

%outer_cond (t: (s32[], f32[8])) -> pred[] {
  %t = (s32[], f32[8]{0}) parameter(0)
  ROOT %more = pred[] constant(true)
}

%yes (y: f32[8]) -> f32[8] {
  %y = f32[8]{0} parameter(0)
  ROOT %tanh = f32[8]{0} tanh(%y)
}

%no (n: f32[8]) -> f32[8] {
  ROOT %n = f32[8]{0} parameter(0)
}

ENTRY %main (v: (s32[], f32[8]), c: pred[]) -> f32[8] {
  %v = (s32[], f32[8]{0}) parameter(0)
  %c = pred[] parameter(1)
  %outer = (s32[], f32[8]{0}) while(%v), condition=%outer_cond, body=%outer_body, \
backend_config={"known_trip_count":{"n":"5"}}
  %w = f32[8]{0} get-tuple-element(%outer), index=1
  ROOT %either = f32[8]{0} conditional(%c, %w, %w), true_computation=%yes, false_computation=%no
}
"""


@pytest.fixture(scope="module")
def loops() -> Program:
    return program_from_text(LOOP)


def test_loops_multiply(loops: Program) -> None:
    assert loops.executions("outer") == 1
    assert loops.executions("inner") == 5
    assert loops.executions("exp") == 15
    assert loops.executions("less") == 20  # a condition is asked once more than it says yes
    assert loops.executions("tanh") is None
    assert loops.loop_of("exp") == loops.instruction("inner")
    assert loops.loop_of("outer") is None
    assert loops.caller("inner_body") == loops.instruction("inner")


def test_what_runs(loops: Program) -> None:
    names = {instruction.name for instruction in loops.runnable}
    assert {"either", "tanh", "n", "start", "exp", "less"} <= names
    assert "add" not in names  # the reducer is part of the all-reduce
    assert "add" in loops
    assert len(names) < len(list(loops.instructions))


def test_start_and_done(loops: Program) -> None:
    start = loops.instruction("start")
    assert loops.partner("start") == loops.instruction("done")
    assert loops.partner("done") == start
    assert loops.partner("exp") is None
    assert loops.wrapped("start") is None  # the called computation is its reducer
    assert start.collective is not None
    assert (start.collective.kind, start.collective.bytes) == ("all-reduce", 32)
    assert start.collective.group_size == 2


def test_async_forms_of_a_recording() -> None:
    program = recorded("nccl2_lhs_r0", "jit_train_step(605)")
    start = program.instruction("all-gather-start.5")
    wrapped = program.wrapped("all-gather-start.5")
    assert start.opcode == "all-gather-start"
    assert wrapped is not None and wrapped.name == "all-gather.21"
    assert program.starter("all-gather.21") == start
    assert start.collective == wrapped.collective
    assert start.collective is not None
    assert start.collective.bytes == sum(leaf.bytes for leaf in start.shape.elements[1].leaves())
    assert (start.collective.group_size, start.collective.replica_groups) == (2, ((0, 1),))
    assert program.partner(start.name) == program.instruction("all-gather-done.5")
    assert program.executions(wrapped.name) == program.executions(start.name) == 4
    copy = program.wrapped("fusion-start")
    assert copy is not None and copy.opcode == "fusion"


def test_every_start_has_its_done() -> None:
    program = recorded("nccl2_lhs_r0", "jit_train_step(605)")
    starts = [i for i in program.runnable if i.is_start]
    assert len(starts) == 40
    for start in starts:
        done = program.partner(start.name)
        assert done is not None and done.is_done
        assert program.partner(done.name) == start


def test_equal_fusions_have_equal_hashes() -> None:
    program = recorded("off_default", "jit_step(342693)")
    shared = defaultdict(set)
    for fusion in program.runnable:
        if fusion.opcode == "fusion" and program.starter(fusion.name) is None:
            kernel = fusion.deduplicated_name or fusion.name
            shared[kernel].add(program.canonical(fusion.called[0]))
    # XLA's own deduplication is the answer: one hash a kernel, and no two kernels alike.
    assert all(len(hashes) == 1 for hashes in shared.values())
    assert len({one for hashes in shared.values() for one in hashes}) == len(shared)


def test_positions_are_the_schedule() -> None:
    program = recorded("off_default", "jit_step(342693)")
    for computation in program.computations.values():
        assert [i.position for i in computation.instructions] == list(
            range(len(computation.instructions))
        )
    body = program.computations["region_0.14"]
    before = {name for i in body.instructions for name in i.operands}
    assert before <= body.by_name.keys()


def test_content_hash_tells_schedules_apart() -> None:
    default = recorded("off_default", "jit_step(342693)")
    again = recorded("off_default", "jit_step(4634)")
    other = recorded("off_default", "jit_step(342671)")
    assert default.content_hash == again.content_hash
    assert default.content_hash != other.content_hash
    assert default.fingerprint == "7733d8dae4776b1233ab11144bb09097"
    assert default.program_id == 342693


CHANGES = {
    "name": "other",
    "opcode": "other",
    "shape": Shape("f32", (3,)),
    "operands": ("other",),
    "called": ("other",),
    "fusion_kind": "kOther",
    "custom_call_target": "other",
    "backend_config": "{other}",
    "trip_count": 99,
    "collective": Collective("all-gather", 99),
    "parameter_number": 99,
    "tuple_index": 99,
    "control_predecessors": ("other",),
    "attributes": {"other": 99},
}
SAYS_WHERE_FROM = {
    "op_name", "source_file", "source_line", "scheduling_name", "deduplicated_name", "unique_id",
    "position", "computation",
}  # fmt: skip
"""the last two follow from the order of instructions and from the computation that holds them"""


@given(st.data())
def test_any_change_of_an_instruction_changes_the_hash(data) -> None:
    found = program_from_text(LOOP)
    name = data.draw(st.sampled_from(sorted(found.computations)))
    computation = found.computations[name]
    place = data.draw(st.integers(0, len(computation.instructions) - 1))
    fields = {f.name for f in dataclasses.fields(Instruction)}
    assert fields == {*CHANGES, *SAYS_WHERE_FROM, "is_root"}
    field = data.draw(st.sampled_from(sorted(fields)))
    one = computation.instructions[place]
    value = not one.is_root if field == "is_root" else CHANGES.get(field, "elsewhere")
    made = list(computation.instructions)
    made[place] = replace(one, **{field: value})
    changed = replace(
        found,
        computations={
            **found.computations, name: replace(computation, instructions=tuple(made))
        },
    )  # fmt: skip
    assert (changed.content_hash != found.content_hash) == (field not in SAYS_WHERE_FROM)


def test_donated_buffers_change_the_hash() -> None:
    found = program_from_text(LOOP)
    assert replace(found, aliases={0: 0}).content_hash != found.content_hash


def test_calls_in_a_circle_are_refused() -> None:
    text = LOOP.replace("ROOT %less = pred[] constant(true)", "ROOT %less = pred[] while(%q), "
                        "condition=%inner_cond, body=%inner_cond")  # fmt: skip
    with pytest.raises(BadInput, match="computation inner_cond calls itself"):
        program_from_text(text)


def test_what_is_found_out_once_for_each_instruction() -> None:
    asked = []

    @once_per_instruction
    def length(program: Program, instruction: Instruction) -> int:
        asked.append(instruction.name)
        return len(instruction.name)

    program, other = program_from_text(LOOP), program_from_text(LOOP)
    exp = program.instruction("exp")
    assert [length(program, exp), length(program, exp)] == [3, 3]
    assert asked == ["exp"]
    # Neither another program's nor a changed one of the same name is mistaken for it.
    length(other, other.instruction("exp"))
    length(program, replace(exp, opcode="log"))
    assert asked == ["exp"] * 3
    gone = weakref.ref(program)
    del program
    gc.collect()
    assert gone() is None

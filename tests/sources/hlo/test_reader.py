import gzip
import lzma
import random
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorded import DATA, protos, recorded
from slipstream.errors import BadInput
from slipstream.profile.program import Instruction, Program
from slipstream.sources.hlo.reader import program_from_proto, program_from_text, read_program
from slipstream.sources.hlo.replica_groups import mesh_groups, parse_groups
from slipstream.sources.proto_schema import message

PAIRS = [
    ("nccl2_lhs_r0", "jit_train_step(605)"),
    ("off_default", "jit_step(342693)"),
]
# What text can't have, or spells differently: names inside asynchronous wrappers, the order of
# keys in JSON, and decimal digits.
DIFFERENT = ("unique_id", "backend_config", "called", "fusion_kind", "attributes")

OLD = """
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

fused (p: f32[4]) -> f32[4] {
  p = f32[4]{0} parameter(0)
  c = f32[] constant(0.5), metadata={op_name="jit(f)/jit(main)/a \\"b\\" {c"}
  b = f32[4]{0} broadcast(f32[] c), dimensions={}
  ROOT m = f32[4]{0} multiply(f32[4]{0} p, f32[4]{0} b)
}

async_computation {
  q = f32[4]{0} parameter(0)
  ROOT reduce-scatter.1 = f32[2]{0} reduce-scatter(q), replica_groups=[1,2]<=[2], dimensions={0}, \
to_apply=add
}, execution_thread="parallel"

add {
  x = f32[] parameter(0)
  y = f32[] parameter(1)
  ROOT s = f32[] add(x, y)
}

ENTRY %main.5 (Arg_0.1: f32[4]) -> (f32[4], f32[2]) {
  %Arg_0.1 = f32[4]{0} parameter(0), metadata={op_name="x[\\'a\\']"}
  %fusion = f32[4]{0} fusion(f32[4]{0} %Arg_0.1), kind=kLoop, calls=%fused, \
metadata={op_name="jit(f)/mul" source_file="/home/me/model.py" source_line=12}, \
backend_config="{\\"a\\":\\"}\\"}"
  %s = ((f32[4]{0}), f32[2]{0}) async-start(%fusion), calls=%async_computation
  %u = ((f32[4]{0}), f32[2]{0}) async-update(%s)
  %d = f32[2]{0} async-done(%u), calls=%async_computation
  ROOT %t = (f32[4]{0}, /*index=1*/f32[2]{0}) tuple(%fusion, /*index=1*/%d)
}
"""


def text_of(recording: str) -> str:
    return gzip.decompress((DATA / f"{recording}.hlo.gz").read_bytes()).decode()


@pytest.mark.parametrize(("recording", "name"), PAIRS)
def test_text_and_proto_agree(recording: str, name: str) -> None:
    text = read_program(DATA / f"{recording}.hlo.gz")
    proto = recorded(recording, name)
    assert (text.name, text.fingerprint, text.is_scheduled, text.entry.name) == (
        proto.name,
        proto.fingerprint,
        proto.is_scheduled,
        proto.entry.name,
    )
    compared = [f.name for f in fields(Instruction) if f.name not in DIFFERENT]
    for instruction in text.instructions:
        other = proto.instruction(instruction.name)
        for field in compared:
            assert getattr(instruction, field) == getattr(other, field), (instruction.name, field)
        assert partner_name(text, instruction) == partner_name(proto, instruction)
        assert text.executions(instruction.name) == proto.executions(instruction.name)


UNKNOWN = b"\xd0\x04\x01"
"""field 74 with the value 1: the schema has no such field"""


@pytest.mark.parametrize(
    ("said", "same"),
    [
        (b"", True),
        (UNKNOWN, False),
        (message("HloInstructionProto")(comparison_direction="LT").SerializeToString(), False),
        (message("HloInstructionProto")(use_global_device_ids=True).SerializeToString(), False),
        (message("HloInstructionProto")(backend_config=b"{}").SerializeToString(), False),
        (message("HloInstructionProto")(metadata={"op_name": "f"}).SerializeToString(), True),
    ],
)
def test_all_that_an_instruction_says_is_in_the_hash(said: bytes, same: bool) -> None:
    """Also what the schema does not know; source positions are not."""
    data = protos("nccl2_lhs_r0")["jit_train_step(605)"]
    changed = message("HloProto").FromString(data)
    changed.hlo_module.computations[0].instructions[0].MergeFromString(said)
    found = program_from_proto(changed.SerializeToString()).content_hash
    assert (found == program_from_proto(data).content_hash) == same


@pytest.mark.parametrize(("recording", "name"), PAIRS)
def test_attributes_agree(recording: str, name: str) -> None:
    proto = recorded(recording, name)
    for instruction in program_from_text(text_of(recording)).instructions:
        if instruction.opcode != "constant":
            theirs = proto.instruction(instruction.name).attributes
            assert {k: instruction.attributes.get(k) for k in theirs} == theirs, instruction.name


def partner_name(program: Program, instruction: Instruction) -> str | None:
    partner = program.partner(instruction.name)
    return partner.name if partner else None


def test_old_text() -> None:
    program = program_from_text(OLD)
    fusion = program.instruction("fusion")
    assert (fusion.source_file, fusion.source_line) == ("/home/me/model.py", 12)
    assert fusion.op_name == "jit(f)/mul"
    assert fusion.backend_config == '{"a":"}"}'
    assert program.instruction("Arg_0.1").op_name == "x['a']"
    assert program.instruction("c").op_name == 'jit(f)/jit(main)/a "b" {c'
    assert program.instruction("c").attributes == {"literal": "0.5"}
    assert program.instruction("m").operands == ("p", "b")
    assert program.instruction("t").operands == ("fusion", "d")
    assert program.entry.root.name == "t"


def test_generic_async_is_spelled_like_the_rest() -> None:
    program = program_from_text(OLD)
    opcodes = [program.instruction(name).opcode for name in "sud"]
    assert opcodes == ["reduce-scatter-start", "reduce-scatter-update", "reduce-scatter-done"]
    assert program.partner("s") == program.instruction("d")
    assert program.partner("d") == program.partner("u") == program.instruction("s")
    wrapped = program.wrapped("s")
    assert wrapped is not None and wrapped.name == "reduce-scatter.1"
    assert wrapped.collective is not None
    assert (wrapped.collective.bytes, wrapped.collective.group_size) == (16, 2)


def test_source_positions_from_stack_frames() -> None:
    program = program_from_text(text_of("off_default"))
    assert program.instruction("custom-call.11").source_file.endswith("model.py")
    assert program.instruction("custom-call.11").source_line == 18
    assert program.instruction("while.16").trip_count == 8


@pytest.mark.parametrize(
    ("text", "groups"),
    [
        ("{}", ()),
        ("{{0,1},{2,3}}", ((0, 1), (2, 3))),
        ("[2,4]<=[8]", ((0, 1, 2, 3), (4, 5, 6, 7))),
        ("[4,2]<=[2,4]T(1,0)", ((0, 4), (1, 5), (2, 6), (3, 7))),
        ("mesh['a'=2,'b'=3] {'b'}", ((0, 1, 2), (3, 4, 5))),
        ("mesh['a'=2,'b'=3] {'a'}", ((0, 3), (1, 4), (2, 5))),
        ("mesh['a'=2,'b'=2] {'b','a'}", ((0, 2, 1, 3),)),
        ("mesh['a'=8] {'a':(2)2}", ((0, 2), (1, 3), (4, 6), (5, 7))),
    ],
)
def test_replica_groups(text: str, groups: tuple[tuple[int, ...], ...]) -> None:
    assert parse_groups(text) == groups


@pytest.mark.parametrize(
    "text",
    [
        "mesh[" * 200_000,
        "mesh[],device_ids=(" + "){" * 500_000,
        "mesh[" + "'a'=1," * 200_000 + "]{" + "'a'" * 200_000 + "}",
        "[" + "1," * 500_000 + "1]<=[" + "1," * 500_000 + "1]",
        "[" + "99," * 300_000 + "1]<=[8]",
        "[1,8]<=[2,4]T(" + "1," * 500_000 + "1)",
    ],
    ids=["open", "devices", "axes", "dimensions", "product", "order"],
)
def test_groups_of_a_megabyte_are_refused_in_time(text: str) -> None:
    """Without the limits, three of these take minutes to hours."""
    with pytest.raises(ValueError) as caught:
        parse_groups(text)
    assert len(str(caught.value)) < 200


def test_mesh_with_its_own_devices() -> None:
    assert parse_groups("mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}") == ((0, 2), (1, 3))
    assert parse_groups("mesh['a'=4], device_ids=(3,2,1,0) {'a'}") == ((3, 2, 1, 0),)
    assert mesh_groups([2, 2], [(1, 1, 2)], [3, 2, 1, 0]) == ((3, 2), (1, 0))


def test_files_of_all_kinds(tmp_path: Path) -> None:
    proto = protos("off_default")["jit_stage(0)"]
    files = {
        "a.pb": proto,
        "a.hlo.pb.gz": gzip.compress(proto),
        "a.hlo.pb.xz": lzma.compress(proto),
        "a.txt": OLD.encode(),
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
        assert read_program(tmp_path / name).entry.instructions


def test_a_bare_module_is_read_too() -> None:

    proto = protos("off_default")["jit_step(342693)"]
    module = message("HloProto").FromString(proto).hlo_module.SerializeToString()
    assert program_from_proto(module).content_hash == program_from_proto(proto).content_hash


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, column 1: expected 'HloModule' and a name"),
        ("HloModule m\n\nENTRY e {\n  a = f32[2] sin(b)\n}", "operand b of a in e"),
        ("HloModule m\n\nENTRY e {\n  a = f99[2] sin(b)\n}", "line 4, column 7: expected a shape"),
        ("HloModule m\n\ne {\n  a = f32[] constant(1)\n}", "starts with ENTRY"),
        ("HloModule m\nENTRY e {\n  a = f32[] constant(1", "line 3"),
        ("HloModule m\nENTRY e {\n  a = f32[] constant(1), b=", "instructions|expected"),
        (
            "HloModule m\n\nENTRY e {\n  a = f32[8] parameter(0)\n  z = f32[] constant(0)\n"
            "  ROOT r = f32[] reduce(a, z), dimensions={0}, to_apply=add\n}",
            "instruction r: it calls add, expected a computation of this program",
        ),
        (
            "HloModule m\n\nENTRY e {\n  a = f32[8] parameter(0)\n"
            "  ROOT r = f32[8] all-reduce(a), replica_groups={{0,1}}, to_apply=add\n}",
            "instruction r: it calls add, expected a computation of this program",
        ),
    ],
)
def test_bad_text_says_where(text: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        program_from_text(text, source="x.hlo")


def test_bad_files_say_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"can't read .*nothing\.hlo: no such file"):
        read_program(tmp_path / "nothing.hlo")
    cases = {
        "empty.pb": b"",
        "cut.hlo.gz": (DATA / "off_default.hlo.gz").read_bytes()[:5000],
        "cut.pb": protos("off_default")["jit_step(342693)"][:5000],
        "other.pb": b"\x0a\x03abc",
    }
    for name, data in cases.items():
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BadInput, match=rf"{name}.*; (.*as_text\(\)|copy it again)"):
            read_program(tmp_path / name)


def test_a_proto_that_lies_is_an_error() -> None:

    proto = message("HloProto").FromString(protos("off_default")["jit_stage(0)"])
    proto.hlo_module.computations[0].instructions[-1].operand_ids[:] = [999]
    with pytest.raises(BadInput, match="contradicts itself"):
        program_from_proto(proto.SerializeToString())


@given(st.binary(max_size=400))
def test_random_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(BadInput):
        program_from_proto(data)


@given(st.randoms(use_true_random=False))
def test_damaged_protos_never_crash(rng: random.Random) -> None:
    data = bytearray(protos("off_default")["jit_stage(0)"])
    for _ in range(rng.randrange(1, 4)):
        data[rng.randrange(len(data))] = rng.randrange(256)
    try:
        program = program_from_proto(bytes(data))
    except BadInput:
        return
    assert program.content_hash


@given(st.integers(0, len(OLD) - 3), st.sampled_from('{}()[]",=%/* \n'))
def test_damaged_text_never_crashes(at: int, character: str) -> None:
    for text in (OLD[:at], OLD[:at] + character + OLD[at + 1 :]):
        try:
            program = program_from_text(text)
        except BadInput:
            continue
        assert program.content_hash


@pytest.mark.parametrize("opening", ["(", "{", "[", '"', "/*"])
def test_deep_nesting_is_an_error(opening: str) -> None:
    with pytest.raises(BadInput):
        program_from_text(f"HloModule m\nENTRY e {{ a = {opening * 20000}")


def test_reading_takes_few_calls_per_instruction() -> None:
    """Speed without a clock: Python functions that are called for each instruction."""
    data = protos("nccl2_lhs_r0")["jit_train_step(605)"]
    instructions = sum(len(c.instructions) for c in program_from_proto(data).computations.values())
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        program_from_proto(data)
    finally:
        sys.setprofile(None)
    assert calls / instructions < 30

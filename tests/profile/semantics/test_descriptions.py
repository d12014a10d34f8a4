"""Descriptions of instructions of XLA:TPU (tests/record/tpu_programs.py)."""

from functools import cache

import pytest

from recorded import DATA
from slipstream.profile.program import Program
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.dataflow import flattened
from slipstream.profile.semantics.descriptions import describe
from slipstream.sources.hlo.reader import program_from_text, read_program


@cache
def program_of(name: str) -> Program:
    return read_program(DATA / "tpu" / name)


SLICES, FSDP = "v5e_2slices.hlo.gz", "v5p_fsdp.hlo.gz"


@pytest.mark.parametrize(
    ("file", "name", "described"),
    [
        # A loop passes the parts of a weight around, and multiplies two of them at a time.
        (FSDP, "fusion.474", "x @ down"),
        (FSDP, "fusion.460", "x @ qkv"),
        (FSDP, "collective-permute-start.16", "collective-permute down 4.19 MB"),
        # The sum within a slice is sent to the others, and what they send updates the weights.
        (SLICES, "all-reduce.46", "all-reduce ∂head 131 MB"),
        (SLICES, "all-reduce.53", "all-reduce ∂out, ∂down, ∂qkv, ∂up +1 101 MB"),
        (SLICES, "fusion.173", "∂head = xᵀ @ dy"),
        (SLICES, "recv-done.5", "wait for ∂p.embedding 8.19 MB, all-reduce of slices"),
        # It is sent in the first iteration of the loop after it.
        (SLICES, "all-reduce.51", "all-reduce ∂down, ∂out, ∂qkv, ∂up 101 MB"),
        (SLICES, "param.11", "down"),
        # The scatter is in a fusion inside the fusion.
        (SLICES, "scatter_custom_fusion", "gather, scatter ∂p.embedding"),
        (SLICES, "convert_element_type.278", "cast head to bf16"),
    ],
)
def test_what_an_instruction_of_a_tpu_does(file, name, described):
    program = program_of(file)
    assert describe(program, program.instruction(name)) == described


def test_a_fusion_inside_a_fusion_decides_its_category():
    program = program_of(SLICES)
    assert category(program, program.instruction("scatter_custom_fusion")) == "scatter"


NESTED = """HloModule m, is_scheduled=true

inner {
  a = f32[8]{0} parameter(0)
  b = f32[8]{0} parameter(1)
  ROOT sum = f32[8]{0} add(a, b)
}

middle {
  c = f32[8]{0} parameter(0)
  f = f32[8]{0} fusion(c, c), kind=kLoop, calls=inner
  ROOT e = f32[8]{0} exponential(f)
}

outer {
  p = f32[8]{0} parameter(0)
  g = f32[8]{0} fusion(p), kind=kLoop, calls=middle
  n = f32[8]{0} negate(g)
  ROOT h = f32[8]{0} fusion(n, p), kind=kLoop, calls=inner2
}

inner2 {
  a2 = f32[8]{0} parameter(0)
  b2 = f32[8]{0} parameter(1)
  ROOT product = f32[8]{0} multiply(a2, b2)
}

ENTRY main {
  x = f32[8]{0} parameter(0)
  ROOT o = f32[8]{0} fusion(x), kind=kLoop, calls=outer
}
"""


def test_fusions_inside_fusions_are_one_list_of_operations():
    program = program_from_text(NESTED)
    found = flattened(program, program.instruction("o"))
    assert found is not None
    assert [(one.name, one.operands) for one in found.instructions] == [
        ("p", ()), ("sum", ("p", "p")), ("e", ("sum",)), ("n", ("e",)), ("product", ("n", "p")),
    ]  # fmt: skip
    assert found.root.name == "product"

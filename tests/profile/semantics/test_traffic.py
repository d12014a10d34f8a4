"""Bytes that instructions read and write, and which of them cross a TPU's HBM."""

import pytest

from recorded import DATA
from slipstream.profile.program import Program
from slipstream.profile.semantics.traffic import bytes_accessed, device_bytes
from slipstream.sources.hlo.reader import program_from_text, read_program

TEXT = """HloModule m, is_scheduled=true

fused {
  p = f32[8,1024]{1,0:S(1)} parameter(0)
  q = f32[1024]{0} parameter(1)
  b = f32[8,1024]{1,0} broadcast(q), dimensions={1}
  a = f32[8,1024]{1,0} add(p, b)
  ROOT t = (f32[8,1024]{1,0}, f32[8,1024]{1,0:S(1)}) tuple(a, a)
}

ENTRY main {
  x = f32[8,1024]{1,0} parameter(0)
  y = f32[1024]{0} parameter(1)
  s = (f32[8,1024]{1,0:S(1)}, f32[8,1024]{1,0}, u32[]{:S(2)}) copy-start(x)
  d = f32[8,1024]{1,0:S(1)} copy-done(s)
  c = ((f32[8,1024]{1,0}), f32[1,1024]{1,0:S(1)}, u32[]{:S(2)}) slice-start(x), slice={[0:1], [0:1024]}
  e = f32[1,1024]{1,0:S(1)} slice-done(c)
  n = f32[8,1024]{1,0:S(1)} negate(d)
  h = f32[8,1024]{1,0:S(5)} copy(x)
  p = f32[8,1024]{1,0:S(9)} copy(d)
  ROOT f = (f32[8,1024]{1,0}, f32[8,1024]{1,0:S(1)}) fusion(n, y), kind=kLoop, calls=fused
}
"""  # noqa: E501
ARRAY, ROW = 8 * 1024 * 4, 1024 * 4


@pytest.fixture(scope="module")
def program() -> Program:
    return program_from_text(TEXT)


@pytest.mark.parametrize(
    ("name", "everywhere", "in_hbm"),
    [
        ("s", 2 * ARRAY, ARRAY),  # from HBM to VMEM
        ("c", 2 * ROW, ROW),  # only the slice
        ("n", 2 * ARRAY, 0),  # in VMEM
        ("h", 2 * ARRAY, ARRAY),  # to the host
        ("p", 2 * ARRAY, ARRAY),  # a part of HBM
        ("f", 3 * ARRAY + ROW, ARRAY + ROW),  # one operand and one result in VMEM
    ],
)
def test_only_bytes_in_hbm_are_the_devices(program, name, everywhere, in_hbm):
    instruction = program.instruction(name)
    assert bytes_accessed(program, instruction) == everywhere
    assert device_bytes(program, instruction) == in_hbm


def test_a_quarter_of_the_bytes_of_a_real_step_stays_in_vmem():
    program = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    fusions = [one for one in program.scheduled if one.opcode == "fusion"]

    def total(count) -> int:
        return sum(count(program, one) * (program.executions(one.name) or 1) for one in fusions)

    assert 0.7 < total(device_bytes) / total(bytes_accessed) < 0.8
    # Products of activations in VMEM with weights that were copied there: nothing crosses HBM.
    product = program.instruction("fusion.431")
    assert bytes_accessed(program, product) == 110_112_800
    assert device_bytes(program, product) == 0

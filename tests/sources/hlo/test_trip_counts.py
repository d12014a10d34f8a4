import pytest

from recorded import DATA
from slipstream.sources.hlo.reader import program_from_text, read_program

LOOP = """
HloModule step, is_scheduled=true

body (p: (s32[], f32[4])) -> (s32[], f32[4]) {{
  p = (s32[], f32[4]{{0}}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[4]{{0}} get-tuple-element(p), index=1
  one = s32[] constant({step})
  c = s32[]{{:S(6)}} copy(i)
  next = s32[] {change}
  ROOT t = (s32[], f32[4]{{0}}) tuple(next, x)
}}

condition (q: (s32[], f32[4])) -> pred[] {{
  q = (s32[], f32[4]{{0}}) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  n = s32[] constant({limit})
  ROOT less = pred[] compare({compared}), direction={direction}
}}

ENTRY main (x: f32[4]) -> (s32[], f32[4]) {{
  x.1 = f32[4]{{0}} parameter(0)
  zero = s32[] constant({first})
  copied = s32[] copy(zero)
  t.1 = (s32[], f32[4]{{0}}) tuple(copied, x.1)
  ROOT loop = (s32[], f32[4]{{0}}) while(t.1), condition=condition, body=body
}}
"""


@pytest.mark.parametrize(
    ("changed", "count"),
    [
        ({}, 4),
        ({"first": 1}, 3),
        ({"step": 3}, 2),
        ({"direction": "LE"}, 5),
        ({"first": 9}, 0),
        ({"compared": "n, j", "direction": "GT"}, 4),
        ({"direction": "NE", "step": 2}, 2),
        ({"direction": "NE", "step": 3}, None),
        ({"first": 4, "limit": 0, "direction": "GT", "change": "subtract(c, one)"}, 4),
        ({"change": "subtract(c, one)"}, None),
        ({"change": "subtract(one, c)"}, None),
        ({"change": "multiply(c, one)"}, None),
        ({"change": "add(c, c)"}, None),
        ({"direction": "EQ"}, None),
    ],
)
def test_a_loop_that_counts(changed: dict[str, object], count: int | None) -> None:
    usual = {"first": 0, "limit": 4, "step": 1, "direction": "LT", "compared": "j, n"}
    text = LOOP.format(**{**usual, "change": "add(c, one)", **changed})
    assert program_from_text(text).instruction("loop").trip_count == count


def test_real_programs() -> None:
    program = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    # XLA takes one iteration of the backward loop out of it, to overlap what comes after.
    assert program.instruction("while.38").trip_count == 4
    assert program.instruction("while.37").trip_count == 3

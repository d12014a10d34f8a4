"""The names costs go under: wrapped operations, renamed ones, rematerialised clones."""

import pytest

from slipstream.costs.extract import _joined
from slipstream.costs.scheduler_names import is_clone, looked_up, lookup_name, never_run
from slipstream.costs.table import Cost
from slipstream.sources.hlo.reader import program_from_text

TEXT = """HloModule step, is_scheduled=true

body {
  p = (s32[], f32[8]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  x = f32[8] get-tuple-element(p), index=1
  fusion.7 = f32[8] fusion(x), kind=kLoop, calls=fused, metadata={scheduling_name="fusion.3"}
  ROOT t = (s32[], f32[8]) tuple(i, fusion.7)
}

condition {
  q = (s32[], f32[8]) parameter(0)
  j = s32[] get-tuple-element(q), index=0
  ROOT compare.1 = pred[] fusion(j), kind=kLoop, calls=compared
}

fused {
  a = f32[8] parameter(0)
  ROOT n = f32[8] negate(a)
}

compared {
  b = s32[] parameter(0)
  c = s32[] constant(4)
  ROOT lt = pred[] compare(b, c), direction=LT
}

ENTRY main {
  in = f32[8] parameter(0)
  zero = s32[] constant(0)
  ags = (f32[8], f32[64]) all-gather-start(in), replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  agd = f32[64] all-gather-done(ags)
  fusion.9 = f32[8] fusion(in), kind=kLoop, calls=fused
  fusion.9.remat2 = f32[8] fusion(in), kind=kLoop, calls=fused
  buffer = f32[8] custom-call(), custom_call_target="AllocateBuffer"
  init = (s32[], f32[8]) tuple(zero, fusion.9)
  ROOT loop = (s32[], f32[8]) while(init), condition=condition, body=body, COUNTED
}
""".replace("COUNTED", 'backend_config={"known_trip_count":{"n":"4"}}')


@pytest.fixture(scope="module")
def program():
    return program_from_text(TEXT)


def test_names_that_the_scheduler_looks_up(program):
    names = {"ags", "fusion.9", "fusion.9.remat2", "buffer", "compare.1", "fusion.7"}
    assert {i.name for i in looked_up(program)} == names


def test_instructions_that_never_run_cost_nothing(program):
    assert {i.name for i in never_run(program)} == {"buffer", "compare.1"}


def test_names_are_those_of_the_scheduler(program):
    assert lookup_name(program, "fusion.7") == "fusion.3"
    assert lookup_name(program, "fusion.9.remat2") == "fusion.9"
    assert is_clone("fusion.9.remat2") and is_clone("fusion.9.remat") and not is_clone("fusion.9")


def test_a_clone_is_another_execution_and_a_part_is_a_part():
    first, second = Cost("f", 10.0, 8), Cost("f", 40.0, 4)

    assert _joined(first, second, is_another_execution=True) == Cost("f", 20.0, 12)
    assert _joined(first, second, is_another_execution=False).us == 50.0
    assert _joined(None, second, is_another_execution=True) == second

"""Loops that hand microbatches from stage to stage, and loops that don't."""

import pytest

from slipstream.plan.report.pipeline_loops import PipelineLoop, chain_length, pipeline_loops
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_text

TEXT = """HloModule toy, is_scheduled=true

%body (s: (s32[], f32[64])) -> (s32[], f32[64]) {{
  %s = (s32[], f32[64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %h = f32[64] get-tuple-element(%s), index=1
  {operand}
  %moved = f32[{size}] collective-permute(%sent), source_target_pairs={{{pairs}}}, channel_id=1
  %stage = f32[64] {stage}
  ROOT %next = (s32[], f32[64]) tuple(%i, %stage)
}}
%condition (s: (s32[], f32[64])) -> pred[] {{
  %s = (s32[], f32[64]) parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant({turns})
  ROOT %less = pred[] compare(%i, %n), direction=LT
}}
ENTRY %main (x: f32[64]) -> f32[64] {{
  %x = f32[64] parameter(0)
  %zero = s32[] constant(0)
  %state = (s32[], f32[64]) tuple(%zero, %x)
  %loop = (s32[], f32[64]) while(%state), condition=%condition, body=%body, \
backend_config={{"known_trip_count":{{"n":"{turns}"}}}}
  ROOT %y = f32[64] get-tuple-element(%loop), index=1
}}
"""
WHOLE = {"operand": "%sent = f32[64] bitcast(%h)", "size": 64, "stage": "negate(%moved)"}
SLICE = {
    "operand": "%sent = f32[8] slice(%h), slice={[0:8]}",
    "size": 8,
    "stage": "pad(%moved, %moved), padding=0_56",
}
CHAINS = "{0,2},{2,4},{4,6},{1,3},{3,5},{5,7}"
RING = "{0,1},{1,2},{2,3},{3,0}"


def pipeline(pairs: str = CHAINS, turns: int = 11, sent: dict[str, object] = WHOLE) -> Program:
    return program_from_text(TEXT.format(pairs=pairs, turns=turns, **sent))


def test_chains_of_devices() -> None:
    found = pipeline_loops(pipeline())
    assert found == {"loop": PipelineLoop(stages=4, turns=11)}
    assert found["loop"].bubble == pytest.approx(3 / 11)


@pytest.mark.parametrize(
    "program",
    [pipeline(RING), pipeline(turns=3), pipeline(sent=SLICE)],
    ids=["a ring", "fewer turns than stages", "a halo"],
)
def test_what_is_not_a_pipeline(program: Program) -> None:
    assert pipeline_loops(program) == {}


@pytest.mark.parametrize(
    ("pairs", "length"),
    [
        ([(0, 1), (1, 2)], 3),
        ([(6, 4), (4, 2), (7, 5), (5, 3)], 3),
        ([(0, 1), (1, 2), (3, 4)], None),
        ([(0, 1), (1, 0)], None),
        ([(0, 1), (1, 2), (3, 4), (4, 3)], None),
        ([(0, 1), (0, 2)], None),
        ([(3, 3)], None),
        ([], None),
    ],
)
def test_the_length_of_chains(pairs: list[tuple[int, int]], length: int | None) -> None:
    assert chain_length(pairs) == length

"""Which programs are searched beside XLA's own."""

from slipstream.scheduling.bases import AS_IT_IS, bases_of
from slipstream.sources.hlo.reader import program_from_text

GATHERS = """HloModule step, is_scheduled=true

ENTRY %main (a: f32[8], b: f32[8]) -> f32[64] {
  %a = f32[8] parameter(0)
  %b = f32[8] parameter(1)
  STARTS
  ROOT %sum = f32[64] add(%x, %y)
}
"""
COMBINED = """%start = ((f32[8], f32[8]), (f32[64], f32[64])) all-gather-start(%a, %b),
    replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %done = (f32[64], f32[64]) all-gather-done(%start)
  %x = f32[64] get-tuple-element(%done), index=0
  %y = f32[64] get-tuple-element(%done), index=1"""
ALONE = """%start = (f32[8], f32[64]) all-gather-start(%a),
    replica_groups={{0,1,2,3,4,5,6,7}}, dimensions={0}
  %x = f32[64] all-gather-done(%start)
  %y = f32[64] negate(%x)"""


def names(starts):
    return [base.name for base in bases_of(program_from_text(GATHERS.replace("STARTS", starts)))]


def test_collectives_that_xla_combined_are_also_tried_apart():
    assert names(COMBINED) == [
        AS_IT_IS,
        "up to 2 collectives at once",
        "up to 4 collectives at once",
        "collectives apart",
        "collectives apart, up to 2 collectives at once",
    ]


def test_a_collective_of_one_array_is_not_taken_apart():
    assert names(ALONE) == [
        AS_IT_IS,
        "up to 2 collectives at once",
        "up to 4 collectives at once",
    ]


def test_what_xla_combined_in_a_loop_is_tried_apart_and_one_turn_earlier_at_once():
    body = f"""%body (p: (f32[8], f32[8])) -> (f32[8], f32[8]) {{
  %p = (f32[8], f32[8]) parameter(0)
  %a = f32[8] get-tuple-element(%p), index=0
  %b = f32[8] get-tuple-element(%p), index=1
  {COMBINED}
  %sum = f32[64] add(%x, %y)
  %own = f32[8] slice(%sum), slice={{[0:8]}}
  ROOT %next = (f32[8], f32[8]) tuple(%own, %b)
}}

%on (q: (f32[8], f32[8])) -> pred[] {{
  %q = (f32[8], f32[8]) parameter(0)
  ROOT %yes = pred[] constant(true)
}}
"""
    text = f"""HloModule step, is_scheduled=true

{body}
ENTRY %main (first: (f32[8], f32[8])) -> (f32[8], f32[8]) {{
  %first = (f32[8], f32[8]) parameter(0)
  ROOT %loop = (f32[8], f32[8]) while(%first), condition=%on, body=%body,
    backend_config={{"known_trip_count":{{"n":"4"}}}}
}}
"""
    bases = list(bases_of(program_from_text(text)))
    assert bases[-1].name == "collectives apart and one turn earlier, up to 2 collectives at once"
    by_name = {one.name: one.flags for one in bases}
    several = by_name["up to 2 collectives at once"]
    apart, earlier = by_name["collectives apart"], by_name["collectives one turn earlier"]
    assert bases[-1].flags == {**apart, **earlier, **several}

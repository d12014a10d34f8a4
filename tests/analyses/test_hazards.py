"""What an order has to keep although no dependency says so."""

from slipstream.analyses.hazards import hazards_of
from slipstream.sources.hlo.reader import program_from_text

DONATED = """HloModule step, is_scheduled=true, input_output_alias={ {0}: (0, {}, must-alias) }

ENTRY %main (weight: f32[8], x: f32[8]) -> (f32[8], f32[16]) {
  %weight = f32[8] parameter(0)
  %x = f32[8] parameter(1)
  %start = (f32[8], f32[16]) all-gather-start(%weight), replica_groups={{0,1}}, dimensions={0}
  %other = f32[8] negate(%x)
  %done = f32[16] all-gather-done(%start)
  %update = f32[8] multiply(%x, %other)
  ROOT %both = (f32[8], f32[16]) tuple(%update, %done)
}
"""
STATE = "(s32[], f32[8], f32[8])"
PIPELINED = f"""HloModule step, is_scheduled=true

%turn (state: {STATE}) -> {STATE} {{
  %state = {STATE} parameter(0)
  %count = s32[] get-tuple-element(%state), index=0
  %x = f32[8] get-tuple-element(%state), index=1
  %weight = f32[8] get-tuple-element(%state), index=2
  %product = f32[8] multiply(%x, %weight)
  %slice = f32[8] custom-call(%count), custom_call_target="slice"
  %next = s32[] custom-call(%count), custom_call_target="next"
  ROOT %result = {STATE} tuple(%next, %product, %slice)
}}

%more (state: {STATE}) -> pred[] {{
  %state = {STATE} parameter(0)
  ROOT %true = pred[] constant(true)
}}

ENTRY %main (state: {STATE}) -> f32[8] {{
  %state = {STATE} parameter(0)
  %loop = {STATE} while(%state), condition=%more, body=%turn
  ROOT %x = f32[8] get-tuple-element(%loop), index=1
}}
"""


def test_a_donated_argument_is_read_before_it_is_written_over():
    found = hazards_of(program_from_text(DONATED))["main"]
    # The gather reads the weight until it is done.
    assert {("update", "start"), ("update", "done")} <= set(found)


def test_what_a_loop_carries_is_read_before_the_next_value_is_written():
    found = hazards_of(program_from_text(PIPELINED))["turn"]
    assert ("next", "slice") in found  # the count
    assert ("slice", "product") in found  # the weight of the next turn


def body(*lines: str) -> str:
    text = "\n".join(f"  {line}" for line in lines)
    return (
        "HloModule step, is_scheduled=true\n\n"
        f"ENTRY %main (a: f32[8]) -> f32[8] {{\n  %a = f32[8] parameter(0)\n{text}\n}}\n"
    )


def test_a_custom_call_that_writes_over_an_operand():
    calls = (
        "%copy = f32[8] copy(%a)",
        "%read = f32[8] negate(%copy)",
        '%into = f32[8] custom-call(%copy), custom_call_target="f"{}',
        "ROOT %sum = f32[8] add(%read, %into)",
    )
    written = ", output_to_operand_aliasing={{}: (0, {})}"
    plain, over = (
        hazards_of(program_from_text(body(*(one.replace("{}", said, 1) for one in calls))))["main"]
        for said in ("", written)
    )
    assert ("into", "read") in over and ("into", "read") not in plain


def test_values_that_share_no_buffer_are_free():
    free = body("%k = f32[8] negate(%a)", "%l = f32[8] negate(%a)", "ROOT %s = f32[8] add(%k, %l)")
    found = dict(hazards_of(program_from_text(free)))["main"]
    assert set(found) == {("s", "k"), ("s", "l")}  # operands


def test_a_loop_stays_on_its_side_of_a_transfer():
    text = PIPELINED.replace(
        "  %loop = ",
        "  %token = token[] after-all()\n"
        "  %recv = (f32[8], u32[], token[]) recv(%token), channel_id=1\n"
        "  %recv-done = (f32[8], token[]) recv-done(%recv), channel_id=1\n  %loop = ",
    )
    assert {("loop", "recv"), ("loop", "recv-done")} <= set(
        hazards_of(program_from_text(text))["main"]
    )

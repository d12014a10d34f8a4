"""What a program launches, with loops unrolled."""

from __future__ import annotations

import pytest

from builders import STEP, program
from slipstream.profile.attribution import launch_sequence
from slipstream.profile.attribution.kernels import ATTENTION, ATTENTION_GRAD
from slipstream.profile.attribution.launch_sequence import launch_of, unroll
from slipstream.sources.hlo.reader import program_from_text


def test_loops_are_unrolled_by_their_trip_counts() -> None:
    found = unroll(program(STEP, ["dot.1", "while.1"], {"while.1": (3, ["add.1"])}))
    assert [one.instruction for one in found.launches] == ["dot.1", "add.1", "add.1", "add.1"]


@pytest.mark.parametrize("body", [[], ["add.1"]])
def test_a_trip_count_may_be_any_that_a_program_has(
    body: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch_sequence, "MAX_LAUNCHES", 5)
    found = unroll(program(STEP, ["dot.1", "while.1"], {"while.1": (2**40, body)}))
    assert len(found.launches) == (6 if body else 1)


@pytest.mark.parametrize(
    ("target", "family"),
    [
        ("__cudnn$fmhaSoftmax", ATTENTION),
        ("__cudnn$fmhaSoftmaxBackward", ATTENTION_GRAD),
        ("te_fused_attn_forward_ffi", ATTENTION),
        ("te_fused_attn_backward_ffi", ATTENTION_GRAD),
    ],
)
def test_a_call_of_a_library_says_what_it_computes(target: str, family: int) -> None:
    text = f"""HloModule m, is_scheduled=true

ENTRY e {{
  p = bf16[8]{{0}} parameter(0)
  ROOT call = bf16[8]{{0}} custom-call(p), custom_call_target="{target}"
}}
"""
    found = program_from_text(text)
    assert launch_of(found, found.instruction("call")).family == family

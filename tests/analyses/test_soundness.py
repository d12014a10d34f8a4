"""Bitcasts that change the number of bytes are found, and no others."""

from dataclasses import replace

import pytest

from slipstream.analyses.soundness import FLAG, Soundness, WrongBitcast, soundness
from slipstream.sources.hlo.reader import program_from_text

ADD = """
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
"""
CONTIGUOUS = """HloModule jit_step, is_scheduled=true
%joined (x: f32[512], y: f32[1024]) -> f32[1536] {
  %x = f32[512]{0} parameter(0)
  %y = f32[1024]{0} parameter(1)
  ROOT %concatenate.1 = f32[1536]{0} concatenate(%x, %y), dimensions={0}
}
%cut (z: f32[1536]) -> bf16[2,512] {
  %z = f32[1536]{0} parameter(0)
  %slice.1 = f32[1024]{0} slice(%z), slice={[512:1536]}
  ROOT %back = bf16[2,512]{1,0} bitcast(%slice.1)
}
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}
ENTRY main {
  %final = f32[512]{0} parameter(0)
  %scale = bf16[2,512]{1,0} parameter(1)
  %flat = f32[1024]{0} bitcast(%scale)
  %fusion.1 = f32[1536]{0} fusion(%final, %flat), kind=kLoop, calls=%joined
  %start = f32[1536]{0} all-reduce-start(%fusion.1), replica_groups={{0,1}}, to_apply=%add
  %done = f32[1536]{0} all-reduce-done(%start)
  ROOT %fusion.2 = bf16[2,512]{1,0} fusion(%done), kind=kLoop, calls=%cut
}
"""
"""what the pass makes of an all-reduce of f32[512] and bf16[2,512]"""


def entry(*lines: str) -> Soundness:
    *first, last = lines
    body = "\n".join(f"  {line}" for line in (*first, f"ROOT {last}"))
    return soundness(program_from_text(f"HloModule jit_f\n{ADD}\nENTRY main {{\n{body}\n}}\n"))


def test_what_the_pass_makes_is_found_on_both_sides_of_the_all_reduce():
    found = soundness(program_from_text(CONTIGUOUS))
    assert set(found.bitcasts) == {
        WrongBitcast("flat", "bf16[2,512]", "f32[1024]", 2048, 4096, "feeds"),
        WrongBitcast("back", "f32[1024]", "bf16[2,512]", 4096, 2048, "follows"),
    }
    assert not found.is_sound and found.is_known
    assert found.text == (
        "the program's results are wrong: flat reads bf16[2,512] (2.05 kB) as f32[1024] (4.1 kB), "
        "and 1 more bitcast like it. XLA's pass all-reduce-contiguous combines all-reduces of "
        "several types as if all had the type of the first, so values of the other types are "
        "summed as the wrong type: their sums are garbage and may be NaN. "
        "Type: XLA_FLAGS=--xla_disable_hlo_passes=all-reduce-contiguous"
    )


def test_passes_that_are_off_stay_off():
    program = replace(program_from_text(CONTIGUOUS), flags={FLAG: "algsimp"})
    assert soundness(program).fix == f"XLA_FLAGS=--{FLAG}=algsimp,all-reduce-contiguous"


def test_a_bitcast_far_from_any_all_reduce_is_another_trouble():
    found = entry("p = f32[8]{0} parameter(0)", "b = f32[4]{0} bitcast(p)")
    assert found.bitcasts == (WrongBitcast("b", "f32[8]", "f32[4]", 32, 16),)
    assert not found.is_known
    assert "contiguous" not in found.text and "--xla_dump_to=DIR" in found.text


@pytest.mark.parametrize(
    "lines",
    [
        ("p = f32[2,512]{1,0} parameter(0)", "b = f32[1024]{0} bitcast(p)"),
        ("p = f32[2,512]{1,0} parameter(0)", "b = f32[512,2]{0,1} bitcast(p)"),
        ("p = bf16[8,2]{1,0} parameter(0)", "b = f32[8]{0} bitcast(p)"),
        ("p = f32[] parameter(0)", "b = f32[1,1]{1,0} bitcast(p)"),
        ("p = pred[8]{0} parameter(0)", "b = u8[8]{0} bitcast(p)"),
        ("p = f32[8]{0:S(5)} parameter(0)", "b = f32[2,4]{1,0:S(5)} bitcast(p)"),
        ("p = f32[0,4]{1,0} parameter(0)", "b = bf16[0]{0} bitcast(p)"),
        # Four bits each, packed, or a byte each: layouts say which, and are not kept.
        ("p = s4[16]{0:E(4)} parameter(0)", "b = s8[8]{0} bitcast(p)"),
        ("p = s4[16]{0} parameter(0)", "b = s8[16]{0} bitcast(p)"),
        ("p = f32[<=8]{0} parameter(0)", "b = f32[<=2,4]{1,0} bitcast(p)"),
        # Other instructions than bitcasts change sizes as they like, or are checked by XLA.
        ("p = bf16[8]{0} parameter(0)", "b = f32[8]{0} convert(p)"),
        ("p = f32[8]{0} parameter(0)", "b = bf16[8,2]{1,0} bitcast-convert(p)"),
        ("p = f32[8]{0} parameter(0)", "b = (f32[8]{0}) tuple(p)"),
    ],
)
def test_what_keeps_its_bytes_is_no_trouble(lines):
    found = entry(*lines)
    assert found.is_sound and not found.bitcasts
    assert (found.text, found.seen) == ("", "")


def test_arrays_in_tiles_may_be_padded():
    """As XLA:TPU writes them: a scalar fills a tile of 128."""
    assert entry(
        "%sum = f32[]{:T(128)} parameter(0)",
        "%row = f32[1,1,128]{2,1,0:T(1,128)} bitcast(%sum)",
    ).is_sound

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from outputs.results import COPY, OPS, PROGRAMS, SUMMARY
from slipstream.outputs.terminal.ops import render
from slipstream.outputs.terminal.words import share_text


def text(result, width=80, **options):
    return render(result, width, **options).plain


def test_summary():
    assert text(SUMMARY) == (
        """\
NVIDIA H200 · 1 host, 1 device · jax 0.11.2 · jit_step 7733d8da
3 steps, by annotation

step 447 ms
  compute               ███████████████▋     412 ms   92%
  exposed communication ▍                      9 ms    2%   21 ms more hidden
  exposed copies        ▉                     23 ms    5%   42 ms more hidden
  idle                  ▏                      3 ms    1%
  900 µs of it (0.2%) belongs to no instruction
  forward 112 ms · backward 206 ms · remat 98 ms · optimizer 5 ms

  most time                                                            ms  share
  backward · block/mlp · x @ w1ᵀ                        model.py:26  41.0   9.2%
  remat    · block/attention…erything that came before  model.py:21  38.0   8.5%
  copy.3                                                              0.0  <0.1%

! host copies run on the compute stream: command buffers capture them; see:
  slipstream explain host-copies"""
    )


def test_summary_without_steps_says_why_and_shows_no_bars():
    times = replace(SUMMARY.per_step, **dict.fromkeys(vars(SUMMARY.per_step), math.nan))
    shown = text(
        replace(
            SUMMARY,
            step_count=0,
            step_median_us=math.nan,
            step_rule="no program ran twice; record more than one step",
            per_step=times,
            phases_us={},
            top=(),
            warnings=(),
        )
    )
    assert shown == (
        "NVIDIA H200 · 1 host, 1 device · jax 0.11.2 · jit_step 7733d8da\n"
        "\n"
        "no steps: no program ran twice; record more than one step"
    )


def test_summary_without_communication_gives_the_bars_its_room():
    times = replace(
        SUMMARY.per_step, communication_us=0.0, exposed_communication_us=0.0, unattributed_us=0.0
    )
    lines = text(replace(SUMMARY, per_step=times)).splitlines()
    assert lines[4] == "  compute        ██████████████████████▏     412 ms   92%"
    assert not any("communication" in line or "belongs" in line for line in lines)


def test_ops():
    assert text(OPS, top=2) == (
        """\
device time by instruction · 79 ms a step · 3 steps counted
99.8% attributed to instructions

instruction             what                     source       count    ms  share
gemm_fusion_dot.7       backward ·…p · x @ w1ᵀ   model.py:26      3  41.0   9.2%
loop_softma…_fusion.12  remat · blo…came before  model.py:21      6  38.0   8.5%
… and 1 more, <0.1% together: --top 3"""
    )


def test_ops_of_the_whole_recording_by_kernel():
    by_kernel = replace(OPS, by="kernel", steps=0, ops=(COPY,), total_us=15.0)
    assert text(by_kernel) == (
        """\
device time by kernel · 15 µs in the whole recording
99.8% attributed to instructions

kernel  count    µs  share
copy.3      3  15.0  <0.1%"""
    )


def test_ops_of_several_programs_name_them():
    other = replace(COPY, program="jit_init(2)")
    by_category = replace(OPS, by="category", ops=(replace(COPY, instruction="copy"), other))
    assert text(by_category).splitlines()[3:] == [
        "category  program      count    µs  share",
        "copy      jit_step(1)      3  5.00  <0.1%",
        "copy.3    jit_init(2)      3  5.00  <0.1%",
    ]


def test_programs():
    assert text(PROGRAMS) == (
        """\
program               fingerprint  executions  instructions  device time  graphs
jit_step(1)           7733d8da              3           116       1.34 s  yes
jit_conver…_type(22)  –                     1             –      12.5 µs  no"""
    )


@pytest.mark.parametrize("width", [72, 80, 100])
@pytest.mark.parametrize("result", [SUMMARY, OPS, PROGRAMS], ids=["summary", "ops", "programs"])
def test_no_line_is_too_long(result, width):
    assert max(cell_len(line) for line in text(result, width).splitlines()) <= width


def test_names_can_not_break_the_screen():
    nasty = replace(OPS, by="kernel", ops=(replace(COPY, instruction="a\nb\x1b[31mc"),))
    assert text(nasty).splitlines()[-1] == "a b [31mc      3  5.00  <0.1%"


def test_shares_never_pretend():
    shown = [share_text(s) for s in (0, 1e-6, 0.5, 0.9999, 1, 1 - 1e-12, math.nan)]
    assert shown == ["0.0%", "<0.1%", "50.0%", "99.9%", "100%", "100%", "–"]
    assert [share_text(s, 0) for s in (0.001, 0.94, 0.999)] == ["<1%", "94%", "99%"]


def test_no_colour_says_the_same(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(force_terminal=True, width=80)
    with console.capture() as captured:
        console.print(render(SUMMARY), soft_wrap=True)
    assert "\x1b[3" not in captured.get()

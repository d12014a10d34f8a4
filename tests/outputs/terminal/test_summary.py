from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from outputs.results import MATMUL, SUMMARY
from slipstream.outputs.terminal.summary import render_summary
from slipstream.profile.semantics.names import PHASES


def text(result, width=80):
    return render_summary(result, width).plain


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
  together 421 ms of device time

       most time                                                       ms  share
  1 ×  backward · block/mlp · x @ w1ᵀ                   model.py:26  41.0   9.2%
  2 ×  remat    · softmax of everyth… that came before  model.py:21  38.0   8.5%
  1 ×  copy.3                                                         0.0  <0.1%

! host copies run on the compute stream: command buffers capture them; see:
  slipstream explain host-copies"""
    )


def test_phases_that_add_up_to_the_step_have_no_sum():
    whole = text(replace(SUMMARY, phases_us={"forward": 147_000.0, "backward": 299_000.0}))
    assert "  forward 147 ms · backward 299 ms\n\n" in whole


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
            top_groups=(),
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


@given(st.lists(st.sampled_from(("", *PHASES)), max_size=5), st.sampled_from([72, 100]))
def test_ops_of_any_phases(phases, width):
    """A forward function alone has none: all its ops are `other`."""
    ops = tuple(replace(MATMUL, phase=phase) for phase in phases)
    shown = text(replace(SUMMARY, top_groups=ops), width)
    assert shown.count("x @ w1ᵀ") == len(ops)
    for phase in set(phases) - {"", "other"}:
        assert shown.count(f"  {phase} ") >= phases.count(phase)


@pytest.mark.parametrize("width", [72, 80, 100])
def test_no_line_is_too_long(width):
    assert max(cell_len(line) for line in text(SUMMARY, width).splitlines()) <= width


def test_no_colour_says_the_same(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    console = Console(force_terminal=True, width=80)
    with console.capture() as captured:
        console.print(render_summary(SUMMARY), soft_wrap=True)
    assert "\x1b[3" not in captured.get()

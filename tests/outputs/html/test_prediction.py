"""Predictions on the page: the band, and kernels without a model."""

from __future__ import annotations

from dataclasses import replace

from schedules import MACHINE, gather, gathered, kernel, program
from slipstream.machines.power import Power
from slipstream.outputs.html.sections.prediction import prediction_section
from slipstream.results.prediction import UnknownKernel
from slipstream.simulate.prediction import predict

PROGRAM = program(
    gather("g", "a"), kernel("b", "a"), gathered("gd", "g"),
    "ROOT %t = (f32[8], f32[16]) tuple(%b, %gd)",
)  # fmt: skip


def test_the_band_and_kernels_without_a_model() -> None:
    found = replace(predict(PROGRAM, MACHINE), step_us=1300.0, low_us=1200.0, high_us=1500.0)
    section = prediction_section([found])
    assert "per step (90% band: 1.2 ms … 1.5 ms)" in str(section.lede)
    assert "1.3 ms<small>1.2 … 1.5</small>" in str(section.body)
    assert "Kernels without a model" not in str(section.body)
    named = UnknownKernel("my_attention<1>", 12, 340.0, 0.26)
    shown = str(prediction_section([replace(found, unknown=(named,))]).body)
    assert "Kernels without a model" in shown
    assert "my_attention&lt;1&gt;" in shown and "26.0%" in shown and "340 µs" in shown


def test_clock_and_power() -> None:
    found = predict(PROGRAM, MACHINE)
    assert "Clock" not in str(prediction_section([found]).body)
    capped = replace(found, power=Power(1.626e9, 1.98e9, 699.8, 700, True))
    shown = str(prediction_section([capped, found]).body)
    assert "Clock" in shown
    assert "1,626 MHz<small>at the 700 W cap</small>" in shown


def test_memory_that_does_not_fit() -> None:
    found = replace(predict(PROGRAM, MACHINE), memory_bytes=4 * 10**8)
    assert "400 MB</span><small>of 1 GB</small>" in str(prediction_section([found]).body)
    large = replace(found, memory_bytes=2 * 10**9)
    shown = str(prediction_section([large]).body)
    assert '<span class="up">2 GB</span><small>of 1 GB, does not fit</small>' in shown

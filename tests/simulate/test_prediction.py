"""Predictions of small programs, whole, and as people and programs see them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from schedules import MACHINE, gather, gathered, kernel, program
from slipstream.analyses.roofline import roofline
from slipstream.compiler.messages import CompilerMessage
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.machines.power import Power
from slipstream.machines.topology import machine
from slipstream.outputs.terminal.compiled.predict import prediction_json, render_predictions
from slipstream.results.prediction import Prediction
from slipstream.simulate.costing import costing
from slipstream.simulate.engine import simulation
from slipstream.simulate.prediction import _slowed, predict

DOT = (
    "%d = f32[256,256] dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, "
    'metadata={op_name="jit(step)/dot" source_file="model.py" source_line=7}'
)
PROGRAM = program(
    "%x = f32[256,256] parameter(1)",
    gather("g", "a"),
    kernel("b", "a"),
    gathered("gd", "g"),
    DOT,
    "ROOT %t = (f32[8], f32[16], f32[256,256]) tuple(%b, %gd, %d)",
)


def costs(**us: float) -> CostTable:
    table = {name: Cost(name, time) for name, time in us.items()}
    return CostTable((ProgramCosts(None, "toy", table),))


def test_a_whole_prediction() -> None:
    found = predict(PROGRAM, MACHINE, costs(g=300, b=100, d=1000), command_buffers=False)
    assert (found.machine, found.devices, found.program) == ("2xToy", 2, "toy")
    assert found.communication_us == 300
    assert found.exposed_communication_us == pytest.approx(200, abs=10)
    assert found.step_us == pytest.approx(1300, rel=0.02)
    assert found.bounds.least_us == 1100
    assert found.bounds.gain(found.step_us) == pytest.approx(0.16, abs=0.02)
    assert found.basis == {"measured": 1.0}
    # 2 · 256³ operations and 8 negations, of a peak of 1e11.
    assert found.mfu == pytest.approx((2 * 256**3 + 8) / 1e11 / (found.step_us * 1e-6))
    assert found.memory_bytes is None
    (wait,) = found.waits
    assert (wait.instruction, wait.kind, wait.bytes, wait.times) == ("g", "all-gather", 64, 1)
    assert wait.why == "34% of it is hidden"
    assert found.timeline is not None
    assert [notice.code for notice in found.messages] == []


def test_kernels_without_a_model_are_named() -> None:
    call = 'f32[4096] custom-call(%y), custom_call_target="{}"'
    found = predict(
        program(
            "%y = f32[4096] parameter(1)",
            "%c1 = " + call.format("my_kernel"),
            "%c2 = " + call.format("my_kernel"),
            "%c3 = " + call.format("te_act_lu_ffi"),
            "ROOT %t = (f32[4096], f32[4096], f32[4096]) tuple(%c1, %c2, %c3)",
        ),
        MACHINE,
        command_buffers=False,
    )
    (unknown,) = found.unknown
    assert (unknown.name, unknown.times) == ("my_kernel", 2)
    assert unknown.share == pytest.approx(found.basis["default"])
    assert unknown.us == pytest.approx(unknown.share * found.compute_us)
    said = " ".join(render_predictions([found]).plain.split())
    assert f"unknown kernels, at least: my_kernel (2 ×, {unknown.share:.1%} of compute)" in said
    row = prediction_json([found])
    assert row["unknown"] == [
        {"name": "my_kernel", "times": 2, "us": unknown.us, "share": unknown.share}
    ]


def test_clock_and_power() -> None:
    found = predict(PROGRAM, MACHINE)
    assert prediction_json([found])["power"] is None
    assert "clock" not in render_predictions([found]).plain
    capped = replace(found, power=Power(1.626e9, 1.98e9, 699.8, 700, True))
    free = replace(found, power=Power(1.98e9, 1.98e9, 611.7, 700, False))
    assert prediction_json([capped])["power"] == {
        "clock_hz": 1.626e9, "highest_hz": 1.98e9, "watts": 699.8, "cap_w": 700, "is_capped": True,
    }  # fmt: skip
    lines = render_predictions([capped, free, found], 100).plain.splitlines()
    lines = [" ".join(line.split()) for line in lines]
    assert "clock 1,626 of 1,980 MHz 1,980 of 1,980 MHz –" in lines
    assert "power at the 700 W cap 612 of 700 W –" in lines


def test_matmuls_of_pallas_kernels_are_used_at_the_rate_of_their_type() -> None:
    config = (
        "{slipstream_flops = 1000000000000 : i64, slipstream_operations = 0 : i64, "
        "slipstream_transcendentals = 0 : i64, slipstream_programs = 10000 : i64, "
        "slipstream_longest = 1.0 : f64, slipstream_is_dynamic = false, slipstream_m = 128 : i64, "
        'slipstream_n = 128 : i64, slipstream_k = 64 : i64, slipstream_dtype = \\"bf16\\"}'
    )
    call = f'custom-call(%y), custom_call_target="__gpu$xla.gpu.triton", backend_config="{config}"'
    lines = ("%y = f32[4096] parameter(1)", f"ROOT %c = f32[4096] {call}")
    found = predict(program(*lines), machine("H200"), command_buffers=False)
    assert found.mfu is not None and 0.4 < found.mfu < 0.6


def test_all_waits_are_listed() -> None:
    numbers = range(12)
    gathers = [line for n in numbers for line in (gather(f"g{n}", "a"), gathered(f"d{n}", f"g{n}"))]
    ends = ", ".join(f"%d{n}" for n in numbers)
    root = f"ROOT %t = ({', '.join(['f32[16]'] * 12)}) tuple({ends})"
    found = predict(program(*gathers, root), MACHINE, costs(**{f"g{n}": 300 for n in numbers}))
    assert len(found.waits) == 12
    assert "12 waits, the longest first" in render_predictions([found], waits=True).plain


def test_why_it_waits_follows_from_the_program() -> None:
    """A collective in a CUDA graph is asynchronous to XLA; a synchronous one is not."""
    root = "ROOT %t = (f32[8], f32[16]) tuple(%b, %gd)"
    for is_sync, why in ((True, "XLA runs it synchronously"), (False, "nothing hides it")):
        made = program(gather("g", "a", sync=is_sync), gathered("gd", "g"), kernel("b", "a"), root)
        (wait,) = predict(made, MACHINE, costs(g=300, b=100), command_buffers=False).waits
        assert wait.why.startswith(why)


def test_why_it_waits_counts_what_it_takes_beside_others() -> None:
    """
    b     ████████
    g, h  ▒▒▒▒▒▒▒▒▒▒▒▒▒    on one link they take longer than alone, and b hides as much as before
    """
    small, large = "f32[16777216]", "f32[33554432]"
    groups = "replica_groups={{0,1}}, dimensions={0}"
    made = program(
        f"%w = {small} parameter(1)",
        f"%g = ({small}, {large}) all-gather-start(%w), {groups}",
        f"%h = ({small}, {large}) all-gather-start(%w), {groups}",
        kernel("b", "a"),
        f"%gd = {large} all-gather-done(%g)",
        f"%hd = {large} all-gather-done(%h)",
        f"ROOT %t = (f32[8], {large}, {large}) tuple(%b, %gd, %hd)",
        flags={"xla_gpu_experimental_parallel_collective_overlap_limit": "2"},
    )
    alone = costing(made, MACHINE, None)["g"].us
    found = predict(made, MACHINE, costs(b=alone), command_buffers=False)
    (wait,) = found.waits
    assert wait.why == "64% of it is hidden"
    assert alone / (alone + wait.us) == pytest.approx(0.64, abs=0.01)


def test_the_band_widens_where_kernels_are_slowed_by_collectives() -> None:
    made = program(
        "%x = f32[256,256] parameter(1)",
        "%w = f32[16777216] parameter(2)",
        "%g = (f32[16777216], f32[33554432]) all-gather-start(%w), replica_groups={{0,1}}",
        DOT,
        "%gd = f32[33554432] all-gather-done(%g)",
        "ROOT %t = (f32[33554432], f32[256,256]) tuple(%gd, %d)",
    )
    measured = costs(g=6000)
    beside = predict(made, MACHINE, measured, command_buffers=False)
    alone = predict(made, MACHINE, costs(g=0.001), command_buffers=False)
    assert beside.compute_us > alone.compute_us * 1.05
    assert _slowed(made, simulation(made, MACHINE, measured, command_buffers=False)) > 0.02
    assert _slowed(made, simulation(made, MACHINE, costs(g=0.001), command_buffers=False)) < 1e-4


def test_mfu_leaves_out_what_is_recomputed() -> None:
    """As the roofline of the simulated step says: one definition."""
    again = DOT.replace("%d =", "%r =").replace("jit(step)/", "jit(step)/rematted_computation/")
    root = "ROOT %t = (f32[256,256], f32[256,256]) tuple(%d, %r)"
    made = program("%x = f32[256,256] parameter(1)", DOT, again, root)
    found = predict(made, MACHINE, costs(d=1000, r=1000), command_buffers=False)
    assert found.mfu == pytest.approx(2 * 256**3 / 1e11 / (found.step_us * 1e-6))
    assert found.timeline is not None
    roof = roofline(found.timeline, MACHINE.gpu)
    assert (roof.mfu, roof.hfu) == (found.mfu, pytest.approx(2 * (found.mfu or 0)))


def test_what_is_not_measured_is_modelled() -> None:
    found = predict(PROGRAM, MACHINE, costs(d=1000), command_buffers=False)
    assert found.basis.keys() == {"measured", "modelled"}
    assert sum(found.basis.values()) == pytest.approx(1)


def test_nothing_to_gain_is_an_answer() -> None:
    found = predict(PROGRAM, MACHINE, costs(g=1, b=1000, d=1000), command_buffers=False)
    text = render_predictions([found]).plain
    assert "overlap could save nothing" in " ".join(text.split())
    assert "! nothing to gain here: even perfect overlap would save less than 2%" in text


def test_the_screen() -> None:
    found = predict(PROGRAM, MACHINE, costs(g=300, b=100, d=1000), command_buffers=False)
    assert render_predictions([found], waits=True).plain.splitlines() == [
        "toy",
        "                                       2xToy",
        "step (90% band)        1.31 ms (1.27 … 1.35)",
        "  compute                             1.1 ms",
        "  communication                       300 µs",
        "    exposed                           200 µs",
        "lower bound                           1.1 ms",
        "  overlap could save                     16%",
        "MFU                                      26%",
        "basis of the times: 100% measured",
        "",
        "! g (64 B) waits 197 µs per step: 34% of it is hidden; all of them: --waits",
        "",
        "waits on 2xToy  source  per step  times  why",
        "g                         197 µs      1  34% of it is hidden",
        "1 wait, the longest first",
    ]


def test_machines_side_by_side() -> None:
    four = replace(MACHINE, spec="4xToy", gpus_per_host=4)
    both = [
        predict(PROGRAM, where, costs(g=us, b=100, d=1000), command_buffers=False)
        for where, us in ((MACHINE, 300), (four, 900))
    ]
    lines = render_predictions(both).plain.splitlines()
    assert lines[1].split() == ["2xToy", "4xToy"]
    assert lines[3].split() == ["against", "the", "first", "1.00×", "1.46×"]
    assert [line[:9] for line in lines if line.startswith("!")] == ["! 2xToy: ", "! 4xToy: "]
    assert [p["machine"] for p in prediction_json(both)["predictions"]] == ["2xToy", "4xToy"]


def test_more_machines_than_fit_go_below() -> None:
    found = predict(PROGRAM, MACHINE, costs(g=300, b=100, d=1000), command_buffers=False)
    lines = render_predictions([found] * 5, 80).plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.count("2xToy") for line in lines if line.endswith("2xToy")] == [2, 2, 1]


def test_a_hidden_collective_has_no_part_in_the_band() -> None:
    """Its modelled time may be wrong, and the step is the same."""
    shown, hidden = (
        predict(PROGRAM, MACHINE, costs(b=us, d=1), command_buffers=False) for us in (1, 10_000)
    )
    assert [len(shown.waits), len(hidden.waits)] == [1, 0]
    recorded = predict(PROGRAM, MACHINE, costs(g=1, b=10_000, d=1), command_buffers=False)
    assert hidden.high_us / hidden.step_us == pytest.approx(recorded.high_us / recorded.step_us)
    assert shown.high_us / shown.step_us > hidden.high_us / hidden.step_us


def test_at_the_memory_limit_the_band_reaches_to_a_step_that_hides_nothing() -> None:
    """A gather of 900 µs is hidden behind a kernel of 1,000 µs; another compile may not hide it."""

    def predicted(*codes: str) -> Prediction:
        messages = tuple(CompilerMessage(code, "", "warning") for code in codes)
        compiled = SimpleNamespace(messages=messages, memory=SimpleNamespace(peak_bytes=1))
        timed = costs(g=900, b=1000, d=100)
        return predict(PROGRAM, MACHINE, timed, compilation=compiled, command_buffers=False)

    roomy, at_limit = predicted("spilling"), predicted("memory-limit")
    assert roomy.waits == at_limit.waits == ()
    assert (roomy.step_us, roomy.low_us) == (at_limit.step_us, at_limit.low_us)
    assert at_limit.high_us - roomy.high_us == pytest.approx(
        900 * roomy.high_us / roomy.step_us, rel=0.05
    )

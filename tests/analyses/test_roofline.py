"""The roofline: known answers for known hardware, and recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import STEP, profile
from slipstream.analyses.roofline import roofline
from slipstream.machines.gpus import gpu
from slipstream.profile.semantics.flops import total_work, work
from slipstream.profile.semantics.names import phase_of
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

N = 4096
PROGRAM = program_from_text(f"""\
HloModule jit_step, is_scheduled=true

ENTRY main {{
  p = bf16[{N},{N}]{{1,0}} parameter(0)
  dot.1 = bf16[{N},{N}]{{1,0}} dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{op_name="jit(f)/jvp(f)/dot_general"}}
  dot.2 = bf16[{N},{N}]{{1,0}} dot(p, dot.1),
    lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
    metadata={{op_name="jit(f)/transpose(jvp(f))/checkpoint/rematted_computation/dot_general"}}
  ROOT add.1 = bf16[{N},{N}]{{1,0}} add(dot.1, dot.2)
}}
""")
H200 = gpu("H200")
FLOPS, BYTES = 2 * N**3, 2 * N * N


def step(dot: float = 200.0, add: float = 50.0):
    built = profile().with_program(STEP, PROGRAM)
    for _ in range(2):
        built.kernel("dot.1", dot).kernel("dot.2", dot).kernel("add.1", add).execution_of()
    return built.build()


def test_the_whole_roofline():
    found = roofline(step())
    assert (found.model, found.steps, found.step_us, found.dtype) == (
        "NVIDIA H200",
        2,
        450.0,
        "bf16",
    )
    assert found.peak_flops == H200.peak_flops["bf16"]
    assert found.flops == 2 * FLOPS + N * N
    assert found.remat_flops == FLOPS
    can = H200.peak_flops["bf16"] * 450e-6
    assert found.hfu == pytest.approx((2 * FLOPS + N * N) / can)
    assert found.mfu == pytest.approx((FLOPS + N * N) / can)
    assert found.counted_share == pytest.approx(1.0)
    by_name = {row.instruction: row for row in found.rows}
    dot, add = by_name["dot.1"], by_name["add.1"]
    best = FLOPS / H200.peak_flops["bf16"] * 1e6
    assert (dot.bound, dot.dtype, dot.count) == ("compute", "bf16", 2)
    assert dot.best_us == pytest.approx(best)
    assert dot.roof_share == pytest.approx(best / 200)
    assert dot.lost_us == pytest.approx(200 - best)
    assert dot.flops_rate == pytest.approx(FLOPS / 200e-6)
    assert (add.bound, add.bytes) == ("memory", 3 * BYTES)
    assert add.best_us == pytest.approx(3 * BYTES / H200.memory_bandwidth * 1e6)
    assert [row.instruction for row in found.rows] == ["dot.1", "dot.2", "add.1"]


@pytest.mark.parametrize(("kind", "dtype", "peak"), [("s8", "s8", "s8"), ("f4e2m1fn", "f4", "f8")])
def test_products_of_small_numbers_have_the_peak_of_their_units(kind, dtype, peak):
    """An H200 computes f4 as f8."""
    program = program_from_text(f"""\
HloModule jit_step, is_scheduled=true

ENTRY main {{
  p = {kind}[{N},{N}]{{1,0}} parameter(0)
  ROOT dot.1 = s32[{N},{N}]{{1,0}} dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
""")
    found = roofline(profile().with_program(STEP, program).kernel("dot.1", 100.0).build())
    assert (found.dtype, found.peak_flops) == (dtype, H200.peak_flops[peak])
    assert found.mfu == pytest.approx(FLOPS / H200.peak_flops[peak] / 100e-6)


def test_communication_is_not_under_the_roof():
    built = profile().kernel("dot.1", 40).all_reduce(30)
    found = roofline(built.build())
    assert [row.instruction for row in found.rows] == ["dot.1"]
    assert found.counted_share == pytest.approx(4 / 7)


def test_a_device_that_we_do_not_know(external: Path):
    found = roofline(load(external / "jax_mi300_8gpu.xplane.pb"))
    assert (found.mfu, found.peak_flops) == (None, None)
    assert {row.bound for row in found.rows} == {""}
    assert found.flops > 0
    assert "is not in the catalogue" in found.notes[0]


@pytest.mark.parametrize("name", ["off_default", "attention_plain", "convolution_plain"])
def test_recorded_work_is_the_programs(data: Path, name: str):
    profile = load(data / f"{name}.xplane.pb.gz")
    found = roofline(profile)
    step = max(profile.programs, key=lambda one: total_work(profile.programs[one]).flops)
    # All that runs was recorded, each instruction as often as the program says.
    assert found.flops == pytest.approx(total_work(profile.programs[step]).flops, rel=0.01)
    assert 0.2 < found.mfu <= found.hfu < 0.8
    products = [row for row in found.rows if row.category == "matmul" and row.per_step_us > 100]
    assert all(0 < row.roof_share < 1.05 for row in products)


@pytest.mark.parametrize("name", ["off_lhs_nocb", "single", "convolution_plain"])
def test_the_roof_of_a_recording_by_plain_arithmetic(data: Path, name: str):
    """From the program alone: executions times work, over peaks; times are those of the ops."""
    profile = load(data / f"{name}.xplane.pb.gz")
    found = roofline(profile)
    steps = len(profile.steps)
    flops = again = moved = 0.0
    for row in found.rows:
        program = profile.programs[row.program]
        one = program.starter(row.instruction) or program.instruction(row.instruction)
        own = work(program, one)
        peak = H200.peak_flops[row.dtype]
        arithmetic, traffic = own.flops / peak, own.bytes / H200.memory_bandwidth
        per_step = row.count / steps
        assert row.best_us == pytest.approx(max(arithmetic, traffic) * 1e6 * per_step)
        assert row.roof_share == pytest.approx(row.best_us / row.per_step_us)
        assert row.bound == ("compute" if arithmetic > traffic else "memory")
        flops += own.flops * per_step
        again += own.flops * per_step * (phase_of(program, one) == "remat")
        moved += own.bytes * per_step
    assert (found.flops, found.remat_flops, found.bytes) == pytest.approx((flops, again, moved))
    can = H200.peak_flops[found.dtype] * found.step_us * 1e-6
    assert (found.mfu, found.hfu) == pytest.approx(((flops - again) / can, flops / can))
    lost = [max(0.0, row.per_step_us - row.best_us) for row in found.rows]
    assert lost == sorted(lost, reverse=True)

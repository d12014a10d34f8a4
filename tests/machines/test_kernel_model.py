import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.costs.measure import measure
from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm, gemm_of_dot, gemm_us, tensor_dtype, waves
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import (
    KernelTimes,
    kernel_scales,
    kernel_time,
    kernel_us,
    parameters,
)
from slipstream.machines.machine import Gpu, Machine
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.profile.semantics.flops import work
from slipstream.simulate.recorded import hottest_program
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

H200 = machine("H200")

TEXT = """HloModule step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%loop (p: bf16[4096,4096]) -> bf16[4096,4096] {
  %p = bf16[4096,4096]{1,0} parameter(0)
  ROOT %n = bf16[4096,4096]{1,0} negate(%p)
}

%reduced (p.1: f32[4096,4096]) -> f32[4096] {
  %p.1 = f32[4096,4096]{1,0} parameter(0)
  %zero = f32[] constant(0)
  ROOT %r = f32[4096]{0} reduce(%p.1, %zero), dimensions={DIMENSION}, to_apply=%add
}

%turned (p.2: bf16[4096,4096]) -> bf16[4096,4096] {
  %p.2 = bf16[4096,4096]{1,0} parameter(0)
  ROOT %t = bf16[4096,4096]{1,0} transpose(%p.2), dimensions={1,0}
}

%dotted (a: bf16[4096,2048], b: bf16[2048,8192]) -> bf16[4096,8192] {
  %a = bf16[4096,2048]{1,0} parameter(0)
  %b = bf16[2048,8192]{1,0} parameter(1)
  ROOT %dot = bf16[4096,8192]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

%scattered (e: f32[1000,64], i: s32[512,1], u: f32[512,64]) -> f32[1000,64] {
  %e = f32[1000,64]{1,0} parameter(0)
  %i = s32[512,1]{1,0} parameter(1)
  %u = f32[512,64]{1,0} parameter(2)
  ROOT %s = f32[1000,64]{1,0} scatter(%e, %i, %u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%add
}

ENTRY %main (x: bf16[4096,4096], y: f32[4096,4096], a: bf16[4096,2048], b: bf16[2048,8192], e: f32[1000,64], i: s32[512,1], u: f32[512,64]) -> bf16[4096,4096] {
  %x = bf16[4096,4096]{1,0} parameter(0)
  %y = f32[4096,4096]{1,0} parameter(1)
  %a = bf16[4096,2048]{1,0} parameter(2)
  %b = bf16[2048,8192]{1,0} parameter(3)
  %e = f32[1000,64]{1,0} parameter(4)
  %i = s32[512,1]{1,0} parameter(5)
  %u = f32[512,64]{1,0} parameter(6)
  %loop_fusion = bf16[4096,4096]{1,0} fusion(%x), kind=kLoop, calls=%loop
  %reduce_fusion = f32[4096]{0} fusion(%y), kind=kInput, calls=%reduced
  %transpose_fusion = bf16[4096,4096]{1,0} fusion(%x), kind=kInput, calls=%turned
  %gemm_fusion = bf16[4096,8192]{1,0} fusion(%a, %b), kind=kCustom, calls=%dotted, backend_config={"fusion_backend_config":{"kind":"__triton_gemm"}}
  %library = (bf16[4096,8192]{1,0}, s8[33554432]{0}) custom-call(%a, %b), custom_call_target="__cublas$lt$matmul", backend_config={"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"],"lhs_batch_dimensions":[],"rhs_batch_dimensions":[]},"precision_config":{"operand_precision":["DEFAULT","DEFAULT"]}}}
  %scatter_fusion = f32[1000,64]{1,0} fusion(%e, %i, %u), kind=kInput, calls=%scattered
  %stranger = bf16[4096,4096]{1,0} custom-call(%x), custom_call_target="somebody_else"
  %sorted = (bf16[4096,4096]{1,0}, s8[1024]{0}) custom-call(%x), custom_call_target="__cub$DeviceRadixSort"
  %offload = bf16[4096,4096]{1,0:S(5)} copy(%x)
  %part = bf16[4096,4096]{1,0} get-tuple-element(%sorted), index=0
  ROOT %copy = bf16[4096,4096]{1,0} copy(%x)
}
"""  # noqa: E501


@cache
def program(dimension: int = 1) -> Program:
    return program_from_text(TEXT.replace("DIMENSION", str(dimension)))


def asked(name: str) -> KernelFeatures:
    return kernel_features(program(), program().instruction(name))


def test_each_instruction_is_of_a_class() -> None:
    kinds = {
        "loop_fusion": "loop",
        "reduce_fusion": "reduce",
        "transpose_fusion": "transpose",
        "gemm_fusion": "gemm",
        "library": "gemm",
        "scatter_fusion": "scatter",
        "stranger": "other",
        "sorted": "sort",
        "offload": "host copy",
        "part": "free",
        "copy": "copy",
    }
    assert {name: asked(name).kind for name in kinds} == kinds
    columns = program(0)
    assert kernel_features(columns, columns.instruction("reduce_fusion")).kind == "columns"


def test_a_product_is_the_same_whoever_computes_it() -> None:
    expected = Gemm(1, 4096, 8192, 2048, "bf16", 1)
    assert asked("gemm_fusion").gemm == asked("library").gemm == expected
    assert expected.flops == 2 * 4096 * 8192 * 2048
    assert asked("gemm_fusion").is_triton
    assert not asked("library").is_triton


SCALED = """HloModule scaled, is_scheduled=true

product {
  a = f8e4m3fn[512,1024]{1,0} parameter(0)
  b = f8e4m3fn[256,1024]{1,0} parameter(1)
  s = bf16[] parameter(2)
  t = bf16[1024]{0} parameter(3)
  wide = bf16[512,1024]{1,0} convert(a)
  scales = bf16[512,1024]{1,0} broadcast(s), dimensions={}
  scaled = bf16[512,1024]{1,0} multiply(wide, scales)
  other = bf16[256,1024]{1,0} convert(b)
  rows = bf16[256,1024]{1,0} broadcast(t), dimensions={1}
  by_row = bf16[256,1024]{1,0} multiply(other, rows)
  one = bf16[512,256]{1,0} dot(scaled, other), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  ROOT two = bf16[512,256]{1,0} dot(scaled, by_row), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}

ENTRY main {
  a = f8e4m3fn[512,1024]{1,0} parameter(0)
  b = f8e4m3fn[256,1024]{1,0} parameter(1)
  s = bf16[] parameter(2)
  t = bf16[1024]{0} parameter(3)
  x = bf16[8192,1024]{1,0} parameter(4)
  w = bf16[8,1024,512]{2,1,0} parameter(5)
  sizes = s32[8]{0} parameter(6)
  experts = bf16[8192,512]{1,0} ragged-dot(x, w, sizes), lhs_contracting_dims={1}, rhs_contracting_dims={1}, lhs_ragged_dims={0}, rhs_group_dims={0}
  ROOT f = bf16[512,256]{1,0} fusion(a, b, s, t), kind=kCustom, calls=product
}
"""  # noqa: E501


def test_a_product_of_fp8_values_with_one_scale_is_fp8() -> None:
    program = program_from_text(SCALED)
    one, two = (gemm_of_dot(program, program.instruction(name)) for name in ("one", "two"))
    assert one == Gemm(1, 512, 256, 1024, "f8")
    # A scale for each row or column can't wait for the end.
    assert two == Gemm(1, 512, 256, 1024, "bf16")
    # A GPU without fp8 multiplies as bf16.
    plain = replace(one, dtype="bf16")
    a100, h100 = machine("A100").gpu, machine("H100").gpu
    gemm = parameters()["gemm"]
    assert gemm_us(one, a100, gemm) == pytest.approx(gemm_us(plain, a100, gemm), rel=0.05)
    assert gemm_us(one, h100, gemm) < 0.8 * gemm_us(plain, h100, gemm)


def test_rows_of_a_ragged_product_meet_one_matrix_each() -> None:
    program = program_from_text(SCALED)
    experts = program.instruction("experts")
    features = kernel_features(program, experts)
    assert (features.kind, features.gemm) == ("gemm", Gemm(1, 8192, 512, 1024, "bf16", 1))
    assert work(program, experts).flops == 2 * 8192 * 512 * 1024


TILED = """HloModule tiled, is_scheduled=true

plain {
  a = bf16[8192,4096]{1,0} parameter(0)
  b = bf16[4096,8192]{1,0} parameter(1)
  ROOT d = bf16[8192,8192]{1,0} dot(a, b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}

around {
  a = bf16[8192,4096]{1,0} parameter(0)
  b = f32[4096,8192]{1,0} parameter(1)
  c = bf16[4096,8192]{1,0} convert(b)
  d2 = bf16[8192,8192]{1,0} dot(a, c), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT n = bf16[8192,8192]{1,0} negate(d2)
}

ENTRY main {
  x = bf16[8192,4096]{1,0} parameter(0)
  y = bf16[4096,8192]{1,0} parameter(1)
  z = f32[4096,8192]{1,0} parameter(2)
  first = bf16[8192,8192]{1,0} fusion(x, y), kind=kCustom, calls=plain, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"2","output_tiles":[{"sizes":["FIRST","8"]}]}}}
  ROOT second = bf16[8192,8192]{1,0} fusion(x, z), kind=kCustom, calls=around, backend_config={"fusion_backend_config":{"kind":"__triton_nested_gemm_fusion","block_level_fusion_config":{"num_warps":"2","output_tiles":[{"sizes":["16","8"]}]}}}
}
"""  # noqa: E501


def test_a_product_that_was_not_autotuned_takes_the_time_of_the_faster_kernel() -> None:
    """Without a GPU, every product is a Triton fusion with the first tile of a list."""
    untuned = program_from_text(TILED.replace("FIRST", "16"))
    tuned = program_from_text(TILED.replace("FIRST", "1024"))
    features = kernel_features(untuned, untuned.instruction("first"))
    assert (features.is_untuned, features.unfused) == (True, 0)
    library = kernel_us(replace(features, is_triton=False), H200.gpu, parameters())
    assert kernel_us(features, H200.gpu, parameters()) == library
    # Where a GPU chose Triton, it is Triton.
    chosen = kernel_features(tuned, tuned.instruction("first"))
    assert not chosen.is_untuned
    assert kernel_us(chosen, H200.gpu, parameters()) > 1.02 * library


def test_a_librarys_product_leaves_the_rest_of_a_fusion_to_other_kernels() -> None:
    program = program_from_text(TILED.replace("FIRST", "16"))
    features = kernel_features(program, program.instruction("second"))
    # The converted operand and the product are written and read again.
    assert features.unfused == 2 * (2 * 4096 * 8192 + 2 * 8192 * 8192)
    alone = kernel_us(replace(features, unfused=0), H200.gpu, parameters())
    triton = kernel_us(replace(features, is_untuned=False), H200.gpu, parameters())
    assert alone < kernel_us(features, H200.gpu, parameters()) <= triton


def test_rows_of_a_transposed_result_lie_together() -> None:
    """A tile of 1024 × 16 of the transposed scores of one head: 16 rows that follow each other."""
    apart = {
        tile: kernel_features(program, program.instruction("f")).apart
        for tile in ('"1","16","1024"', '"16","1","1024"')
        for program in [program_from_text(ROWS.replace("TILE", tile))]
    }
    assert apart == {'"1","16","1024"': 1, '"16","1","1024"': 16}
    turned = (
        ROWS.replace("ROOT whole = ", "part = ")
        .replace("}\n\nENTRY", "  ROOT whole = f32[64,1024,512]{2,1,0} transpose(part), "
                                "dimensions={0,2,1}\n}\n\nENTRY")
        .replace("ROOT f = f32[64,512,1024]", "ROOT f = f32[64,1024,512]")
    )  # fmt: skip
    program = program_from_text(turned.replace("TILE", '"1","1024","16"'))
    features = kernel_features(program, program.instruction("f"))
    assert features.apart == 1 and features.is_scattered


ROWS = """HloModule rows, is_scheduled=true

largest {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT m = f32[] maximum(a, b)
}

softmax {
  p = f32[64,512,1024]{2,1,0} parameter(0)
  x = f32[8,8,512,1024]{3,2,1,0} bitcast(p)
  i = s32[512,1024]{1,0} iota(), iota_dimension=0
  j = s32[512,1024]{1,0} iota(), iota_dimension=1
  past = pred[512,1024]{1,0} compare(i, j), direction=GE
  mask = pred[8,8,512,1024]{3,2,1,0} broadcast(past), dimensions={2,3}
  none = f32[] constant(-inf)
  nones = f32[8,8,512,1024]{3,2,1,0} broadcast(none), dimensions={}
  masked = f32[8,8,512,1024]{3,2,1,0} select(mask, x, nones)
  top = f32[8,8,512]{2,1,0} reduce(masked, none), dimensions={3}, to_apply=largest
  back = f32[8,8,512,1024]{3,2,1,0} broadcast(top), dimensions={0,1,2}
  out = f32[8,8,512,1024]{3,2,1,0} subtract(masked, back)
  ROOT whole = f32[64,512,1024]{2,1,0} bitcast(out)
}

ENTRY main {
  x = f32[64,512,1024]{2,1,0} parameter(0)
  ROOT f = f32[64,512,1024]{2,1,0} fusion(x), kind=kCustom, calls=softmax, backend_config={"fusion_backend_config":{"kind":"__triton","block_level_fusion_config":{"num_warps":"8","output_tiles":[{"sizes":[TILE]}]}}}
}
"""  # noqa: E501


def test_work_is_counted() -> None:
    size = 4096 * 4096
    assert asked("loop_fusion") == KernelFeatures("loop", 4 * size, elements=size, operations=size)
    assert asked("offload").bytes == 2 * size
    assert asked("scatter_fusion").elements == 512 * 64
    assert asked("scatter_fusion").channels == 32


def test_a_gather_through_a_conversion_reads_what_it_gathers(data: Path) -> None:
    found = load(data / "accuracy/gpt_scan.no_graphs.xplane.pb.gz").programs
    step = next(p for p in found.values() if "loop_add_subtract_fusion.5" in p)
    # The parameter is 1 GB of logits, of which 16384 are used.
    assert kernel_features(step, step.instruction("loop_add_subtract_fusion.5")).bytes < 1e6


def test_estimates_say_what_they_rest_on() -> None:
    found = {name: kernel_time(H200, program(), program().instruction(name)) for name in (
        "loop_fusion", "gemm_fusion", "stranger", "offload", "part"
    )}  # fmt: skip
    assert {name: (e.kind, e.basis) for name, e in found.items()} == {
        "loop_fusion": ("fusion", "modelled"),
        "gemm_fusion": ("gemm", "modelled"),
        "stranger": ("other", "default"),
        "offload": ("copy", "modelled"),
        "part": ("other", "modelled"),
    }
    assert found["part"].us == 0
    assert "4096 × 8192 × 2048 in bf16 at" in found["gemm_fusion"].why
    assert found["offload"].why.startswith("33.6 MB at")
    assert "unknown" in found["stranger"].why


def test_other_gpus_scale_by_their_facts() -> None:
    h100, a100 = machine("H100"), machine("A100")
    loop, gemm = (program().instruction(name) for name in ("loop_fusion", "gemm_fusion"))
    ours, theirs = (kernel_time(m, program(), loop).us for m in (H200, h100))
    assert 1.1 < theirs / ours < 4.81 / 3.35
    ours, theirs = (kernel_time(m, program(), gemm).us for m in (H200, a100))
    assert 2 < theirs / ours < 989.4 / 312 * 1.2


def test_more_work_takes_longer_and_no_product_beats_the_peak() -> None:
    gpu, own = H200.gpu, parameters()["gemm"]
    for dtype in ("bf16", "tf32", "f8"):
        before = 0.0
        for size in (256, 512, 1024, 2048, 4096, 8192, 16384):
            us = gemm_us(Gemm(1, size, size, size, dtype), gpu, own)
            assert us > before
            assert us >= 2 * size**3 / gpu.peak_flops[dtype] * 1e6
            before = us


def test_registers_that_run_out_cost_time() -> None:
    calm = KernelFeatures(
        "rows", 1 << 30, elements=1 << 28, reduced=1 << 28, is_triton=True, pressure=32
    )
    crowded = replace(calm, pressure=256)
    us = [kernel_us(each, H200.gpu, parameters()) for each in (calm, crowded)]
    assert 1.3 < us[1] / us[0] < 4


def test_rows_that_are_written_a_few_elements_at_a_time_cost_time() -> None:
    whole = KernelFeatures(
        "rows", 1 << 30, elements=1 << 28, reduced=1 << 28, is_triton=True, pressure=64
    )
    scattered = replace(whole, is_scattered=True)
    us = [kernel_us(each, H200.gpu, parameters()) for each in (whole, scattered)]
    assert us[0] * 1.2 < us[1]


def test_rows_that_lie_apart_and_share_a_mask_cost_time() -> None:
    together = KernelFeatures(
        "rows", 1 << 30, elements=1 << 28, reduced=1 << 28, is_triton=True, pressure=64
    )
    us = [kernel_us(replace(together, apart=n), H200.gpu, parameters()) for n in (1, 8, 16)]
    assert us[0] < us[1] < us[2] < 2 * us[0]


def test_what_a_library_adds_to_a_product_is_read_after_it() -> None:
    gemm = Gemm(1, 16384, 4096, 1024, "bf16", 1)
    plain = KernelFeatures("gemm", 300_000_000, 134_217_728, gemm=gemm)
    more = replace(plain, bytes=plain.bytes + 134_217_728, added=134_217_728)
    longer = kernel_us(more, H200.gpu, parameters()) - kernel_us(plain, H200.gpu, parameters())
    # A recorded pair took 23.6 µs longer.
    assert 20 < longer < 40


def test_a_dot_says_what_its_operands_are_rounded_to() -> None:
    assert tensor_dtype("f32") == "tf32"
    assert tensor_dtype("f32", "{high,high}") == "f32"
    assert tensor_dtype("f32", " dot_bf16_bf16_f32") == "bf16"
    assert tensor_dtype("f32", " dot_f32_f32_f32") == "f32"
    assert tensor_dtype("bf16", " None") == "bf16"


@pytest.mark.parametrize(
    ("recording", "name", "expected"),
    [
        # One row of each of 16 heads, masked by position; 16 rows of one head.
        ("gpt_scan.default", "fusion.75", {"apart": 16, "strided": 0}),
        ("gpt_scan.cublas", "fusion.137", {"apart": 1, "strided": 0}),
        # Turned twice; two of three parts turned twice; turned once.
        ("gpt_scan.cublas", "input_transpose_fusion", {"strided": 1 << 25}),
        ("gpt_scan.cublas", "input_transpose_fusion.4", {"strided": 1 << 26}),
        ("gpt_scan.cublas", "input_transpose_fusion.5", {"strided": 0}),
        ("gpt_cudnn.cublas", "cublas-lt-matmul.33", {"added": 16384 * 1536 * 2}),
        ("gpt_cudnn.cublas", "custom-call.87", {"added": 0}),
    ],
)
def test_what_kernels_of_models_ask_for(
    data: Path, recording: str, name: str, expected: dict[str, int]
) -> None:
    step = hottest_program(load(data / f"accuracy/{recording}.xplane.pb.gz"))
    assert step is not None
    found = kernel_features(step, step.instruction(name))
    assert {field: getattr(found, field) for field in expected} == expected


MASKED = """HloModule step, is_scheduled=true

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %sum = f32[] add(%x, %y)
}

%masked (p: f32[64,128,128]) -> f32[64,128] {
  %p = f32[64,128,128]{2,1,0} parameter(0)
  %row = s32[128,128]{1,0} iota(), iota_dimension=0
  %column = s32[128,128]{1,0} iota(), iota_dimension=1
  %mask = pred[128,128]{1,0} compare(%row, %column), direction=GE
  %masks = pred[64,128,128]{2,1,0} broadcast(%mask), dimensions={1,2}
  %zero = f32[] constant(0)
  %zeros = f32[64,128,128]{2,1,0} broadcast(%zero), dimensions={}
  %kept = f32[64,128,128]{2,1,0} select(%masks, %p, %zeros)
  ROOT %r = f32[64,128]{1,0} reduce(%kept, %zero), dimensions={2}, to_apply=%add
}

ENTRY %main (x: f32[64,128,128]) -> f32[64,128] {
  %x = f32[64,128,128]{2,1,0} parameter(0)
  ROOT %fusion = f32[64,128]{1,0} fusion(%x), kind=kInput, calls=%maskedCONFIG
}
"""


def test_what_is_broadcast_is_computed_for_every_element() -> None:
    """XLA's own emitters do; Triton computes the mask of a tile once."""
    config = ', backend_config={"fusion_backend_config":{"kind":"__triton"}}'
    size = 64 * 128 * 128
    for text, expected in (("", 5 * size), (config, 2 * size + 3 * 128 * 128)):
        found = program_from_text(MASKED.replace("CONFIG", text))
        # Two positions, a comparison, a choice, a sum.
        assert kernel_features(found, found.instruction("fusion")).operations == expected


def test_calibration_scales_classes_to_what_was_measured() -> None:
    gemm = program().instruction("library")
    said = kernel_time(H200, program(), gemm).us
    scales = kernel_scales(H200, program(), {"library": said * 1.25})
    assert scales == {"gemm": pytest.approx(1.25)}
    sharper: Machine = replace(H200, calibration={"kernels": {"scales": scales}})
    estimate = kernel_time(sharper, program(), gemm)
    assert estimate.basis == "calibrated"
    assert estimate.us == pytest.approx(said * 1.25)
    untouched = kernel_time(sharper, program(), program().instruction("loop_fusion"))
    assert untouched.basis == "modelled"


def test_an_asynchronous_slice_is_as_large_as_its_result() -> None:
    """In text, the shape of a start also lists its operands: here a buffer of 64 slices."""
    shapes = "f32[64,1048576]{1,0}", "f32[1,1048576]{1,0}"
    slices = f"""HloModule slices, is_scheduled=true
slice {{
  buffer = {shapes[0]} parameter(0)
  at = s32[] parameter(1)
  zero = s32[] constant(0)
  ROOT d = {shapes[1]} dynamic-slice(buffer, at, zero), dynamic_slice_sizes={{1,1048576}}
}}

ENTRY main {{
  x = {shapes[0]} parameter(0)
  i = s32[] parameter(1)
  begin = (({shapes[0]}, s32[]), {shapes[1]}, u32[]) fusion-start(x, i), kind=kLoop, calls=slice
  later = {shapes[1]} fusion-done(begin)
  ROOT now = {shapes[1]} fusion(x, i), kind=kLoop, calls=slice
}}
"""
    program = program_from_text(slices)
    begin, now = (kernel_features(program, program.instruction(n)) for n in ("begin", "now"))
    assert begin == now
    assert now.elements == 1048576


def test_equal_kernels_are_modelled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(features: KernelFeatures, *rest: Any) -> float:
        asked.append(features)
        return kernel_us(features, *rest)

    monkeypatch.setattr("slipstream.machines.kernel_model.kernel_us", counted)
    dots = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    twice = program_from_text(
        "HloModule twice, is_scheduled=true\nENTRY main {\n  x = bf16[512,512]{1,0} parameter(0)\n"
        f"  y = bf16[512,512]{{1,0}} dot(x, x), {dots}\n"
        f"  ROOT z = bf16[512,512]{{1,0}} dot(y, x), {dots}\n}}\n"
    )
    times = KernelTimes(H200)
    found = [times(twice, twice.instruction(name)) for name in "yz"]
    assert found == [kernel_time(H200, twice, twice.instruction("y"))] * 2
    assert len(asked) == 2  # one of them by kernel_time, which keeps nothing


def recorded_kernels(data: Path) -> Iterator[tuple[str, KernelFeatures, float, Gpu]]:
    """(group, kernel, microseconds, the GPU at the clock of that time)."""
    clocks = json.loads((data / "accuracy/clocks.json").read_text())["clock_hz"]
    recording: dict[str, Any] = json.loads(
        gzip.decompress((data / "accuracy/kernels.json.gz").read_bytes())
    )
    for group in recording["groups"]:
        found = program_from_text(group["hlo"])
        clock = next((clocks[key] for key in clocks if group["name"].startswith(key)), 1.98e9)
        gpu = H200.gpu.at(clock / H200.gpu.clock_hz)
        for name, us in group["us"].items():
            if name in found:
                yield group["name"], kernel_features(found, found.instruction(name)), us, gpu


def test_recorded_kernels_are_met(data: Path) -> None:
    """Errors weighted by time, as scripts/fit_kernels.py prints them, with some room."""
    limits = {"gemm": 0.06, "loop": 0.08, "reduce": 0.09, "columns": 0.14, "rows": 0.1}
    limits |= {"attention": 0.03, "convolution": 0.25}
    off, whole = dict.fromkeys(limits, 0.0), dict.fromkeys(limits, 0.0)
    for _, each, us, gpu in recorded_kernels(data):
        assert each.kind != "other"
        if each.kind in limits:
            off[each.kind] += abs(kernel_us(each, gpu, parameters()) - us)
            whole[each.kind] += us
    assert {kind: off[kind] / whole[kind] < limits[kind] for kind in limits} == dict.fromkeys(
        limits, True
    )


@pytest.mark.parametrize(
    "recording",
    ["accuracy/gpt_scan.default", "accuracy/gpt_cudnn.cublas", "accuracy/mixer.default", "single"],
)
def test_steps_of_models_are_met_without_a_profile(data: Path, recording: str) -> None:
    """The sum over a step's kernels; none of these took part in the fit."""
    profile = load(data / f"{recording}.xplane.pb.gz")
    measured = modelled = 0.0
    for each in measure(profile):
        found = profile.programs[each.program]
        us = kernel_time(H200, found, found.instruction(each.instruction)).us
        measured += float(np.median(each.us)) * each.us.shape[1]
        modelled += us * each.us.shape[1]
    assert abs(modelled / measured - 1) < 0.12


def test_waves_of_the_largest_tiles() -> None:
    """256 × 128 either way; with fewer tiles than cores, others fill one wave."""
    cores = H200.gpu.cores
    assert waves(Gemm(1, 8192, 8192, 8192, "bf16"), H200.gpu) == 2048 / cores
    assert waves(Gemm(64, 128, 2048, 2048, "bf16"), H200.gpu) == 512 / cores
    assert waves(Gemm(1, 256, 256, 65536, "bf16"), H200.gpu) == 1

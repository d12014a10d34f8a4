"""Least times are lower bounds of what the models give, for any shape, type and GPU."""

from dataclasses import replace
from itertools import product

import pytest

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.gpus import gpus
from slipstream.machines.kernel_model import kernel_us, parameters
from slipstream.machines.least_time import least_products_us, least_traffic_us
from slipstream.machines.topology import machine

SIZES = (16, 256, 4096, 11008)
DTYPES = {"bf16": "bfloat16", "f16": "float16", "tf32": "float32", "f8": "float8_e4m3fn"}
UNCAPPED = {
    name: replace(machine(name), chip=replace(gpu, power_w=0)) for name, gpu in gpus().items()
}


@pytest.mark.parametrize("name", gpus())
def test_no_product_is_faster(name):
    on = UNCAPPED[name]
    for dtype, m, n, k, is_triton in product(DTYPES, SIZES, SIZES, SIZES, (False, True)):
        gemm = Gemm(1, m, n, k, dtype)
        features = KernelFeatures("gemm", 2 * (m * n + n * k), gemm=gemm, is_triton=is_triton)
        us = kernel_us(features, on.gpu.at(1.0), parameters())
        assert least_products_us(on, {DTYPES[dtype]: gemm.flops}) <= us, gemm


@pytest.mark.parametrize("form", ["forward", "backward"])
def test_no_attention_is_faster(form):
    on = UNCAPPED["H100"]
    for is_causal, rows in product((False, True), (1024, 131072)):
        gemm = Gemm(64, rows, rows, 128, "bf16")
        features = KernelFeatures("attention", 1, gemm=gemm, form=form, is_causal=is_causal)
        matmuls = {"forward": 2, "backward": 5}[form] / (2 if is_causal else 1)
        us = kernel_us(features, on.gpu.at(1.0), parameters())
        assert least_products_us(on, {"bfloat16": matmuls * gemm.flops}) <= us


def test_no_traffic_is_faster():
    on = machine("H200")
    for kind in ("loop", "copy", "reduce", "columns", "rows", "scatter", "gemm"):
        us = kernel_us(KernelFeatures(kind, 10**9), on.gpu.at(1.0), parameters())
        assert 0 < least_traffic_us(on, 10**9) <= us, kind


def test_the_power_cap_lowers_the_clock():
    flops = {"bfloat16": 1e15}
    capped, free = (least_products_us(one, flops) for one in (machine("H100"), UNCAPPED["H100"]))
    assert free < capped < 1.5 * free
    # With constant values, less energy: the clock is higher.
    assert least_products_us(replace(machine("H100"), activity=0.5), flops) < capped


def test_a_calibration_that_is_faster_counts():
    on = UNCAPPED["H100"]
    faster = replace(on, calibration={"kernels": {"scales": {"gemm": 0.8}}})
    flops = {"float32": 1e12}
    assert least_products_us(faster, flops) == pytest.approx(0.8 * least_products_us(on, flops))


@pytest.mark.parametrize("dtype", ["bool", "int8", "int4", "complex64", "float64", "float4_e2m1fn"])
def test_every_type_has_a_rate(dtype):
    assert all(least_products_us(one, {dtype: 1e12}) > 0 for one in UNCAPPED.values())


def test_a_tpu_does_no_better_than_its_peaks():
    v5p, half = machine("v5p-8"), machine("tpu7x-8")

    assert least_products_us(v5p, {"bfloat16": 459e12, "float32": 459e12}) == pytest.approx(2e6)
    assert least_products_us(v5p, {"int8": 918e12}) == pytest.approx(1e6)
    assert least_products_us(half, {"float8_e4m3fn": 2307e12}) == pytest.approx(1e6)
    assert least_traffic_us(v5p, 2.765e12) == pytest.approx(1e6)

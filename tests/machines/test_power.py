"""Power of kernels, and the clock that a cap leaves to them."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.gpus import gpu, gpus
from slipstream.machines.power import (
    LOWEST_SHARE,
    activity,
    highest_share,
    joules,
    static_w,
    watts,
)

H200 = gpu("H200")
SIDE = 8192


def product(dtype: str) -> KernelFeatures:
    return KernelFeatures("gemm", 6 * SIDE**2, gemm=Gemm(1, SIDE, SIDE, SIDE, dtype))


def test_a_gpu_at_a_lower_clock_has_lower_peaks() -> None:
    """Data sheets state tensor cores' rates at a clock below the highest, f32 at the highest."""
    assert H200.peak_clock_hz < H200.clock_hz
    fast, half = H200.at(1.0), H200.at(0.5)
    assert fast.peak_flops["f32"] == H200.peak_flops["f32"]
    above = H200.clock_hz / H200.peak_clock_hz
    assert fast.peak_flops["bf16"] == pytest.approx(H200.peak_flops["bf16"] * above)
    assert half.peak_flops["bf16"] == pytest.approx(fast.peak_flops["bf16"] / 2)
    assert half.peak_flops["f64"] == pytest.approx(fast.peak_flops["f64"] / 2)
    assert (half.clock_hz, half.memory_bandwidth) == (0.99e9, H200.memory_bandwidth)
    # A share is one of the GPU's own clock, so that clocks can be lowered in steps.
    assert half.at(0.5).peak_flops == pytest.approx(H200.at(0.25).peak_flops)
    plain = replace(H200, peak_clock_hz=0.0)
    assert plain.at(1.0).peak_flops == H200.peak_flops


def test_energies_of_types() -> None:
    whole = {name: joules(product(name), H200) for name in ("f8", "bf16", "f16", "tf32")}
    assert whole["f8"] < whole["bf16"] == whole["f16"] < whole["tf32"]
    # fp8 at the cap is 1.25 to 2 times as fast as bf16, and not twice.
    assert 1.25 < whole["bf16"] / whole["f8"] < 2
    # Types without a measurement have one nevertheless.
    assert joules(product("s32"), H200) == joules(product("c64"), H200) == whole["tf32"]


def test_energies_of_other_architectures() -> None:
    kernel = product("bf16")
    assert joules(kernel, gpu("H100")) == joules(kernel, H200)
    assert joules(kernel, gpu("A100")) > joules(kernel, H200) > joules(kernel, gpu("B200"))
    unknown = replace(H200, compute_capability=(12, 0))
    assert joules(kernel, unknown) == joules(kernel, H200)


def test_half_of_a_causal_attention_is_computed() -> None:
    attention = KernelFeatures("attention", gemm=Gemm(64, 2048, 2048, 128, "bf16"))
    causal = replace(attention, is_causal=True)
    assert joules(causal, H200) == pytest.approx(joules(attention, H200) / 2)
    backward = replace(attention, form="backward")
    assert joules(backward, H200) == pytest.approx(joules(attention, H200) * 5 / 2)


def test_what_a_window_masks_takes_no_energy() -> None:
    whole = KernelFeatures("attention", gemm=Gemm(64, 4096, 4096, 128, "bf16"))
    narrow = replace(whole, window=1024)
    assert joules(narrow, H200) == pytest.approx(joules(whole, H200) / 4)
    assert joules(replace(narrow, is_causal=True), H200) == pytest.approx(joules(narrow, H200))
    wide = replace(whole, window=4096, is_causal=True)
    assert joules(wide, H200) == pytest.approx(joules(whole, H200) / 2)


def test_the_clock_that_a_cap_leaves() -> None:
    work = joules(product("bf16"), H200)

    def seconds(share: float) -> float:
        return work / 600 / share  # 600 W and static power at the reference clock

    share = highest_share(H200, work, seconds)
    assert 0.7 < share < 1
    assert watts(H200, work, seconds(share), share) == pytest.approx(700, rel=1e-3)
    # Work that takes longer, and a GPU whose cap is unknown, have the highest clock.
    assert highest_share(H200, work, lambda share: 2 * seconds(share)) == 1
    assert highest_share(replace(H200, power_w=0), work, seconds) == 1
    assert highest_share(replace(H200, power_w=50), work, seconds) == LOWEST_SHARE
    # No work and no time draw static power.
    assert highest_share(H200, 0.0, lambda share: 0.0) == 1
    assert watts(gpu("A100"), 0.0, 0.0, 1.0) == static_w(gpu("A100")) < static_w(H200)


def test_every_gpu_has_a_cap_and_draws_less_without_work() -> None:
    """Caps of the data sheets that gpus.json names."""
    assert {name: one.power_w for name, one in gpus().items()} == {
        "A100-40": 400, "A100": 400, "A100-PCIe": 300, "H100-PCIe": 350, "H100": 700, "H200": 700,
        "B200": 1000, "GB200": 1200,
    }  # fmt: skip
    assert all(0 < static_w(one) < 0.2 * one.power_w for one in gpus().values())


def test_published_peaks_are_those_of_a_clock() -> None:
    """Cores × operations in a cycle × clock: dense products in bf16."""
    in_a_cycle = {8: 2048, 9: 4096, 10: 8192}
    for name, one in gpus().items():
        rate = one.cores * in_a_cycle[one.compute_capability[0]]
        stated = one.peak_clock_hz or one.clock_hz
        assert one.peak_flops["bf16"] == pytest.approx(rate * stated, rel=1e-3), name
        assert stated <= one.clock_hz


def test_values_that_were_made_up_take_less() -> None:
    assert 0.7 < activity("equal tokens") < activity("made up") < 0.8


TYPES = {"bfloat16": "bf16", "float16": "f16", "float32": "tf32", "float8_e4m3fn": "f8"}


def drawn(row: dict[str, Any]) -> float:
    """Watts of a recorded row at its clock."""
    flops = {TYPES[name]: count for name, count in row["flops"].items()}
    dtype = next(iter(flops), "bf16")
    gemm = Gemm(1, 1, 1, flops[dtype] // 2, dtype) if flops else None
    work = joules(KernelFeatures("gemm" if gemm else "loop", row["bytes"], gemm=gemm), H200)
    return watts(H200, work, 1 / row["per_second"], row["clock_mhz"] * 1e6 / H200.clock_hz)


def test_recorded_power_is_met(data: Path) -> None:
    """Products and sweeps over memory at locked clocks, and at the cap, of an H200."""
    rows = json.loads((data / "accuracy/power.json").read_text())["rows"]
    locked = [row for row in rows if "locked_mhz" in row]
    errors = [drawn(row) / row["power_w"] - 1 for row in locked]
    assert len(errors) == 15
    root = (sum(error**2 for error in errors) / len(errors)) ** 0.5
    stated = json.loads(
        (Path(__file__).parents[2] / "src/slipstream/machines/power.json").read_text()
    )["error"]
    assert root < stated
    assert max(map(abs, errors)) < 0.09
    others = ("zeros", "made up", "attention", "Llama")
    plain = [row for row in rows if not any(text in row["name"] for text in others)]
    errors = [drawn(row) / row["power_w"] - 1 for row in plain]
    assert (sum(error**2 for error in errors) / len(errors)) ** 0.5 < stated

"""The slowest of many GPUs, and how wide a prediction's band is."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from statistics import mean

import pytest

from machines.published import benchmark
from slipstream.machines import jitter
from slipstream.machines.jitter import slowest, spread
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.topology import machine

DOCS = Path(__file__).parents[2] / "docs"
H200 = machine("H200")


def gemm(us: float = 100.0, basis: str = "modelled", kind: str = "gemm") -> Estimate:
    return Estimate(us, basis, kind)


def band(*estimates: Estimate, on: Machine = H200) -> tuple[float, float]:
    named = {f"k{number}": estimate for number, estimate in enumerate(estimates)}
    return spread(named, dict.fromkeys(named, 1), on)


def test_the_slowest_of_many() -> None:
    """Against draws: the mean of the largest of N normal values."""
    import numpy as np

    drawn = np.random.default_rng(0)
    for spec in ("H200", "2xH200", "8xH200", "16x8xH100", "64x8xH100"):
        where = machine(spec)
        largest = drawn.normal(1.0, jitter.GPU_SPREAD, (4000, where.devices)).max(axis=1)
        assert slowest(where) == pytest.approx(largest.mean(), abs=5e-4)
    assert slowest(H200) == 1.0


def test_slices_wait_for_each_other() -> None:
    """As fitted to MaxText's published models of 32B and 128B, from the first of 1 to 32 slices."""
    slices = benchmark("tpu_slices")
    delay, tail = slices.fitted((32, 128))
    assert delay == pytest.approx(jitter.SLICE_DELAY, rel=0.01)
    assert tail == pytest.approx(jitter.SLICE_TAIL, rel=0.01)
    published = [slices.MFU[model] for model in (32, 128)]
    lost = {count: slowest(machine(f"{count}xv5e-256")) - 1 for count in slices.SLICES[1:]}
    for place, count in enumerate(lost, start=1):
        seen = mean(one[0] / one[place] - 1 for one in published)
        assert lost[count] == pytest.approx(seen, rel=0.05, abs=0.005)
    assert slices.relative_error() == pytest.approx(jitter.SLICE_ERROR, abs=0.01)
    assert slowest(machine("v5e-256")) == 1.0


def test_a_band_is_around_the_prediction_and_widens_with_hosts() -> None:
    bands = [band(gemm(), on=machine(spec)) for spec in ("H100", "8xH100", "64x8xH100")]
    assert all(low < 1 < high for low, high in bands)
    assert [low for low, _ in bands] == sorted((low for low, _ in bands), reverse=True)
    assert [high for _, high in bands] == sorted(high for _, high in bands)
    # A slow host makes a step longer, never shorter.
    low, high = bands[-1]
    assert high * low > 1.01


def test_what_is_measured_is_surer_than_what_is_modelled_or_unknown() -> None:
    widths = [
        high / low
        for low, high in (
            band(gemm(basis="measured")),
            band(gemm()),
            band(gemm(kind="collective")),
            band(gemm(basis="default")),
        )
    ]
    assert widths == sorted(widths)
    assert widths[0] == pytest.approx(1.064, abs=0.01)


def test_a_little_that_is_unknown_widens_the_band() -> None:
    known, with_unknown = band(gemm()), band(gemm(95), gemm(5, "default"))
    assert with_unknown[1] > known[1] + 0.02
    # Its default is a lower bound.
    assert with_unknown[0] == pytest.approx(known[0], abs=0.01)


def test_how_much_collectives_slow_kernels_is_uncertain() -> None:
    known = {"a": gemm()}
    alone, beside = (spread(known, {"a": 1}, H200, slowed) for slowed in (0.0, 0.2))
    assert beside[0] < alone[0] - 0.05 and beside[1] > alone[1] + 0.05


def test_errors_of_single_kernels_cancel_out() -> None:
    """Of a hundred fusions, only what they share remains."""
    one, many = (band(*[gemm(100 / n, kind="fusion")] * n) for n in (1, 100))
    assert many[1] < one[1] - 0.1
    shared = jitter.KERNELS["fusion"][0]
    assert many[1] > 1 + jitter.QUANTILE * shared


def test_kernels_of_pallas_were_compared_with_nothing_yet() -> None:
    assert band(gemm(kind="kernel"))[1] > band(gemm(kind="attention"))[1] + 0.3


def test_other_architectures_rest_on_data_sheets() -> None:
    ampere = replace(H200, chip=machine("A100").gpu)
    assert band(gemm(kind="fusion"), on=ampere)[1] > band(gemm(kind="fusion"))[1] + 0.3


def test_what_is_not_executed_does_not_count() -> None:
    estimates = {"a": gemm(), "b": gemm(1e9, "default")}
    assert spread(estimates, {"a": 1}, H200) == spread({"a": gemm()}, {"a": 1}, H200)
    assert spread({}, {}, H200)[0] == 1.0


def test_errors_are_those_of_the_pages() -> None:
    """A constant that the pages have left behind would make the band a claim without a base."""
    accuracy = (DOCS / "accuracy.md").read_text()
    for kind in ("gemm", "fusion", "attention", "convolution", "copy"):
        row = re.search(rf"^\| {kind} \| [\d.]+% \| [+-][\d.]+% \| ([\d.]+)% \|", accuracy, re.M)
        assert row is not None
        # The mean of absolute errors; a root mean square is larger.
        assert float(row[1]) / 100 < jitter.KERNELS[kind][1] * 1.3
    table = accuracy.partition("### With no profile at all")[2]
    rows = re.findall(r"\| ([\w.]+) \| ([\d.]+) \| ([\d.]+) \| [+-][\d.]+% \|", table)
    errors = [abs(float(ours) / float(real) - 1) for _, real, ours in rows]
    assert mean(errors) < jitter.KERNELS["gemm"][0]
    published = (DOCS / "accuracy-collectives.md").read_text()
    stated = re.search(r"\| all-gather, reduce-scatter, all-reduce \| ([\d.]+)% \|", published)
    assert stated is not None
    # Of a normal distribution, the mean absolute error is 0.8 standard deviations.
    assert pytest.approx(float(stated[1]) / 100 / 0.8, abs=0.02) == jitter.COLLECTIVES

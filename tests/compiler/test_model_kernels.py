"""Kernels of real models, compiled for an H200 without one: each has a model.

One program holds them all, each below a name of its own, so that XLA runs once.
"""

from collections import defaultdict
from pathlib import Path

import pytest

from slipstream.compiler.compile import compilation
from slipstream.machines.machine import Estimate
from slipstream.machines.topology import machine
from slipstream.profile.semantics.backend_config import PALLAS, call_name
from slipstream.profile.semantics.flops import work
from slipstream.simulate.costing import costing
from slipstream.simulate.prediction import predict

KERNELS = Path(__file__).with_name("model_kernels.py")
H200 = machine("H200").gpu
PARTS = {
    "cudnn": ("attention", "bf16", 3),
    "pallas_triton": ("kernel", "bf16", 8),
    "pallas_mosaic": ("kernel", "bf16", 2),
    "pallas_stated": ("kernel", "bf16", 2000),
    "fp8": ("gemm", "f8", 2),
    "quantized": ("gemm", "f8", 2),
    "ragged": ("gemm", "bf16", 2),
    "routing": ("fusion", "bf16", 12),
    "dropout": ("fusion", "bf16", 3),
    "callback": ("copy", "bf16", 200),
}
"""kind of the work that takes most of each part's time, the type of its products, and the largest
time over the roofline, which knows neither exponentials nor the link to the host"""


@pytest.fixture(scope="module")
def compiled(session_cache):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(session_cache))
        patched.delenv("XLA_FLAGS", raising=False)
        yield lambda function, on: compilation(f"{KERNELS}:{function}", on=on)


@pytest.fixture(scope="module")
def found(compiled):
    return compiled("build", "H200")


@pytest.fixture(scope="module")
def parts(found):
    """(roofline in µs, estimates) of each part."""
    program = found.program
    grouped = defaultdict(list)
    for name, estimate in costing(program, machine("H200"), None).items():
        part = program.instruction(name).op_name.split("kernels.")[-1].partition("/")[0]
        times = program.executions(name) or 1
        done = work(program, program.instruction(name)) * times
        part = part.rstrip(")")
        peak = H200.peak_flops[PARTS[part][1] if part in PARTS else "bf16"]
        least = max(done.bytes / H200.memory_bandwidth, done.flops / peak)
        grouped[part].append((least * 1e6, estimate.us * times, estimate))
    return grouped


@pytest.mark.parametrize("part", PARTS)
def test_each_kernel_has_a_model(part, parts):
    kind, _, most = PARTS[part]
    rows: list[tuple[float, float, Estimate]] = parts[part]
    assert {estimate.basis for _, _, estimate in rows} == {"modelled"}
    assert max(rows, key=lambda row: row[1])[2].kind == kind
    least, us = sum(row[0] for row in rows), sum(row[1] for row in rows)
    assert least < us < most * least


def test_attention_of_cudnn_lowers_without_cudnn(parts):
    """4 sequences of 2,048 tokens, 16 heads of 128."""
    times = [us for _, us, estimate in parts["cudnn"] if estimate.kind == "attention"]
    assert len(times) == 2 and 500 < sum(times) < 700


def test_flash_attention_of_pallas_is_within_reach_of_cudnns(parts):
    ours, theirs = (sum(us for _, us, _ in parts[name]) for name in ("pallas_triton", "cudnn"))
    # On an H200, JAX's own takes 3.1 times as long as cuDNN's (tests/data/accuracy).
    assert 2.5 * theirs < ours < 4 * theirs


def test_the_work_of_pallas_kernels_is_in_the_program(found):
    calls = [one for one in found.program.scheduled if one.custom_call_target.startswith(PALLAS)]
    counted = {call_name(one): work(found.program, one).flops for one in calls}
    blocks = 16 * 17 // 2  # of 128 queries and 128 keys that a causal mask leaves
    assert counted["mha_forward (Pallas)"] == 2 * 2 * 128**3 * blocks * 64
    assert counted["mosaic_gpu_v2"] == 2 * 4096**3


def test_nothing_is_a_default(parts):
    assert {row[2].basis for rows in parts.values() for row in rows} == {"modelled"}


def test_keys_of_a_ring_go_round_in_a_loop(compiled):
    on = machine("8xH200")
    program = compiled("ring", "8xH200").program
    estimates = costing(program, on, None)
    starts = [one for one in program.scheduled if one.collective is not None and one.is_start]
    assert {one.collective.kind for one in starts} == {"collective-permute"}
    assert {program.executions(one.name) for one in starts} <= {7, 8}
    assert {estimate.basis for estimate in estimates.values()} == {"modelled"}
    for one in starts:
        least = one.collective.bytes / on.gpu.link_bandwidth * 1e6
        assert least < estimates[one.name].us < 10 * least


def test_what_an_author_states_counts_where_the_code_does_not_tell(parts, found):
    (call,) = (one for one in found.program.scheduled if call_name(one) == "kernel (Pallas)")
    assert work(found.program, call).transcendentals == 10**9
    rows = [row for row in parts["pallas_stated"] if row[2].kind == "kernel"]
    # Three rounds of 10⁹ exponentials, of which an SM does at most sixteen a cycle.
    assert sum(us for _, us, _ in rows) > 3 * 10**9 / (16 * H200.cores * H200.clock_hz) * 1e6


def test_no_kernel_is_above_the_peak(found):
    prediction = predict(found.program, machine("H200"))
    assert prediction.mfu is not None and 0.1 < prediction.mfu < 1
    assert prediction.unknown == ()

"""Bounds before a compile are bounds of what the compile and the simulation give."""

from pathlib import Path

import pytest

from slipstream.compiler.combinations import combinations
from slipstream.compiler.inspection import Inspection, StepWork
from slipstream.compiler.workers import Workers
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.least_time import least_gathers_us
from slipstream.machines.topology import machine
from slipstream.plan.search.bounds import lower_bounds
from slipstream.simulate.costing import working
from slipstream.simulate.prediction import predict

EXAMPLES = Path(__file__).parents[3] / "examples"
ON = "4xH100"
QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
LLAMA = {"LAYERS": 2, "WIDTH": 1024, "HEADS": 8, "KV_HEADS": 4, "INNER": 4096, "WORDS": 8192}
SIZES = {
    "LLAMA": LLAMA | {"TOKENS": 1024},
    "MOE": LLAMA | {"TOKENS": 1024, "INNER": 1024},
    "GPT": {"LAYERS": 2, "WIDTH": 1024, "HEADS": 8, "WORDS": 8192, "TOKENS": 1024},
}
MATMULS = {"forward": 2, "backward": 5}


@pytest.fixture(scope="module")
def workers():
    with Workers() as found:
        yield found


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def sizes(monkeypatch, cache):
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    for model, given in SIZES.items():
        for name, value in given.items():
            monkeypatch.setenv(f"{model}_{name}", str(value))


def priced_flops(program):
    """FLOPs of all products that the model prices, on one device."""
    total = 0.0
    for instruction in working(program):
        features = kernel_features(program, instruction)
        if features.gemm is not None:
            flops = features.gemm.flops * (program.executions(instruction.name) or 1)
            if features.kind == "attention":
                flops *= MATMULS[features.form] / (2 if features.is_causal else 1)
            total += flops
    return total


@pytest.mark.parametrize(
    ("example", "keywords", "least", "on"),
    [
        ("llama", {"remat": "none", "batch": 4}, (0.99, 0.6), ON),
        ("llama", {"remat": "full", "tensor": 2, "attention": "xla"}, (0.99, 0.2), "2x2xH100"),
        ("llama", {"remat": "full", "layers": "unrolled"}, (0.99, 0.2), ON),
        ("moe", {"remat": "dots", "expert": 4}, (0.7, 0.2), ON),
        ("gpt", {}, (0.99, 0.2), ON),
    ],
    ids=lambda value: "-".join(map(str, value.values())) if isinstance(value, dict) else None,
)
def test_a_compile_never_needs_less(example, keywords, least, on, workers):
    """`least`: shares of the compiled FLOPs and memory that the bounds reach, so that they rule out
    something."""
    with combinations(f"{EXAMPLES}/{example}.py:build", on, workers=workers) as session:
        quick = session.inspect(keywords, traces=False)
        found = session.inspect(keywords)
        compiled = session.compile(keywords, QUICK)
    memory = compiled.memory
    assert quick.arguments_bytes == found.arguments_bytes == memory.arguments_bytes
    assert (quick.is_traced, found.devices) == (False, 4)
    bounds = lower_bounds(found, machine(on))
    assert least[1] * memory.peak_bytes <= bounds.memory_bytes <= memory.peak_bytes
    prediction = predict(compiled.program, machine(on), compilation=compiled)
    assert 0 < bounds.step_us <= prediction.step_us
    if example == "llama":
        assert (found.received_bytes > 0, found.network_bytes > 0) == (True, on != ON)
    gathers_us = least_gathers_us(machine(on), found.received_bytes, found.network_bytes)
    assert gathers_us <= max(prediction.bounds.links_us.values())
    each, priced = sum(found.flops.values()) / found.devices, priced_flops(compiled.program)
    # Products of a vector become reductions, which have no tensor cores.
    assert least[0] * priced <= each <= priced * 1.000001
    assert found.work.tokens == found.work.samples * 1025
    assert found.work.text == f"argument 1, int32[{found.work.samples},1025]"


GB = 10**9
STEP = Inspection(
    devices=4,
    arguments_bytes=94 * GB,
    is_traced=True,
    donated_bytes=94 * GB,
    outputs_bytes=94 * GB,
    flops={"bfloat16": 4 * 10**15},
    moved_bytes=2 * GB,
    work=StepWork(),
)


def test_what_bounds_say():
    found = lower_bounds(STEP, machine(ON))
    assert found.memory_text == "its arguments alone take 94 GB of 84.9 GB"
    assert found.step_text == "its products alone take at least 1.4 s"


@pytest.mark.parametrize(
    ("changes", "memory", "text"),
    [
        ({"donated_bytes": 90 * GB}, 98, "its arguments and results alone take 98 GB of 84.9 GB"),
        (
            {"stacked_bytes": 40 * GB, "reusable_bytes": GB},
            103,
            "its arguments and what its loops keep for later take at least 103 GB of 84.9 GB",
        ),
        # What may be gone by then can be used again, as can the memory of results.
        ({"stacked_bytes": 40 * GB, "reusable_bytes": 20 * GB}, 94, "its arguments alone take"),
    ],
)
def test_memory(changes, memory, text):
    found = lower_bounds(Inspection(**{**STEP.__dict__, **changes}), machine(ON))
    assert found.memory_bytes == memory * GB and found.memory_text.startswith(text)


def test_gradients_of_several_steps_count():
    found = lower_bounds(STEP, machine(ON), accumulator_bytes=10 * GB)
    assert found.memory_bytes == 104 * GB
    assert found.memory_text.endswith("104 GB of 84.9 GB, 10 GB of it to add up gradients")


def test_a_step_without_products_moves_its_arguments():
    found = lower_bounds(Inspection(**{**STEP.__dict__, "flops": {}}), machine(ON))
    assert found.step_text.startswith("reading its arguments and writing its results takes")
    assert 0.5e3 < found.step_us < 1e3


def test_weights_that_come_over_the_network():
    """A host of four H100 has 4 × 50 GB/s."""
    changes = {"received_bytes": 10 * GB, "network_bytes": 2000 * GB}
    found = lower_bounds(Inspection(**{**STEP.__dict__, **changes}), machine("2x4xH100"))
    assert (found.step_us, found.step_text) == (1e7, "gathering its weights takes at least 10 s")


def test_nothing_is_known_of_a_step_that_was_not_traced():
    found = lower_bounds(Inspection(4, 94 * GB, is_traced=False), machine(ON))
    assert (found.step_us, found.step_text) == (0.0, "nothing is known of its step")
    assert found.memory_bytes == 94 * GB

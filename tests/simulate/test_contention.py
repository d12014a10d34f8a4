"""How kernels and collectives slow each other: by hand, and against recordings of others."""

import json
import re
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.links import Load, program_loads
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.topology import machine
from slipstream.profile.program import Program
from slipstream.simulate.contention import (
    BEFORE_HOPPER,
    BESIDE_KERNELS,
    CORE_BOUND,
    LATE_WAVE,
    MEMORY_BOUND,
    NONE,
    REACHED,
    Contention,
    contention,
    contentions,
)
from slipstream.sources.load import load

CUBLAS = (
    'custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":'
    '{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)
TRITON = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
PROGRAM = program(
    "%x = f32[64,64] parameter(1)", gather("g", "a"), kernel("b", "a"),
    f"%c = f32[64,64] custom-call(%x, %x), {CUBLAS}", f"%d = f32[64,64] dot(%x, %x), {TRITON}",
    gathered("gd", "g"),
    "ROOT %t = (f32[8], f32[16], f32[64,64], f32[64,64]) tuple(%b, %gd, %c, %d)",
)  # fmt: skip


def of(name: str, estimate: Estimate, *loads: Load, on: Machine = MACHINE) -> Contention:
    return contention(PROGRAM, on, PROGRAM.instruction(name), estimate, loads)


@pytest.mark.parametrize(
    ("used", "by_cores", "by_memory"),
    [(0.5, 1, 0), (CORE_BOUND, 1, 0), (0.7, 0.5, 0.25), (MEMORY_BOUND, 0, 0.5), (1, 0, 1)],
)
def test_a_kernel_loses_cores_or_memory_by_what_limits_it(
    used: float, by_cores: float, by_memory: float
) -> None:
    """64 bytes take 64 ps at full bandwidth."""
    assert of("b", Estimate(64e-6 / REACHED / used, "modelled")) == Contention(
        loses_by_cores=pytest.approx(by_cores), loses_by_memory=pytest.approx(by_memory)
    )


@pytest.mark.parametrize("name", ["c", "d"])
def test_a_product_has_a_late_wave_and_with_half_of_the_cores_takes_twice_as_long(
    name: str,
) -> None:
    """64 × 64 is one wave."""
    found = of(name, Estimate(1000, "modelled", "gemm"))
    assert found.loses == pytest.approx(1 - 1 / (1 + LATE_WAVE))
    halved = found.loses + 0.5 * found.loses_by_cores
    assert halved == pytest.approx(0.5)
    # Its time alone is not known.
    assert of(name, Estimate(10, "measured", "gemm")) == NONE


def test_a_library_s_product_before_hopper_has_the_slowdown_that_was_recorded_there() -> None:
    modelled = Estimate(10, "modelled", "gemm")
    a100 = machine("4xA100")
    assert of("c", modelled, on=a100) == Contention(loses=BEFORE_HOPPER)
    assert of("b", modelled, on=a100).loses_by_cores > 0


def test_a_collective_takes_its_channels_and_what_it_reads_and_writes() -> None:
    loads = program_loads(MACHINE, PROGRAM, costs("modelled", g=10))["g"]
    assert of("g", Estimate(10, "modelled"), *loads) == Contention(
        cores=1 / MACHINE.gpu.cores,  # 64 bytes need one channel
        memory=pytest.approx(2 * 32 / (REACHED * 1e7)),
        loses=BESIDE_KERNELS,
    )
    assert of("g", Estimate(10, "measured"), *loads).loses == 0


def test_a_collective_of_one_gpu_is_a_copy_and_takes_no_cores() -> None:
    alone = program(
        "%g = (f32[8], f32[8]) all-gather-start(%a), replica_groups={{0},{1}}, dimensions={0}",
        "%gd = f32[8] all-gather-done(%g)",
        kernel("b", "a", root=True),
    )
    found = contention(alone, MACHINE, alone.instruction("g"), Estimate(10, "modelled"))
    assert (found.cores, found.memory) == (0, 0)


def test_without_collectives_nothing_is_slower() -> None:
    found = program(kernel("b", "a", root=True))
    assert contentions(found, MACHINE, costs("modelled", b=1), {}) == {}
    assert contentions(PROGRAM, MACHINE, costs("modelled", b=1, g=1), {}).keys() == {"b", "g"}


# Kernels on an H200, beside one that holds 1 to 32 of 132 SMs.

RECORDING = json.loads(
    (Path(__file__).parents[1] / "data/accuracy/contention.json").read_text(encoding="utf-8")
)
LARGE = "bf16[16384,8192]"
WORKS = {
    "attention 4 4096 16 128": (
        "attention",
        "bf16[4,4096,16,128]",
        'custom-call(%q, %q, %q), custom_call_target="__cudnn$fmhaSoftmax"',
    ),
    "elementwise": ("fusion", LARGE, "tanh(%x)"),
    "copy": ("fusion", LARGE, "negate(%x)"),
    "reduction of rows": ("fusion", "f32[16384]", "reduce(%x, %z), dimensions={1}, to_apply=%add"),
    "reduction of columns": (
        "fusion",
        "f32[8192]",
        "reduce(%x, %z), dimensions={0}, to_apply=%add",
    ),
}
ADD = """%add (s: f32[], t: f32[]) -> f32[] {
  %s = f32[] parameter(0)
  %t = f32[] parameter(1)
  ROOT %u = f32[] add(%s, %t)
}
"""


def slowdowns(work: str) -> list[tuple[int, bool, float, float]]:
    """(SMs, moving, measured, model) of each row. Traffic is what a kernel that memory limits lost:
    a sum of rows reads at the memory's full rate."""
    rows = {(r["sms"], r["moving"]): r for r in RECORDING["rows"] if r["work"] == work}
    limited = {
        r["sms"]: 1 - r["alone_us"] / r["beside_us"]
        for r in RECORDING["rows"]
        if r["work"] == "reduction of rows" and r["moving"]
    }
    kind, lines = "gemm", []
    if work in WORKS:
        kind, shape, body = WORKS[work]
        lines = [
            "%q = bf16[4,4096,16,128] parameter(1)", f"%x = {LARGE} parameter(2)",
            "%z = f32[] parameter(3)", f"ROOT %k = {shape} {body}",
        ]  # fmt: skip
    else:
        m, n, k = work.split()[-3:]
        is_library = all("nvjet" in row["kernel"] for row in rows.values())
        body = f"custom-call(%x, %y), {CUBLAS}" if is_library else f"dot(%x, %y), {TRITON}"
        lines = [
            f"%x = bf16[{m},{k}] parameter(1)", f"%y = bf16[{k},{n}] parameter(2)",
            f"ROOT %k = bf16[{m},{n}] {body}",
        ]  # fmt: skip
    made, h200 = program(*lines, others=ADD), machine("H200")
    found = []
    for (sms, moving), row in rows.items():
        estimate = Estimate(row["alone_us"], "modelled", kind)
        slows = contention(made, h200, made.instruction("k"), estimate)
        lost = slows.loses + slows.loses_by_cores * sms / h200.gpu.cores
        lost += slows.loses_by_memory * limited[sms] * moving
        found.append((sms, moving, row["beside_us"] / row["alone_us"], 1 / (1 - lost)))
    return found


def errors(works: str, waits: bool = True, moves: bool = True, least: int = 1) -> list[float]:
    """Of the modelled times of all works that match, beside blocks that wait or move memory, and
    which hold at least so many SMs."""
    found = dict.fromkeys(row["work"] for row in RECORDING["rows"])
    return [
        model / measured - 1
        for work in found
        if re.fullmatch(works, work)
        for sms, moving, measured, model in slowdowns(work)
        if (moves if moving else waits) and sms >= least
    ]


def test_recorded_products_of_cublas_beside_held_cores() -> None:
    """As `contention` states. XLA's choice for the large products was cuBLAS's as well."""
    large = errors(".*product 8192 .*")
    assert len(large) == 60
    assert statistics.mean(map(abs, large)) < 0.025
    assert -0.04 < min(large) < max(large) < 0.085
    one_wave = errors("cuBLAS product 2048 .*", least=8)
    assert len(one_wave) == 8
    assert -0.08 < min(one_wave) < max(one_wave) < 0.01


def test_recorded_products_of_triton_beside_held_cores() -> None:
    moving = errors("product 2048 .*", waits=False, least=8)
    assert len(moving) == 4
    assert 0.05 < min(moving) < max(moving) < 0.125
    waiting = errors("product 2048 .*", moves=False, least=8)
    assert 0.25 < min(waiting) < max(waiting) < 0.325  # a known error


def test_recorded_products_of_one_wave_beside_a_single_held_core_still_fit() -> None:
    """A known error: the model doesn't count blocks."""
    assert all(0.6 < error < 0.8 for error in errors(".*product 2048 .*")[::10])


@pytest.mark.parametrize(
    ("work", "lowest", "highest"),
    [
        ("attention .*", -0.005, 0.04),
        ("elementwise", -0.025, 0.02),
        ("copy", -0.01, 0.12),
        ("reduction of rows", -0.08, 0.01),
    ],
)
def test_other_recorded_kernels_beside_held_cores(work: str, lowest: float, highest: float) -> None:
    found = errors(work)
    assert len(found) == 10
    assert lowest < min(found) < max(found) < highest


# Recordings on four A100, by the makers of JAX-Toolbox.

Span = tuple[float, float]


def recorded(
    folder: Path,
) -> tuple[Program, dict[str, list[Span]], Callable[[float, float], float]]:
    """The program, the spans of each instruction on one device in µs, and the share of a span in
    which a large collective is in flight."""
    profile = load(folder / "nsysjax_pax_fsdp4_a100_proc0.zip")
    name = next(name for name in profile.programs if name.startswith("pjit__wrapped_step_fn"))
    found, events = profile.programs[name], profile.events
    starts, lengths = events["start_ps"] / 1e6, events["duration_ps"] / 1e6
    spans: dict[str, list[Span]] = defaultdict(list)
    for row in range(len(events)):
        spans[events.text("instruction", row)].append((starts[row], starts[row] + lengths[row]))
    moving = np.array(sorted(s for name in spans if is_large(found, name) for s in spans[name]))

    def beside(begin: float, end: float) -> float:
        common = np.minimum(moving[:, 1], end) - np.maximum(moving[:, 0], begin)
        return float(np.maximum(common, 0).sum()) / (end - begin)

    return found, spans, beside


def is_large(found: Program, name: str) -> bool:
    collective = found.instruction(name).collective if name in found else None
    return collective is not None and collective.bytes > 10**6


def test_recorded_products_beside_all_gathers(external: Path) -> None:
    """Three shapes that ran both ways, in the median: within what `contention` states."""
    found, spans, beside = recorded(external)
    times: dict[object, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for name, each in spans.items():
        if name not in found or not each:
            continue
        features = kernel_features(found, found.instruction(name))
        if features.kind != "gemm":
            continue
        for begin, end in each:
            share = beside(begin, end)
            if end - begin > 100 and (share > 0.9 or share < 0.02):
                times[features.gemm][int(share > 0.9)].append(end - begin)
    ratios = [
        statistics.median(hidden) / statistics.median(alone)
        for alone, hidden in times.values()
        if len(hidden) >= 5 and len(alone) >= 5
    ]
    assert len(ratios) == 3
    assert all(1.5 < ratio < 2.2 for ratio in ratios)
    stated = 1 / (1 - BEFORE_HOPPER)
    assert stated == pytest.approx(statistics.median(ratios), rel=0.2)

"""How kernels and collectives slow each other: by hand, and against recordings of others."""

import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.links import Load, program_loads
from slipstream.machines.machine import Estimate
from slipstream.profile.program import Program
from slipstream.simulate.contention import (
    BESIDE_KERNELS,
    LATE,
    NONE,
    REACHED,
    Contention,
    contention,
    contentions,
)
from slipstream.sources.load import load

CALL = (
    '%c = f32[64,64] custom-call(%x, %x), custom_call_target="__cublas$gemm", '
    'backend_config={"gemm_backend_config":{"dot_dimension_numbers":'
    '{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}'
)
PROGRAM = program(
    "%x = f32[64,64] parameter(1)", gather("g", "a"), kernel("b", "a"), CALL, gathered("gd", "g"),
    "ROOT %t = (f32[8], f32[16], f32[64,64]) tuple(%b, %gd, %c)",
)  # fmt: skip


def of(name: str, estimate: Estimate, *loads: Load) -> Contention:
    return contention(PROGRAM, MACHINE, PROGRAM.instruction(name), estimate, loads)


def test_a_kernel_loses_cores_or_memory_by_what_limits_it() -> None:
    """64 bytes take 64 ps at full bandwidth."""
    busy = 64e-6 / REACHED
    assert of("b", Estimate(busy, "modelled")) == Contention(
        loses_by_cores=pytest.approx(0), loses_by_memory=pytest.approx(1)
    )
    assert of("b", Estimate(2 * busy, "modelled")) == Contention(
        loses_by_cores=pytest.approx(0.75), loses_by_memory=pytest.approx(0.5)
    )


def test_at_the_power_cap_fewer_cores_run_at_a_higher_clock() -> None:
    assert of("b", Estimate(10, "modelled", "gemm")).loses_by_cores == pytest.approx(2 / 3)


def test_a_library_s_product_waits_for_the_cores_that_are_taken() -> None:
    assert of("c", Estimate(10, "modelled", "gemm")) == Contention(loses=LATE)
    # Its time alone is not known.
    assert of("c", Estimate(10, "measured", "gemm")) == NONE


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
    stated = 1 / (1 - LATE)
    assert stated == pytest.approx(statistics.median(ratios), rel=0.2)

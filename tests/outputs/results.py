"""Small results and profiles, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from slipstream.analyses.ops import Op, Ops
from slipstream.analyses.summary import DeviceSummary, ProgramSummary, StepTimes, Summary
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS, Column, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning

STEP = "jit_step(1)"

MATMUL = Op(
    program=STEP,
    instruction="gemm_fusion_dot.7",
    count=3,
    per_step_count=1.0,
    total_us=123_000.0,
    per_step_us=41_000.0,
    share=0.092,
    phase="backward",
    category="matmul",
    scope="block/mlp",
    source="/home/someone/train/model.py:26",
    description="x @ w1ᵀ",
)
SOFTMAX = Op(
    program=STEP,
    instruction="loop_softmax_of_a_very_long_name_fusion.12",
    count=6,
    per_step_count=2.0,
    total_us=114_000.0,
    per_step_us=38_000.0,
    share=0.085,
    phase="remat",
    category="elementwise",
    scope="block/attention/softmax",
    source="/home/someone/train/model.py:21",
    description="softmax of everything that came before",
)
COPY = Op(STEP, "copy.3", 3, 15.0, 5.0, 0.0001, phase="other", category="copy", per_step_count=1.0)

OPS = Ops("instruction", 3, 0.998, (MATMUL, SOFTMAX, COPY), 1_338_000.0)

PROGRAMS = (
    ProgramSummary(STEP, "7733d8da9f00c0ffee", 3, 116, 1_338_000.0, True),
    ProgramSummary("jit_convert_element_type(22)", None, 1, None, 12.5, False),
)

SUMMARY = Summary(
    hosts=("worker-0",),
    versions={"jax": "0.11.2", "jaxlib": "0.11.2"},
    devices=(DeviceSummary("/device:GPU:0", "worker-0", "NVIDIA H200", 420, 444_000.0),),
    programs=PROGRAMS,
    step_count=3,
    step_median_us=447_000.0,
    step_basis="annotations",
    step_rule="step annotations of the host; the first one was left out",
    per_step=StepTimes(
        wall_us=447_000.0,
        compute_us=412_000.0,
        communication_us=30_000.0,
        exposed_communication_us=9_000.0,
        copy_us=65_000.0,
        exposed_copy_us=23_000.0,
        idle_us=3_000.0,
        unattributed_us=900.0,
    ),
    phases_us={
        "forward": 112_000.0,
        "backward": 206_000.0,
        "remat": 98_000.0,
        "optimizer": 5_000.0,
        "other": 0.0,
    },
    top=(MATMUL, SOFTMAX, COPY),
    top_groups=OPS.groups,
    warnings=(
        ProfileWarning(
            "host-copies",
            "host copies run on the compute stream: command buffers capture them; "
            "see: slipstream explain host-copies",
        ),
    ),
)


def table(columns: tuple[Column, ...], rows: Sequence[dict[str, Any]]) -> Table:
    """A table from rows that leave out what is empty or zero."""
    texts = Texts()
    arrays = {}
    for column in columns:
        cells = [row.get(column.name, "" if column.text else 0) for row in rows]
        arrays[column.name] = np.array(
            [texts.index(cell) for cell in cells] if column.text else cells, column.dtype
        )
    return Table(columns, arrays, texts.values)


def small_profile() -> Profile:
    """Two lanes of a GPU with an overlap, and a host thread whose events nest."""
    events = [
        _kernel(1000, 10_000, "gemm_kernel", instruction="dot.1", op="dot.1", details="grid:4"),
        _kernel(11_000, 5_000, "gemm_kernel", instruction="dot.1", op="dot.1", details="grid:4"),
        # Overlaps the one before, and ends after it.
        _kernel(13_000, 9_000, "side_kernel", instruction="add.2", op="command_buffer_0", graph=7),
        _kernel(0, 4_000, "MemcpyD2H", lane=1, details="size:128"),
    ]
    host = [
        _call(0, 30_000, "train"),
        _call(0, 8_000, "PjitFunction(step)"),
        _call(8_000, 0, "marker"),
        _call(8_000, 22_000, "wait"),
        _call(9_000, 1_000, 'said "so", twice'),
    ]
    return Profile(
        hosts=(Host("worker-0", "a.xplane.pb"),),
        devices=(Device("/device:GPU:0", 0, 0, "gpu", "NVIDIA H200"),),
        lanes=(
            Lane("Stream #14(Compute)", 0, 0),
            Lane("Stream #15(MemcpyD2H)", 0, 0),
            Lane("python", 0, None, role="thread"),
        ),
        events=table(EVENT_COLUMNS, events),
        host_events=table(HOST_COLUMNS, host),
    )


def _kernel(start_ns: int, length_ns: int, name: str, lane: int = 0, **rest: Any) -> dict[str, Any]:
    times = {"start_ps": start_ns * 1000, "duration_ps": length_ns * 1000}
    return {**times, "lane": lane, "name": name, "program": STEP, **rest}


def _call(start_ns: int, length_ns: int, name: str) -> dict[str, Any]:
    times = {"start_ps": start_ns * 1000, "duration_ps": length_ns * 1000}
    return {**times, "lane": 2, "name": name}

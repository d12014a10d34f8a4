"""A mock of a Megascale profile: two TPU slices, a data-parallel step, and optional problems.

No real recording is available: events and stats are named as in the sources of XLA and XProf
(`xplane_schema.cc`, `dcn_utils.cc` of github.com/openxla); the times, in µs, are invented.

    step      ├──────────────────────────── 10,000 ─────────────────────────────┤
    TPU       send recv ███ compute ███ send-done   recv-done ███ compute ███
    host           ▒▒▒ Communication Transport Receive ▒▒▒
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from builders import SpaceBuilder, Unsigned, space
from slipstream.profile.profile import Profile
from slipstream.sources.load import load

PROGRAM = "jit_train_step(7)"
STEP_US = 10_000.0
STEPS = 4
COLLECTIVES = ("all-reduce.1", "all-reduce.2")
CHUNKS = 8
GBPS = 100.0
"""rate of the network of the mock's hosts"""
WORKER = "MegascaleEM2_Worker/1"


@dataclass(frozen=True)
class Mock:
    """What the profile shows; the defaults have no problem."""

    wait_us: float = 5.0
    """duration of a recv-done"""
    slack_us: float = 3_000.0
    """compute between a collective's recv and its recv-done"""
    transfer_us: float = 120.0
    """duration of one chunk's transfer"""
    apart_us: float = 120.0
    """time between the starts of two chunks"""
    buffer_bytes: int = 4_000_000
    outlier_every: int = 0
    """one in this many chunks takes 40 times as long; 0: none"""
    maps_in_steps: int = 0
    maps_before: int = 3
    """MapDmaBuffer calls before the first step, which are normal"""
    copies_in_transfers: int = 0
    copies_before: int = 1
    """memory copies before the first step, which are normal"""


def program_text(mock: Mock) -> str:
    """Two all-reduces between slices, each a send and a receive that the host runs."""
    shape = f"f32[{mock.buffer_bytes // 4}]"
    lines = [f"  %p = {shape}{{0}} parameter(0)", "  %token = token[] after-all()"]
    before = "p"
    for number, name in enumerate(COLLECTIVES, 1):
        marks = (
            "is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="
            f'"{name}",_xla_megascale_transfer_type="ALL_REDUCE"}}'
        )
        both = f"({shape}{{0}}, u32[], token[])"
        lines += [
            f"  %send.{number} = {both} send(%{before}, %token), channel_id={2 * number}, {marks}",
            f"  %recv.{number} = {both} recv(%token), channel_id={2 * number + 1}, {marks}",
            f"  %fusion.{number} = {shape}{{0}} negate(%{before})",
            f"  %send-done.{number} = token[] send-done(%send.{number}), "
            f"channel_id={2 * number}, {marks}",
            f"  %recv-done.{number} = ({shape}{{0}}, token[]) recv-done(%recv.{number}), "
            f"channel_id={2 * number + 1}, {marks}",
            f"  %got.{number} = {shape}{{0}} get-tuple-element(%recv-done.{number}), index=0",
            f"  %update.{number} = {shape}{{0}} add(%fusion.{number}, %got.{number})",
        ]
        before = f"update.{number}"
    body = "\n".join(lines).replace(f"  %{before} =", f"  ROOT %{before} =")
    return (
        "HloModule jit_train_step, is_scheduled=true\n\n"
        f"ENTRY %main (p: {shape}) -> {shape} {{\n{body}\n}}\n"
    )


def megascale(mock: Mock | None = None) -> SpaceBuilder:
    """The recording of one host of slice 0; slice 1 is its peer."""
    mock = mock or Mock()
    made = space()
    made.program(PROGRAM, program_text(mock).encode())
    tpu = made.tpu(0)
    lines = [tpu.line(name) for name in ("XLA Modules", "Steps", "XLA Ops")]
    worker = made.host().line(WORKER)
    for number in range(mock.maps_before):
        worker.event("MapDmaBuffer", 10.0 * number, 8)
    for number in range(mock.copies_before):
        worker.event("MegaScale: Memory Copy", 500 + 10.0 * number, 5)
    start = 1_000.0
    for step in range(STEPS):
        at = start + step * STEP_US
        lines[0].event(PROGRAM, at, STEP_US - 10, run_id=step, program_id=7)
        lines[1].event(str(step), at, STEP_US - 10)
        _run(mock, lines[2], worker, at, step)
    return made


def _run(mock: Mock, ops, worker, at: float, step: int) -> None:
    def op(name: str, us: float) -> None:
        nonlocal at
        ops.event(
            name, at, us, hlo_op=name, hlo_module="jit_train_step",
            program_id=Unsigned(7), run_id=step,
        )  # fmt: skip
        at += us

    for number in range(1, len(COLLECTIVES) + 1):
        _transfers(mock, worker, at + 2, step, number)
        op(f"send.{number}", 1)
        op(f"recv.{number}", 1)
        op(f"fusion.{number}", mock.slack_us)
        op(f"send-done.{number}", 1)
        op(f"recv-done.{number}", mock.wait_us)
        op(f"update.{number}", 500)
    for count in range(mock.maps_in_steps):
        worker.event("MapDmaBuffer", at + 20 * count, 15)


def _transfers(mock: Mock, worker, at: float, step: int, number: int) -> None:
    ids = {
        "dcn_source_slice_id": 1,
        "dcn_source_per_slice_device_id": 0,
        "dcn_destination_slice_id": 0,
        "dcn_destination_per_slice_device_id": 0,
    }
    for chunk in range(CHUNKS):
        us = mock.transfer_us
        serial = (step * len(COLLECTIVES) + number) * CHUNKS + chunk
        if mock.outlier_every and serial % mock.outlier_every == 0:
            us *= 40
        worker.transfer(
            at + us,
            round(us),
            dcn_label=COLLECTIVES[number - 1],
            dcn_chunk=chunk,
            dcn_loop_index=0,
            payload_size_bytes=mock.buffer_bytes // CHUNKS,
            **ids,
        )
        if chunk < mock.copies_in_transfers:
            worker.event("MegaScale: Memory Copy", at + us / 4, us / 4)
        at += mock.apart_us


def megascale_profile(folder: Path, mock: Mock | None = None) -> Profile:
    """The mock, written and read like any recording."""
    return load(megascale(mock).write(folder / "host-0.xplane.pb"))


HEALTHY = Mock()
PROBLEMS = {
    "map-dma-buffer": Mock(maps_in_steps=5),
    "memory-copies": Mock(copies_in_transfers=3),
    "recv-done": Mock(wait_us=400.0),
    "small-slack": Mock(slack_us=50.0, wait_us=900.0),
    "bandwidth": Mock(wait_us=900.0, transfer_us=480.0, apart_us=480.0, buffer_bytes=45_600_000),
    "latency": Mock(outlier_every=11),
    "latency, always": Mock(wait_us=900.0, transfer_us=3_000.0, apart_us=100.0),
}
"""each problem that the guide describes, on its own"""
EXPECTED = {
    "map-dma-buffer": {"map-dma-buffer"},
    "memory-copies": {"memory-copies"},
    "recv-done": {"recv-done"},
    # What arrives late is waited for, and what saturates the network has too little slack.
    "small-slack": {"small-slack", "recv-done"},
    "bandwidth": {"bandwidth", "small-slack", "recv-done"},
    "latency": {"latency"},
    "latency, always": {"latency", "recv-done"},
}

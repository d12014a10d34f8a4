"""Recordings of many hosts, made from one real recording: other names, clocks and speeds."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from slipstream.sources.proto_schema import message

SOURCE = Path(__file__).parent / "data" / "nccl2_lhs_r0.xplane.pb.gz"
START_NS = 1_794_704_108_346_837_412
"""when it began"""


def host_space(name: str, ahead_ns: int = 0, late_us: float = 0.0, compute: float = 1.0) -> Any:
    """The recording as another host would have made it.

    Its clock is ahead; it reaches collectives later, and ends them with the others; its kernels
    take `compute` (at most 1) of their time.
    """
    assert compute <= 1
    space = message("XSpace").FromString(gzip.decompress(SOURCE.read_bytes()))
    space.hostnames[:] = [name]
    for plane in space.planes:
        if plane.name == "Task Environment":
            _move_start(plane, ahead_ns)
        if plane.name.startswith("/device:GPU"):
            _change(plane, round(late_us * 1e6), compute)
    return space


def write_host(folder: Path, name: str, **changes: Any) -> Path:
    """Write the recording of a host."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.xplane.pb"
    path.write_bytes(host_space(name, **changes).SerializeToString())
    return path


def _move_start(plane: Any, ahead_ns: int) -> None:
    for stat in plane.stats:
        if plane.stat_metadata[stat.metadata_id].name == "profile_start_time":
            assert stat.uint64_value == START_NS
            stat.uint64_value += ahead_ns


def _change(plane: Any, late_ps: int, compute: float) -> None:
    for line in plane.lines:
        for event in line.events:
            name = plane.event_metadata[event.metadata_id].name
            if "nccl" in name:
                late = min(late_ps, event.duration_ps // 2)
                event.offset_ps += late
                event.duration_ps -= late
            elif "Memcpy" not in name:  # some collectives are copies
                event.duration_ps = round(event.duration_ps * compute)

"""A profile as an XPlane file, as JAX's profiler writes it.

The file contains the program as an HloProto, or as HLO text if it was read from text; Slipstream
reads that back, and other tools ignore it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.outputs.wire import message as field
from slipstream.profile.profile import Profile
from slipstream.remote.paths import any_path
from slipstream.sources.proto_schema import message
from slipstream.writing import atomic_write

SIMULATED = "simulated: "
"""prefix of the warnings of a simulation"""
_STATS = ("hlo_op", "hlo_module", "program_id", "correlation_id")
_GRAPH_STATS = ("cuda_graph_id", "cuda_graph_node_id")


def write_timeline(profile: Profile, path: str | os.PathLike[str], program: bytes) -> Path:
    """Write a profile of one program; `program` is its HloProto, HloModuleProto, or text."""
    space = message("XSpace")()
    space.hostnames.append(profile.hosts[0].name)
    space.warnings.extend(SIMULATED + warning.message for warning in profile.warnings)
    for index, device in enumerate(profile.devices):
        plane = space.planes.add(id=index + 1, name=f"/device:{device.name}")
        _Plane(plane).fill(profile, index)
    _add_program(space, profile, program)
    target = any_path(path)
    with atomic_write(target) as temporary:
        temporary.write_bytes(space.SerializeToString())
    return target


class _Plane:
    """One device's plane: its streams, and the names that events refer to."""

    def __init__(self, plane: Any) -> None:
        self.plane = plane
        self.stats: dict[str, int] = {}
        self.kinds: dict[str, int] = {}
        self.names = _STATS + _GRAPH_STATS

    def fill(self, profile: Profile, device: int) -> None:
        is_tpu = profile.devices[device].kind == "tpu"
        key = "device_type_string" if is_tpu else "gpu_device_name"
        if is_tpu:
            self.names = (*_STATS[:-1], "run_id", *_GRAPH_STATS)
        model = self.plane.stats.add(metadata_id=self._stat(key))
        model.str_value = profile.devices[device].model
        for number, lane in enumerate(profile.lanes):
            if lane.device != device:
                continue
            line = self.plane.lines.add(id=number, name=lane.name)
            rows = np.flatnonzero(profile.events["lane"] == number)
            for row in rows.tolist():
                self._add(line, profile, row)

    def _add(self, line: Any, profile: Profile, row: int) -> None:
        events = profile.events
        event = line.events.add(
            metadata_id=self._kind(events.text("name", row)),
            offset_ps=int(events["start_ps"][row]),
            duration_ps=int(events["duration_ps"][row]),
        )
        module, _, number = events.text("program", row).rpartition("(")
        values: tuple[str | int, ...] = (
            events.text("instruction", row) or events.text("op", row),
            module,
            int(number.rstrip(")") or 0),
            int(events["correlation"][row]),
        )
        graph, node = int(events["graph"][row]), int(events["graph_node"][row])
        of_graph = (graph, node and (graph << 32) + node - 1)
        for name, value in zip(self.names, values + of_graph, strict=True):
            if isinstance(value, str):
                # A text is stored once, as the name of a stat that events refer to.
                event.stats.add(metadata_id=self._stat(name), ref_value=self._stat(value))
            elif value or name not in _GRAPH_STATS:
                event.stats.add(metadata_id=self._stat(name), uint64_value=value)

    def _stat(self, name: str) -> int:
        if name not in self.stats:
            self.stats[name] = number = len(self.stats) + 1
            entry = self.plane.stat_metadata[number]
            entry.id, entry.name = number, name
        return self.stats[name]

    def _kind(self, name: str) -> int:
        if name not in self.kinds:
            self.kinds[name] = number = len(self.kinds) + 1
            entry = self.plane.event_metadata[number]
            entry.id, entry.name = number, name
        return self.kinds[name]


def _add_program(space: Any, profile: Profile, program: bytes) -> None:
    plane = space.planes.add(id=len(space.planes) + 1, name="/host:metadata")
    stat = plane.stat_metadata[1]
    stat.id, stat.name = 1, "Hlo Proto"
    for number, name in enumerate(profile.programs, 1):
        entry = plane.event_metadata[number]
        entry.id, entry.name = number, name
        entry.stats.add(metadata_id=1, bytes_value=as_hlo_proto(program))


def as_hlo_proto(program: bytes) -> bytes:
    """An HloModuleProto wrapped in an HloProto, as tools expect it; anything else unchanged."""
    from google.protobuf.message import DecodeError

    if (text := program.lstrip()).startswith(b"HloModule"):
        return text
    try:
        is_whole = bool(message("HloProto").FromString(program).hlo_module.computations)
    except DecodeError:
        is_whole = False
    return program if is_whole else field(1, program)

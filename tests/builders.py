"""Builders of small recordings, profiles and programs; times are in µs.

space()     an XPlane file, byte for byte as a profiler would write it
profile()   a Profile without a file: profile().kernel("dot.1", 10).all_reduce(30, hidden=10)
hlo()       the HloProto of a small program, from the names of its instructions
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.profile.events import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    TRANSFER_COLUMNS,
    Column,
    Table,
    Texts,
)
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning, Programs
from slipstream.profile.program import Program
from slipstream.sources.hlo.reader import program_from_proto
from slipstream.sources.proto_schema import message

PS = 1_000_000
"""picoseconds in a µs"""
STEP = "jit_step(1)"


class Ref(str):
    """A text that the file stores once, as the name of a stat, and refers to."""


class Unsigned(int):
    """A number written as uint64."""


Value = int | float | str | bytes


def hlo(
    name: str,
    instructions: Sequence[str],
    loops: Mapping[str, tuple[int | None, Sequence[str]]] | None = None,
    program_id: int = 1,
) -> bytes:
    """A program: `dot.1` is a dot, and a while in `loops` runs its body that many times.

    Each instruction takes the one before it (a dot takes it twice), the first one a parameter; a
    `-done` takes the start of its number.
    """
    proto = message("HloProto")()
    module = proto.hlo_module
    module.name, module.id = name, program_id
    ids: dict[str, int] = {}

    def computation(label: str, names: Sequence[str]) -> int:
        called = {}
        for loop in names:
            if loops and loop in loops:
                called[loop] = computation(f"{loop}_body", loops[loop][1])
        part = module.computations.add(name=label, id=len(module.computations) + 1)
        before = None
        for text in (f"{label}.parameter.0", *names):
            opcode = re.sub(r"\.\d+$", "", text).removeprefix(f"{label}.")
            one = part.instructions.add(name=text, opcode=opcode, id=len(ids) + 1)
            one.shape.element_type = 11
            one.shape.dimensions.append(8)
            one.shape.layout.minor_to_major.append(0)
            ids[text] = one.id
            start = ids.get(text.replace("-done", "-start")) if "-done" in text else before
            if start is not None:
                one.operand_ids.extend([start, start] if opcode == "dot" else [start])
            if text in called:
                one.called_computation_ids.append(called[text])
                trips = loops[text][0] if loops else None
                if trips is not None:
                    known = f'{{"known_trip_count":{{"n":"{trips}"}}}}'
                    one.backend_config = known.encode()
            before = one.id
        part.root_id = before
        module.schedule.sequences[part.id].instruction_ids.extend(i.id for i in part.instructions)
        return part.id

    module.entry_computation_id = computation("main", instructions)
    module.entry_computation_name = "main"
    return proto.SerializeToString()


def program(
    name: str = STEP,
    instructions: Sequence[str] = ("dot.1",),
    loops: Mapping[str, tuple[int | None, Sequence[str]]] | None = None,
) -> Program:
    """The program of `hlo`, as a Program; `name` is `name(id)`."""
    label, _, number = name.partition("(")
    return program_from_proto(hlo(label, instructions, loops, int(number.rstrip(")") or 0)))


class SpaceBuilder:
    """An XPlane file."""

    def __init__(self) -> None:
        self.proto = message("XSpace")()
        self.planes: dict[str, PlaneBuilder] = {}

    def plane(self, name: str, **stats: Value) -> PlaneBuilder:
        """The plane of that name, created on first use."""
        if name not in self.planes:
            self.planes[name] = PlaneBuilder(self.proto.planes.add(name=name))
        return self.planes[name].stat(**stats)

    def gpu(self, ordinal: int = 0, model: str = "NVIDIA H200") -> PlaneBuilder:
        return self.plane(
            f"/device:GPU:{ordinal}", device_vendor="Nvidia", gpu_device_name=Ref(model)
        )

    def tpu(self, ordinal: int = 0, model: str = "TPU v5p") -> PlaneBuilder:
        return self.plane(f"/device:TPU:{ordinal}", device_type_string=model)

    def host(self) -> PlaneBuilder:
        return self.plane("/host:CPU")

    def program(self, name: str, proto: bytes) -> SpaceBuilder:
        """A program by `name(id)`, as the metadata plane keeps it."""
        metadata = self.plane("/host:metadata")
        found = metadata.metadata(name)
        metadata.add_stat(found.stats, "Hlo Proto", proto)
        return self

    def versions(self, **versions: str) -> SpaceBuilder:
        self.plane("/host:metadata", **versions)
        return self

    def environment(self, start_ns: int, stop_ns: int = 0) -> SpaceBuilder:
        times = {
            "profile_start_time": Unsigned(start_ns),
            "profile_stop_time": Unsigned(stop_ns or start_ns + 10**9),
        }
        self.plane("Task Environment", **times)
        return self

    def note(
        self, error: str | None = None, warning: str | None = None, hostname: str | None = None
    ) -> SpaceBuilder:
        self.proto.errors.extend([error] if error else [])
        self.proto.warnings.extend([warning] if warning else [])
        self.proto.hostnames.extend([hostname] if hostname else [])
        return self

    def bytes(self) -> bytes:
        return self.proto.SerializeToString()

    def write(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.bytes())
        return path


class PlaneBuilder:
    """One plane: lines of events, and what is known of them all."""

    def __init__(self, proto: Any) -> None:
        self.proto = proto
        self.stats: dict[str, int] = {}
        self.events: dict[tuple[str, str], int] = {}

    def stat(self, **stats: Value) -> PlaneBuilder:
        for name, value in stats.items():
            self.add_stat(self.proto.stats, name, value)
        return self

    def metadata(self, name: str, display: str = "", **stats: Value) -> Any:
        """Metadata of the events of that name, made when first asked for."""
        key = (name, display)
        if key not in self.events:
            number = self.events[key] = len(self.events) + 1
            found = self.proto.event_metadata[number]
            found.id, found.name, found.display_name = number, name, display
            for stat, value in stats.items():
                self.add_stat(found.stats, stat, value)
        return self.proto.event_metadata[self.events[key]]

    def line(self, name: str, timestamp_ns: int = 0, **more: Any) -> LineBuilder:
        number = len(self.proto.lines) + 1
        proto = self.proto.lines.add(id=number, name=name, timestamp_ns=timestamp_ns, **more)
        return LineBuilder(self, proto)

    def stat_id(self, name: str) -> int:
        if name not in self.stats:
            number = self.stats[name] = len(self.stats) + 1
            self.proto.stat_metadata[number].id = number
            self.proto.stat_metadata[number].name = name
        return self.stats[name]

    def add_stat(self, stats: Any, name: str, value: Value) -> None:
        stat = stats.add(metadata_id=self.stat_id(name))
        if isinstance(value, Ref):
            stat.ref_value = self.stat_id(str(value))
        elif isinstance(value, str):
            stat.str_value = value
        elif isinstance(value, bytes):
            stat.bytes_value = value
        elif isinstance(value, float):
            stat.double_value = value
        elif isinstance(value, Unsigned):
            stat.uint64_value = value
        else:
            stat.int64_value = value


class LineBuilder:
    """One line; `event` returns the line again, so that events follow each other."""

    def __init__(self, plane: PlaneBuilder, proto: Any) -> None:
        self.plane = plane
        self.proto = proto

    def event(
        self, name: str, start: float, us: float, display: str = "", **stats: Value
    ) -> LineBuilder:
        one = self.proto.events.add(
            metadata_id=self.plane.metadata(name, display).id,
            offset_ps=round(start * PS),
            duration_ps=round(us * PS),
        )
        for stat, value in stats.items():
            self.plane.add_stat(one.stats, stat, value)
        return self

    def kernel(
        self,
        name: str,
        start: float,
        us: float,
        op: str = "",
        program: str = STEP,
        correlation: int = 0,
        **stats: Value,
    ) -> LineBuilder:
        """A kernel or copy of a GPU, with the stats that CUPTI's collector writes."""
        module, _, number = program.partition("(")
        labels: dict[str, Value] = {}
        if op:
            labels["hlo_op"] = Ref(op)
        if module:
            labels |= {"hlo_module": Ref(module), "program_id": Unsigned(number.rstrip(")"))}
        if correlation:
            labels["correlation_id"] = correlation
        return self.event(name, start, us, **labels, **stats)

    def annotation(self, number: int, start: float, us: float, name: str = "train") -> LineBuilder:
        """A `StepTraceAnnotation`."""
        return self.event(name, start, us, _r=1, step_num=number)

    def launch(self, correlation: int, at: float, us: float = 1) -> LineBuilder:
        return self.event("cuLaunchKernelEx", at, us, correlation_id=correlation)

    def transfer(
        self,
        at: float,
        duration_us: int,
        what: str = "Communication Transport Receive",
        **stats: Any,
    ) -> LineBuilder:
        """A Megascale event, recorded when the transfer ended."""
        return self.event(f"MegaScale: {what}", at, 0, duration_us=duration_us, **stats)


def space() -> SpaceBuilder:
    return SpaceBuilder()


@dataclass
class _DeviceState:
    name: str
    host: int
    at: float = 0.0
    execution: int = -1


class ProfileBuilder:
    """A Profile, event by event; each goes behind the last one on its device.

    A `hidden` event begins that much before the device's work so far ends, on a stream of its
    own, and what comes next waits for it:

        kernel(20)                  ████████████████████
        all_reduce(30, hidden=10)             ██████████████████████████████
                                              hidden    exposed
    """

    def __init__(self, known: bool = True) -> None:
        self.known = known
        self.texts = Texts()
        self.hosts = [Host("host", "host.xplane.pb")]
        self.devices: list[_DeviceState] = []
        self.lanes: list[Lane] = []
        self.rows: dict[str, list[dict[str, Any]]] = {"events": [], "host": [], "transfers": []}
        self.used: dict[str, dict[str, None]] = {}
        self.programs: dict[str, Program] = {}
        self.program = STEP
        self.correlation = 0
        self.warnings: list[ProfileWarning] = []
        self.device("GPU:0").execution_of(STEP)

    def host(self, name: str, **fields: Any) -> ProfileBuilder:
        """What follows belongs to another host."""
        self.hosts.append(Host(name, f"{name}.xplane.pb", **fields))
        return self

    def device(self, name: str) -> ProfileBuilder:
        """What follows runs on that device, from time 0."""
        self.devices.append(_DeviceState(name, len(self.hosts) - 1))
        return self

    def execution_of(self, program: str = STEP) -> ProfileBuilder:
        """What follows is one execution of the program."""
        self.program = program
        self.devices[-1].execution += 1
        return self

    def at(self, us: float) -> ProfileBuilder:
        self.devices[-1].at = us
        return self

    def idle(self, us: float) -> ProfileBuilder:
        return self.at(self.devices[-1].at + us)

    def kernel(
        self,
        op: str,
        us: float,
        name: str = "",
        lane: str = "Stream #14(Compute)",
        instruction: str | None = None,
        hidden: float = 0,
        correlation: int | None = None,
    ) -> ProfileBuilder:
        """A kernel of the instruction `op`; `instruction=""` leaves it unattributed."""
        device = self.devices[-1]
        start = device.at - hidden
        device.at = max(device.at, start + us)
        self.correlation += 1
        found = op if instruction is None else instruction
        if found:
            self.used.setdefault(self.program, {})[found] = None
        row = {
            "start_ps": round(start * PS),
            "duration_ps": round(us * PS),
            "lane": self._lane(lane, "stream"),
            "name": name or re.sub(r"\W", "_", op),
            "op": op,
            "program": self.program,
            "instruction": found,
            "correlation": self.correlation if correlation is None else correlation,
            "execution": device.execution,
        }
        self.rows["events"].append(row)
        return self

    def all_reduce(self, us: float, hidden: float = 0, op: str = "all-reduce.1") -> ProfileBuilder:
        name = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
        return self.kernel(op, us, name, "Stream #20(Communication)", hidden=hidden)

    def copy(self, us: float, hidden: float = 0, name: str = "MemcpyD2H") -> ProfileBuilder:
        return self.kernel("copy-start.1", us, name, f"Stream #30({name})", hidden=hidden)

    def annotation(self, number: int, start: float, us: float) -> ProfileBuilder:
        return self._host_row("train", start, us, step=number, is_step=True)

    def launch(self, correlation: int, at: float, thread: str = "python") -> ProfileBuilder:
        return self._host_row("cuLaunchKernelEx", at, 1, thread, correlation=correlation)

    def host_event(self, name: str, start: float, us: float) -> ProfileBuilder:
        return self._host_row(name, start, us)

    def warn(self, code: str, text: str = "") -> ProfileBuilder:
        self.warnings.append(ProfileWarning(code, text))
        return self

    def with_program(self, name: str, found: Program) -> ProfileBuilder:
        self.programs[name] = found
        return self

    def build(self) -> Profile:
        programs = dict(self.programs)
        if self.known:
            for name, names in self.used.items():
                if name not in programs:
                    programs[name] = program(name, list(names))
        return Profile(
            tuple(self.hosts),
            tuple(
                Device(d.name, d.host, i, "gpu", "NVIDIA H200") for i, d in enumerate(self.devices)
            ),
            tuple(self.lanes),
            self._table("events", EVENT_COLUMNS),
            self._table("host", HOST_COLUMNS),
            self._table("transfers", TRANSFER_COLUMNS),
            Programs({name: lambda found=found: found for name, found in programs.items()}),
            tuple(self.warnings),
        )

    def _host_row(
        self, name: str, start: float, us: float, thread: str = "python", **more: Any
    ) -> ProfileBuilder:
        lane = self._lane(thread, "thread")
        times = {"start_ps": round(start * PS), "duration_ps": round(us * PS)}
        self.rows["host"].append({**times, "lane": lane, "name": name, **more})
        return self

    def _lane(self, name: str, role: str) -> int:
        device = None if role == "thread" else len(self.devices) - 1
        lane = Lane(name, len(self.hosts) - 1, device, role)
        if lane not in self.lanes:
            self.lanes.append(lane)
        return self.lanes.index(lane)

    def _table(self, key: str, columns: tuple[Column, ...]) -> Table:
        rows = self.rows[key]
        arrays = {}
        for column in columns:
            values = [row.get(column.name, "" if column.text else 0) for row in rows]
            if column.text:
                values = [self.texts.index(value) for value in values]
            arrays[column.name] = np.array(values, column.dtype)
        return Table(columns, arrays, self.texts.values)


def profile(known: bool = True) -> ProfileBuilder:
    """A profile of one host and one GPU; `known` says whether it holds its programs."""
    return ProfileBuilder(known)

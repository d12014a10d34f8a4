"""One XPlane file as the Profile of one host: what its planes and lines mean.

/device:GPU:N     one line a stream; kernels and copies carry their instruction's label
/device:TPU:N     `XLA Ops` (nested), `Async XLA Ops`, `XLA Modules`, `Steps`
/host:CPU         threads; XLA:CPU runs its ops there, Megascale reports there
/host:metadata    programs           Task Environment   wall-clock start and stop
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    TRANSFER_COLUMNS,
    Array,
    Table,
    Tags,
    Texts,
    joined,
)
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning, Programs
from slipstream.sources.xplane.cpu_launches import with_launches
from slipstream.sources.xplane.reader import (
    DecodedEvents,
    StatColumns,
    XLine,
    XPlane,
    XSpace,
    decode,
)

if TYPE_CHECKING:
    from slipstream.profile.program import Program

ABSOLUTE_NS = 10**15
"""line timestamps beyond this are wall-clock times, not times since the profile began"""

_TPU_ROLES = {"XLA Ops": "ops", "Async XLA Ops": "windows", "XLA Modules": "modules"}
_TPU_ROLES |= {"Steps": "steps"}
_SIMULATED_ASYNC = "Async XLA Ops ("
"""a simulation has several asynchronous lines: `Async XLA Ops (DMA)`"""
_CORE = re.compile(r"/device:TPU:\d+")
_DERIVED_LINES = {"CUPTI overhead", "_counters_", "Framework Ops", "Framework Name Scope"}
_DERIVED_LINES |= {"Source code", "Launch Stats", "Source", *_TPU_ROLES}
_CPU_LINES = ("tf_XLA", "XLAEigen", "XLAPjRtCpuClient", "tf_data_private_threadpool")
_DETAILS = ("kernel_details", "memcpy_details", "memset_details")
_DEVICE_STATS = StatColumns(
    varying=("correlation_id", "run_id"),
    shared=("program_id", "cuda_graph_id", "cuda_graph_node_id"),
    texts={"op": ("hlo_op",), "module": ("hlo_module",), "details": _DETAILS},
)
_TRANSFER_NUMBERS = {
    "source_slice": "dcn_source_slice_id",
    "source_device": "dcn_source_per_slice_device_id",
    "destination_slice": "dcn_destination_slice_id",
    "destination_device": "dcn_destination_per_slice_device_id",
    "chunk": "dcn_chunk",
    "loop_index": "dcn_loop_index",
    "bytes": "payload_size_bytes",
}
_HOST_STATS = StatColumns(
    varying=("correlation_id", "step_num", "_r", "duration_us", *_TRANSFER_NUMBERS.values()),
    texts={"label": ("dcn_label",)},
)
_MARKER_STATS = StatColumns(varying=("step_num",))
_MEGASCALE = "MegaScale:"
_LARGE_PROGRAM = 16 << 20
"""bytes from which on a program is only read on demand"""
_TABLES = {"events": EVENT_COLUMNS, "host": HOST_COLUMNS, "transfers": TRANSFER_COLUMNS}

Progress = Callable[[int], None]


class ProfileBuilder:
    """Collects the devices, lanes and tables of one file."""

    def __init__(self, space: XSpace, progress: Progress | None = None) -> None:
        self.space = space
        self.progress = progress
        self.texts = Texts()
        self.devices: list[Device] = []
        self.lanes: list[Lane] = []
        self.tables: dict[str, list[Table]] = {key: [] for key in _TABLES}
        self.base_ns = _base_ns(space)
        self.has_devices = any(_is_device(plane) for plane in space.planes)
        self.negative = 0
        self.notes: list[ProfileWarning] = []
        self.program_names = _names_by_id(space)
        self.host = _host(space, self.base_ns)
        self.programs = Programs(_program_readers(space, self.host.versions.get("jaxlib_version")))

    def profile(self) -> Profile:
        for plane in self.space.planes:
            if _CORE.fullmatch(plane.name):
                self._read_tpu(plane)
            elif plane.name.startswith("/device:TPU:"):
                self._note_other_core(plane)
            elif _is_device(plane):
                self._read_gpu(plane)
            elif plane.name == "/host:CPU":
                self._read_host(plane)
        events, host_events, transfers = (self._table(key) for key in _TABLES)
        if any(device.kind == "cpu" for device in self.devices):
            events, host_events = with_launches(events, host_events)
        return Profile(
            (self.host,),
            tuple(self.devices),
            tuple(self.lanes),
            events,
            host_events,
            transfers,
            self.programs,
            _notes(self.space) + _negative_note(self.space, self.negative) + tuple(self.notes),
        )

    def _read_gpu(self, plane: XPlane) -> None:
        streams = tuple(line for line in plane.lines if line.name.startswith("Stream #"))
        lines = streams or tuple(line for line in plane.lines if line.name not in _DERIVED_LINES)
        model = str(plane.stats.get("gpu_device_name", ""))
        self._add_device(plane, "gpu", model or _vendor(plane))
        found = self._decode(plane, lines, _DEVICE_STATS)
        names = self.texts.map([m.name for m in plane.events])
        self._add_events(plane, lines, found, names[found.metadata], "stream")

    def _read_tpu(self, plane: XPlane) -> None:
        self._add_device(plane, "tpu", str(plane.stats.get("device_type_string", "TPU")))
        for line in plane.lines:
            is_simulated = line.name.startswith(_SIMULATED_ASYNC)
            role = "async" if is_simulated else _TPU_ROLES.get(line.name)
            if role in ("ops", "async", "windows"):
                found = self._decode(plane, (line,), _DEVICE_STATS)
                names = self.texts.map([m.display_name or m.name for m in plane.events])
                self._add_events(plane, (line,), found, names[found.metadata], role)
            elif role is not None:
                self._add_markers(plane, line, role)

    def _note_other_core(self, plane: XPlane) -> None:
        """SparseCores have planes of their own; the TensorCore's has the waits for them."""
        count = sum(line.count for line in plane.lines if line.name.endswith("Ops"))
        if count:
            name = plane.name.removeprefix("/device:")
            text = f"{self.space.path.name}: {count} operations of {name} are not counted"
            self.notes.append(ProfileWarning("other-cores", text))

    def _read_host(self, plane: XPlane) -> None:
        if plane.has_stat("hlo_op") and not self.has_devices:
            self._read_cpu_ops(plane)
        found = self._decode(plane, plane.lines, _HOST_STATS)
        first = len(self.lanes)
        self.lanes += [Lane(line.name, 0, None, "thread") for line in plane.lines]
        names = self.texts.map([m.name for m in plane.events])[found.metadata]
        is_transfer = np.array([m.name.startswith(_MEGASCALE) for m in plane.events])
        rows = is_transfer[found.metadata][found.tag]
        self._add_host_events(found, first, names, ~rows)
        if rows.any():
            self._add_transfers(found, first, names, rows)

    def _read_cpu_ops(self, plane: XPlane) -> None:
        """XLA:CPU has no device plane: ops are host events that carry an `hlo_op`."""
        found = self._decode(plane, plane.lines, _DEVICE_STATS)
        rows = found.has("op")[found.tag]
        if not rows.any():
            return
        self._add_device(plane, "cpu", "XLA:CPU")
        names = self.texts.map([m.name for m in plane.events])
        self._add_events(plane, plane.lines, found, names[found.metadata], "ops", rows)

    def _add_device(self, plane: XPlane, kind: str, model: str) -> None:
        name = "CPU:0" if kind == "cpu" else plane.name.removeprefix("/device:")
        ordinal = re.search(r":(\d+)", name)
        properties = {} if kind == "cpu" else plane.stats
        self.devices.append(
            Device(name, 0, int(ordinal.group(1)) if ordinal else 0, kind, model, properties)
        )

    def _decode(self, plane: XPlane, lines: tuple[XLine, ...], stats: StatColumns) -> DecodedEvents:
        return decode(
            self.space,
            plane,
            lines,
            stats,
            self.texts,
            base_ns=self.base_ns,
            progress=self.progress,
            meanwhile=self._read_program,
        )

    def _read_program(self) -> None:
        """Read the largest program: nearly every analysis needs it."""
        sizes = {name: length for name, (_, length) in self.space.programs.items()}
        largest = max(sizes, key=lambda name: sizes[name], default=None)
        if largest is not None and sizes[largest] < _LARGE_PROGRAM:
            # If it can't be read, whoever needs it gets the error.
            with suppress(BadInput):
                self.programs[largest]

    def _add_events(
        self,
        plane: XPlane,
        lines: tuple[XLine, ...],
        found: DecodedEvents,
        names: Array,
        role: str,
        rows: Array | None = None,
    ) -> None:
        first = len(self.lanes)
        device = len(self.devices) - 1
        # TPUs and CPUs have runs of the program where GPUs have launches.
        launch = "correlation_id" if role == "stream" else "run_id"
        self.lanes += [Lane(line.name, 0, device, role) for line in lines]
        tagged = {
            "lane": found.line + np.int32(first),
            "name": names,
            "op": self._ops(plane, found, role, names),
            "program": self._programs(plane, found),
            "details": found.texts.get("details", _zeros(found, np.int32)),
            "graph": found.shared.get("cuda_graph_id", _zeros(found, np.int64)),
            "graph_node": _graph_nodes(found),
            "instruction": _zeros(found, np.int32),
            "execution": _zeros(found, np.int32),
        }
        columns = {"start_ps": found.start_ps, "duration_ps": found.duration_ps}
        columns["correlation"] = found.number(launch)
        self._add("events", found, rows, tagged, columns)

    def _add(
        self,
        key: str,
        found: DecodedEvents,
        rows: Array | None,
        tagged: dict[str, Array],
        columns: dict[str, Array],
    ) -> None:
        """Add rows to a table, all or those selected."""
        whole = Table(_TABLES[key], columns, self.texts.values, Tags(found.tag, tagged))
        self.tables[key].append(whole if rows is None else whole.take(rows))

    def _ops(self, plane: XPlane, found: DecodedEvents, role: str, names: Array) -> Array:
        """Labels: a TPU plane has them in its metadata, or the event's name is the label."""
        stated = [str(m.stats.get("hlo_op", "")) for m in plane.events]
        if not any(stated) and role != "stream":
            stated = [_instruction_name(m.display_name or m.name) for m in plane.events]
        own = self._own_or_shared(found, "op", found.texts.get("op"), stated)
        if role != "windows":
            return own
        # The events' `hlo_op` is the done; the text of the metadata is the start's.
        starts = [_instruction_name(m.name) if " = " in m.name else "" for m in plane.events]
        start = self.texts.map(starts)[found.metadata]
        return np.where(start, start, own)

    def _programs(self, plane: XPlane, found: DecodedEvents) -> Array:
        """`name(id)` of each event's program: by its id, or by its module's name if unknown."""
        shared = [self._program_name(m.stats.get("program_id")) for m in plane.events]
        own = self._own_programs(found) if found.any("program_id") else None
        return self._own_or_shared(found, "program_id", own, shared)

    def _program_name(self, program_id: int | float | str | None) -> str:
        known = isinstance(program_id, int)
        return self.program_names.get(_int64(program_id), "") if known else ""  # type: ignore[arg-type]

    def _own_or_shared(
        self, found: DecodedEvents, stat: str, own: Array | None, shared: list[str]
    ) -> Array:
        """Texts of the events themselves, else those that all events of their name share."""
        if not any(shared):
            return _zeros(found, np.int32) if own is None else own
        of_name = self.texts.map(shared)[found.metadata]
        return of_name if own is None else np.where(found.has(stat), own, of_name)

    def _own_programs(self, found: DecodedEvents) -> Array:
        ids = found.shared["program_id"]
        modules = found.texts.get("module", _zeros(found, np.int32))
        named = []
        for program_id, module in zip(ids.tolist(), modules.tolist(), strict=True):
            stated = self.texts.values[module]
            known = self.program_names.get(program_id, "")
            fits = known and (not stated or known.rpartition("(")[0] == stated)
            named.append(known if fits else f"{stated}({program_id})" if stated else "")
        return self.texts.map(named)

    def _add_markers(self, plane: XPlane, line: XLine, role: str) -> None:
        """Add TPU lines that mark steps and executions of programs."""
        found = self._decode(plane, (line,), _MARKER_STATS)
        lane = len(self.lanes)
        self.lanes.append(Lane(line.name, 0, len(self.devices) - 1, role))
        labels = [m.display_name or m.name for m in plane.events]
        names = self.texts.map(labels)[found.metadata]
        # A TPU's `Steps` line names each event by its step's number.
        of_name = np.array([_step_number(label) for label in labels], np.int64)[found.metadata]
        stated = found.number("step_num")
        numbers = np.where(found.has("step_num")[found.tag], stated, of_name[found.tag])
        is_step = np.full(len(names), role == "steps")
        self._add_host_rows(found, lane, names, numbers, is_step, None)

    def _add_host_events(self, found: DecodedEvents, first: int, names: Array, rows: Array) -> None:
        is_step = found.has("step_num") & found.has("_r")
        self._add_host_rows(found, first, names, found.number("step_num"), is_step, rows)

    def _add_host_rows(
        self,
        found: DecodedEvents,
        lane: int,
        names: Array,
        steps: Array,
        is_step: Array,
        rows: Array | None,
    ) -> None:
        tagged = {"lane": found.line + np.int32(lane), "name": names, "is_step": is_step}
        columns = {"start_ps": found.start_ps, "duration_ps": found.duration_ps}
        columns |= {"correlation": found.number("correlation_id"), "step": steps}
        self._add("host", found, rows, tagged, columns)

    def _add_transfers(self, found: DecodedEvents, first: int, names: Array, rows: Array) -> None:
        ids = [stat for stat in _TRANSFER_NUMBERS.values() if stat.endswith("_id")]
        columns = {column: found.number(stat) for column, stat in _TRANSFER_NUMBERS.items()}
        timed = found.has("duration_us")[found.tag]
        duration = np.where(timed, found.number("duration_us") * 1_000_000, found.duration_ps)
        # The event is recorded when the transfer ends, so its timestamp is the end.
        start = np.where(timed, found.start_ps - duration, found.start_ps)
        columns |= {"start_ps": start, "duration_ps": duration}
        tagged = {
            "lane": found.line + np.int32(first),
            "name": names,
            "label": found.texts.get("label", _zeros(found, np.int32)),
            "has_ids": np.logical_and.reduce([found.has(stat) for stat in ids]),
        }
        self._add("transfers", found, rows, tagged, columns)

    def _table(self, key: str) -> Table:
        parts = self.tables[key]
        if not parts:
            return Table.empty(_TABLES[key], self.texts.values)
        table = joined(parts, self.texts.values)
        durations = table["duration_ps"]
        if len(durations) and durations.min() < 0:
            self.negative += int((durations < 0).sum())
            table = table.replace(duration_ps=np.maximum(durations, 0))
        return table


def to_profile(space: XSpace, progress: Progress | None = None) -> Profile:
    """The Profile of one XPlane file."""
    return ProfileBuilder(space, progress).profile()


def _graph_nodes(found: DecodedEvents) -> Array:
    """Numbers of graph nodes from 1: an id is the graph's in its upper half, then from 0."""
    if "cuda_graph_node_id" not in found.shared:
        return _zeros(found, np.int64)
    number = (found.shared["cuda_graph_node_id"] & 0xFFFFFFFF) + 1
    return np.where(found.has("cuda_graph_node_id"), number, 0)


def _zeros(found: DecodedEvents, dtype: type[np.generic]) -> Array:
    """An empty column of the tags."""
    return np.zeros(len(found.line), dtype)


def _instruction_name(label: str) -> str:
    """`%fusion.3 = bf16[…] fusion(…)`, as TPU planes name ops, is the instruction `fusion.3`."""
    return label.partition(" = ")[0].removeprefix("%")


def _is_device(plane: XPlane) -> bool:
    """Whether a plane is a device; `/device:CUSTOM:` planes hold measurements of other tools."""
    return plane.name.startswith("/device:") and not plane.name.startswith("/device:CUSTOM:")


def _step_number(label: str) -> int:
    return int(label) if label.isdecimal() and len(label) < 19 else 0


def _base_ns(space: XSpace) -> int:
    """What to subtract from line timestamps: 0, unless they are wall-clock times.

    Then times count from where the profile started, as in files with relative timestamps.
    """
    stamps = [line.timestamp_ns for plane in space.planes for line in plane.lines if line.count]
    least = min(stamps, default=0)
    return (_start_ns(space) or least) if least > ABSOLUTE_NS else 0


def _start_ns(space: XSpace) -> int | None:
    """Wall-clock time at which profiling started; None if the file has no plausible one."""
    environment = space.plane("Task Environment")
    start = environment.stats.get("profile_start_time") if environment else None
    return start if isinstance(start, int) and ABSOLUTE_NS < start < 1 << 63 else None


def _names_by_id(space: XSpace) -> dict[int, str]:
    ids = ((_program_id(name), name) for name in space.programs)
    return {_int64(number): name for number, name in ids if number is not None}


def _program_id(name: str) -> int | None:
    """The id in `jit_step(12)`."""
    number = name.rpartition("(")[2].removesuffix(")")
    return int(number) if re.fullmatch(r"-?\d{1,20}", number) else None


def _int64(number: int) -> int:
    """Ids of programs are written as signed or unsigned, depending on the writer."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _program_of(data: bytes, source: str) -> Program:
    """A program in a recording; simulated timelines of HLO text contain the text."""
    from slipstream.sources.hlo.reader import program_from_proto, program_from_text

    if data.startswith(b"HloModule"):
        return program_from_text(data.decode("utf-8", "replace"), source=source)
    return program_from_proto(data, source=source)


def _program_readers(space: XSpace, jaxlib: str | None) -> dict[str, Callable[[], Program]]:
    def read(name: str, offset: int, length: int) -> Program:
        proto = space.data[offset : offset + length].tobytes()
        program = _program_of(proto, f"{space.path}, program {name}")
        return replace(program, program_id=_program_id(name), jaxlib_version=jaxlib)

    return {name: partial(read, name, *place) for name, place in space.programs.items()}


def _host(space: XSpace, base_ns: int) -> Host:
    metadata = space.plane("/host:metadata")
    versions = {
        key: str(value)
        for key, value in (metadata.stats if metadata else {}).items()
        if key.endswith("_version")
    }
    file_name = Path(space.path).name
    name = space.hostnames[0] if space.hostnames else file_name.partition(".xplane")[0]
    return Host(name, str(space.path), versions, _start_ns(space) or base_ns or None)


def _vendor(plane: XPlane) -> str:
    vendor = str(plane.stats.get("device_vendor", ""))
    major, minor = (plane.stats.get(f"compute_cap_{part}") for part in ("major", "minor"))
    return f"{vendor} GPU, compute {major}.{minor}" if vendor and major is not None else vendor


def _notes(space: XSpace) -> tuple[ProfileWarning, ...]:
    """The profiler's own errors and warnings."""
    notes = [
        ProfileWarning("profiler-error", f"{space.path.name}: {text}") for text in space.errors
    ]
    for text in space.warnings:
        dropped = "drop" in text.lower()
        code = "dropped-events" if dropped else "profiler-warning"
        code = "simulated" if text.startswith("simulated: ") else code
        notes.append(ProfileWarning(code, f"{space.path.name}: {text}"))
    return tuple(notes)


def _negative_note(space: XSpace, count: int) -> tuple[ProfileWarning, ...]:
    if not count:
        return ()
    seen = "event ends before it starts" if count == 1 else "events end before they start"
    text = f"{space.path.name}: {count} {seen}; durations below 0 are counted as 0"
    return (ProfileWarning("negative-durations", text),)

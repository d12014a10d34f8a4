"""nsys-jax archives: NVTX ranges projected onto the device, and the programs, in one zip.

An archive has no kernels: each row of its projection is a range, with the time from the first to
the last device operation that it launched. The ranges of instructions become the events here, so
the gaps between an instruction's kernels count as its time.
"""

from __future__ import annotations

import io
import lzma
import re
import zipfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.errors import BadInput, missing_extra
from slipstream.profile.attribution.executions import graph_number
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS, Array, Column, Table, Texts
from slipstream.profile.profile import Device, Host, Lane, Profile, ProfileWarning, Programs
from slipstream.profile.program import Program
from slipstream.reading import damage, open_ranges, too_large, unpack, unpacked_limit
from slipstream.sources.hlo.dumps import Dumps, dump_of
from slipstream.sources.hlo.reader import program_from_proto, program_from_text
from slipstream.sources.nsys.ranges import COMPILE, INSTRUCTION, PROGRAM, RangeLabel, parse_label

_PROJECTION = re.compile(r"(^|/)nvtx_gpu_proj_trace/(?!.*files\.parquet$).*\.parquet(/[^/]+)?$")
_TIMES = ("Projected Start", "Projected Duration", "Orig Start", "Orig Duration")
_NUMBERS = (*_TIMES, "PID", "TID", "NumGPUOps", "RangeId", "ParentId")
_EXPECTED = "an nsys-jax archive"
_LARGEST = 1 << 53
"""numbers up to which floating point is exact; as nanoseconds, 104 days"""
_NONE = -1 << 60
"""stands for a number that is missing"""
_MOST_LANES = 512
"""device operations at one time that are believed"""
_CELL_BYTES = 16
"""bytes of memory for a value of a table, about"""
_COLLECTIVE = re.compile(r"(all-|ragged-all|reduce-scatter|collective-|send|recv)")
_VERSIONS = {"NvDriverVersion": "driver_version", "CudaDriverVersion": "cuda_driver_version"}


def read_archive(path: Path, dumps: Dumps | None = None) -> list[Profile]:
    """The Profiles of an archive, one for each process."""
    with _damaged(path):
        with open_ranges(path, _EXPECTED) as file, zipfile.ZipFile(file) as archive:
            names = [name for name in archive.namelist() if _PROJECTION.search(name)]
            if not names:
                raise BadInput(
                    f"{path} is not an nsys-jax archive: it contains no nvtx_gpu_proj_trace; "
                    "make one with: nsys-jax -o profile.zip -- python train.py"
                )
            own = Dumps.of(_dumps(path, archive.namelist()), str(path))
            machine = _Machine.of(archive, path)
            tables = [_projection(archive, path, name) for name in names]
        parts = [part for table in tables for part in _by_process(table)]
        if not parts:
            raise BadInput(
                f"{path}, {names[0]} has no rows: nothing ran on a device while it was recorded"
            )
        readers = [_Reader(path, part, machine, dumps or own, len(parts) > 1) for part in parts]
        return [reader.profile() for reader in readers]


def _damaged(path: Path, member: str = "") -> AbstractContextManager[None]:
    """Turns what the libraries raise on damaged archives into BadInput."""
    source = f"{path}, {member}" if member else path
    return damage(source, "an nsys-jax archive", (zipfile.BadZipFile, lzma.LZMAError))


def _dumps(path: Path, names: list[str]) -> Iterator[Any]:
    for name in names:
        dump = dump_of(name, partial(_read_program, path, name))
        if dump is not None:
            yield dump


def _read_program(path: Path, name: str) -> Program:
    with (
        _damaged(path, name),
        open_ranges(path, _EXPECTED) as file,
        zipfile.ZipFile(file) as archive,
    ):
        data = _member(archive, path, name)
        if name.endswith((".xz", ".gz")):
            data = unpack(io.BytesIO(data), f"{path}, {name}")
        return _program(data)


def _member(archive: zipfile.ZipFile, path: Path, name: str) -> bytes:
    """A file of the archive, if it is not too large."""
    info = archive.getinfo(name)
    # No more is unpacked than the size that the archive states.
    if info.file_size > (limit := unpacked_limit(info.compress_size)):
        raise too_large(f"{path}, {name}", info.compress_size, limit)
    return archive.read(name)


@lru_cache(maxsize=32)
def _program(data: bytes) -> Program:
    """Parse a program once: all processes of a run dump the same ones."""
    if data.startswith(b"HloModule"):
        return program_from_text(data.decode("utf-8", "replace"), source="a dump in the archive")
    return program_from_proto(data, source="a dump in the archive")


Columns = dict[str, Array]


def _read_table(archive: zipfile.ZipFile, path: Path, name: str, wanted: list[str]) -> Columns:
    """Columns of a Parquet file in the archive; missing ones are left out."""
    try:
        import pyarrow
        import pyarrow.parquet as parquet
    except ImportError:
        raise missing_extra("pyarrow", "parquet", "reading nsys-jax archives") from None
    data = _member(archive, path, name)
    with damage(f"{path}, {name}", "a Parquet table", (pyarrow.ArrowException,)):
        file = parquet.ParquetFile(io.BytesIO(data))
        names = [one for one in wanted if one in file.schema_arrow.names]
        # Parquet can state millions of equal values in a few bytes.
        limit = unpacked_limit(len(data))
        if file.metadata.num_rows * max(len(names), 1) * _CELL_BYTES > limit:
            raise too_large(f"{path}, {name}", len(data), limit)
        table = file.read(columns=names)
        return {one: table.column(one).to_numpy(zero_copy_only=False) for one in names}


def _projection(archive: zipfile.ZipFile, path: Path, name: str) -> Columns:
    """The table of ranges: texts or None, and integers."""
    table = _read_table(archive, path, name, ["Name", *_NUMBERS])
    for column in ("Name", *_NUMBERS):
        if column not in table:
            raise BadInput(
                f"{path}, {name} has no column {column!r}; record it again with nsys-jax"
            )
        if column != "Name":
            with damage(f"{path}, {name}, column {column!r}", "numbers"):
                table[column] = _integers(table[column])
    return table


def _integers(values: Array) -> Array:
    """Numbers as integers, `_NONE` where they are missing; ValueError for anything else."""
    if values.dtype.kind not in "iuf":
        raise ValueError(f"values of the type {values.dtype}")
    missing = np.isnan(values)
    values = np.where(missing, 0, values)
    if len(values) and np.abs(values).max() > _LARGEST:
        raise ValueError(f"{values[np.argmax(np.abs(values))]}")
    return np.where(missing, _NONE, values.astype(np.int64))


def _by_process(table: Columns) -> list[Columns]:
    if not len(table["Name"]):
        return []
    processes = np.unique(table["PID"])
    return [{k: c[table["PID"] == one] for k, c in table.items()} for one in processes.tolist()]


@dataclass(frozen=True)
class _Machine:
    """The machine that was profiled."""

    name: str
    versions: dict[str, str]
    models: dict[int, str]
    threads: dict[int, str]

    @classmethod
    def of(cls, archive: zipfile.ZipFile, path: Path) -> _Machine:
        said = dict(_pairs(archive, path, "system-metadata.parquet", "name", "value"))
        models = _pairs(archive, path, "device-metadata.parquet", "cuDevice", _MODEL)
        threads = _pairs(archive, path, "thread-metadata.parquet", "TID", "Name")
        versions = {ours: str(said[key]) for key, ours in _VERSIONS.items() if said.get(key)}
        name = str(said.get("Hostname") or path.stem)
        return cls(
            name,
            versions,
            {k: str(v) for k, v in models if isinstance(k, int)},
            {k: str(v) for k, v in threads if isinstance(k, int)},
        )


_MODEL = "('TARGET_INFO_GPU', 'name')"


def _pairs(
    archive: zipfile.ZipFile, path: Path, file: str, key: str, value: str
) -> list[tuple[Any, Any]]:
    """Pairs from two columns of a table, if the archive has both."""
    found: list[tuple[Any, Any]] = []
    for name in archive.namelist():
        if name == file or name.startswith(f"{file}/"):
            table = _read_table(archive, path, name, [key, value])
            if key in table and value in table:
                found += zip(table[key].tolist(), table[value].tolist(), strict=True)
    return found


class _Reader:
    """Reads one process of an archive."""

    def __init__(
        self, path: Path, table: Columns, machine: _Machine, dumps: Dumps, several: bool
    ) -> None:
        self.path, self.machine, self.dumps = path, machine, dumps
        known = np.array([isinstance(text, str) for text in table["Name"].tolist()], bool)
        self.outside = int(np.maximum(table["NumGPUOps"][~known], 0).sum())
        table = {key: column[known] for key, column in table.items()}
        order = np.argsort(table["RangeId"], kind="stable")
        self.table = {key: column[order] for key, column in table.items()}
        self.pid = int(table["PID"][0]) if len(order) else 0
        self.name = f"{machine.name}/{self.pid}" if several or machine.name else str(self.pid)
        self.texts = Texts()
        self.labels: list[RangeLabel] = [parse_label(text) for text in self.table["Name"].tolist()]
        self.rows, self.programs = self._instructions()

    def profile(self) -> Profile:
        threads, thread = np.unique(self.table["TID"], return_inverse=True)
        ordinals = sorted(self.machine.models) or [0]
        devices = [Device(f"GPU:{one}", 0, one, "gpu", self._model(one)) for one in ordinals[:1]]
        known, warnings_of_dumps = self._known_programs()
        lanes, lane = self._lanes(known)
        found = [Lane(f"{self._thread(one)}/{one}", 0, None, "thread") for one in threads.tolist()]
        return Profile(
            (Host(self.name, str(self.path), self.machine.versions),),
            tuple(devices),
            (*lanes, *found),
            self._events(lane),
            self._host_events(thread + len(lanes)),
            programs=known,
            warnings=(*warnings_of_dumps, *self._warnings(len(ordinals))),
        )

    def _model(self, ordinal: int) -> str:
        return self.machine.models.get(ordinal, "")

    def _thread(self, thread: int) -> str:
        return self.machine.threads.get(thread) or "thread"

    def _instructions(self) -> tuple[Array, list[str]]:
        """Rows of innermost instructions, and the program of each."""
        place = {one: row for row, one in enumerate(self.table["RangeId"].tolist())}
        parents = [place.get(p, -1) for p in self.table["ParentId"].tolist()]
        # None while XLA compiles; parents come before their children.
        program: list[str | None] = []
        inner = np.zeros(len(parents), bool)
        for row, (parent, label) in enumerate(zip(parents, self.labels, strict=True)):
            above = program[parent] if 0 <= parent < row else ""
            if above is not None and label.kind in (PROGRAM, COMPILE):
                above = label.name if label.kind == PROGRAM else None
            program.append(above)
            inner[row] = label.kind == INSTRUCTION and above is not None
        holds = [p for row, p in enumerate(parents) if p >= 0 and inner[row]]
        inner[holds] = False
        rows = np.flatnonzero(inner)
        return rows, [program[row] or "" for row in rows.tolist()]

    def _known_programs(self) -> tuple[Programs, tuple[ProfileWarning, ...]]:
        names = dict.fromkeys(name for name in self.programs if name)
        names |= {x.name: None for x in self.labels if x.kind == COMPILE and x.name}
        graphs = self._graph_programs()
        return self.dumps.programs([name for name in names if name not in graphs])

    def _graph_programs(self) -> set[str]:
        """Programs with CUDA graphs, whose kernels the projection does not list."""
        pairs = zip(self._names(), self.programs, strict=True)
        return {program for label, program in pairs if graph_number(label) is not None}

    def _names(self) -> list[str]:
        return [self.labels[row].name for row in self.rows.tolist()]

    def _lanes(self, known: Programs) -> tuple[list[Lane], Array]:
        """Streams are not recorded: make as many lanes as it takes for no two events to overlap."""
        keys = list(zip(self.programs, self._names(), strict=True))
        kinds = {
            key: "Communication" if _is_collective(*key, known) else "Compute" for key in set(keys)
        }
        starts, durations = self._span("Projected Start", "Projected Duration", self.rows)
        ends = (starts + durations).tolist()
        free: dict[str, list[int]] = {"Compute": [], "Communication": []}
        lane: list[tuple[str, int]] = [("", 0)] * len(keys)
        for row in np.argsort(starts, kind="stable").tolist():
            kind, start = kinds[keys[row]], int(starts[row])
            busy = free[kind]
            first = next((i for i, until in enumerate(busy) if until <= start), len(busy))
            if first >= _MOST_LANES:
                raise BadInput(
                    f"{self.path} is damaged: more than {_MOST_LANES} instructions run at "
                    f"{start} ns; record it again"
                )
            busy[first : first + 1] = [ends[row]]
            lane[row] = (kind, first)
        made = sorted(set(lane), key=lambda one: (one[0] != "Compute", one[1]))
        titles = [f"{kind} {n + 1}" if n else kind for kind, n in made]
        place = {one: i for i, one in enumerate(made)}
        numbers = np.array([place[one] for one in lane], np.int32)
        return [Lane(title, 0, 0) for title in titles], numbers

    def _events(self, lane: Array) -> Table:
        rows = self.rows
        names = self.texts.map(self._names())
        counts = self.table["NumGPUOps"][rows].tolist()
        nothing = np.zeros(len(rows), np.int32)
        columns = {
            **self._times("Projected Start", "Projected Duration", rows),
            "lane": lane,
            "name": names,
            "op": names,
            "program": self.texts.map(self.programs),
            "details": self.texts.map([f"device operations:{count}" for count in counts]),
            # Ranges are numbered in the order they opened, which is launch order.
            "correlation": self.table["RangeId"][rows],
            "graph": nothing,
            "graph_node": nothing,
            "instruction": nothing,
            "execution": nothing,
        }
        return _table(EVENT_COLUMNS, columns, self.texts)

    def _host_events(self, lane: Array) -> Table:
        rows = np.arange(len(self.labels))
        steps = [label.step for label in self.labels]
        columns = {
            **self._times("Orig Start", "Orig Duration", rows),
            "lane": lane,
            "name": self.texts.map(self.table["Name"].tolist()),
            "correlation": self.table["RangeId"],
            "step": np.array([step or 0 for step in steps], np.int64),
            "is_step": np.array([step is not None for step in steps], bool),
        }
        return _table(HOST_COLUMNS, columns, self.texts)

    def _times(self, start: str, duration: str, rows: Array) -> Columns:
        begin, length = self._span(start, duration, rows)
        return {"start_ps": begin * 1000, "duration_ps": length * 1000}

    def _span(self, start: str, duration: str, rows: Array) -> tuple[Array, Array]:
        """Starts and durations in nanoseconds; 0 where they are missing."""
        begin, length = self.table[start][rows], self.table[duration][rows]
        return np.where(begin == _NONE, 0, begin), np.maximum(length, 0)

    def _warnings(self, devices: int) -> Iterator[ProfileWarning]:
        name = self.path.name
        if self._graph_programs():
            yield ProfileWarning(
                "whole-graphs",
                f"{name} has one time for each CUDA graph, so the kernels in them are unknown; "
                "read the .sqlite export of the report instead",
            )
        inside = int(np.maximum(self.table["NumGPUOps"][self.rows], 0).sum())
        if self.outside > 0.005 * (inside + self.outside):
            yield ProfileWarning(
                "no-launch",
                f"{name}: {self.outside} device operations were launched outside any range and are "
                f"not counted; XLA's instructions launched {inside}",
            )
        if devices > 1:
            yield ProfileWarning(
                "one-device",
                f"{name} is from a process with {devices} GPUs but does not say which ran what: "
                "they are shown as one; read the .sqlite export of the report instead",
            )


def _is_collective(program: str, label: str, known: Programs) -> bool:
    if program not in known or label not in known[program]:
        return _COLLECTIVE.match(label) is not None
    found = known[program].instruction(label)
    start = known[program].starter(label)
    return any(one is not None and one.collective is not None for one in (found, start))


def _table(columns: tuple[Column, ...], arrays: Columns, texts: Texts) -> Table:
    typed = {c.name: arrays[c.name].astype(c.dtype, copy=False) for c in columns}
    return Table(columns, typed, texts.values)

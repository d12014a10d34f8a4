"""Nsight Systems exports of what a recording holds, as several releases would write them.

Every launch becomes a CUDA call on a host thread, inside the NVTX ranges that XLA opens around it:

    step 3 › XlaModule:#hlo_module=jit_step,program_id=7# › Thunk:#hlo_op=dot.3# › cuLaunchKernel
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from slipstream.profile.profile import Profile

DEVICE_NS = 10**12
"""device times begin here, well after the calls"""
_COPY_KINDS = {"MemcpyH2D": 1, "MemcpyD2H": 2, "MemcpyD2D": 8, "MemcpyP2P": 10}
_MEMORY = {"pageable": 0, "pinned": 1, "device": 2}


@dataclass(frozen=True)
class Form:
    """How a release of nsys and of XLA write things."""

    name: str
    integer: str
    registered: bool
    """whether a range's text is an index into StringIds"""
    prefix: str = ""
    unique_ids: bool = False
    extra: dict[str, str] = field(default_factory=dict)
    """columns that later releases added, by table"""
    has_session: bool = True


OLD = Form("2022", "INT NOT NULL", registered=False, has_session=False)
CURRENT = Form(
    "2024",
    "INTEGER",
    registered=True,
    prefix="TSL:",
    extra={"KERNEL": "greenContextId", "MEMCPY": "greenContextId", "NVTX": "jsonTextId"},
)
NEWEST = Form(
    "2026",
    "INTEGER",
    registered=True,
    unique_ids=True,
    extra={"KERNEL": "greenContextId, graphId", "NVTX": "jsonTextId", "MEMSET": "memKind"},
)
FORMS = (OLD, CURRENT, NEWEST)

_COMMON = "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphNodeId"
_TABLES = {
    "KERNEL": f"{_COMMON}, demangledName, shortName, registersPerThread, gridX, gridY, gridZ, "
    "blockX, blockY, blockZ, staticSharedMemory, dynamicSharedMemory",
    "MEMCPY": f"{_COMMON}, bytes, copyKind, srcKind, dstKind",
    "MEMSET": f"{_COMMON}, value, bytes",
    "GRAPH_TRACE": "start, end, deviceId, contextId, streamId, correlationId, globalPid, graphId",
    "RUNTIME": "start, end, eventClass, globalTid, correlationId, nameId, returnValue",
    "NVTX": "start, end, eventType, globalTid, textId, domainId",
}
_FULL_NAMES = {"NVTX": "NVTX_EVENTS"}


class ExportBuilder:
    """An export; what is added goes to the file when `write` is called."""

    def __init__(self, form: Form = CURRENT) -> None:
        self.form = form
        self.strings: dict[str, int] = {}
        self.rows: dict[str, list[dict[str, Any]]] = {table: [] for table in _TABLES}
        self.diagnostics: list[tuple[int, str]] = []
        self.now = 1_000_000
        self.unique = 0

    def string(self, text: str) -> int:
        return self.strings.setdefault(text, len(self.strings) + 1)

    def diagnostic(self, severity: int, text: str) -> ExportBuilder:
        self.diagnostics.append((severity, text))
        return self

    def range(self, text: str, start: int, end: int | None, thread: int, kind: int = 59) -> None:
        registered = self.form.registered and kind == 59
        row: dict[str, Any] = {"start": start, "end": end, "eventType": kind, "globalTid": thread}
        row |= {"textId": self.string(text)} if registered else {"text": text}
        self.rows["NVTX"].append(row)

    def call(self, name: str, start: int, end: int, thread: int, correlation: int) -> None:
        self.rows["RUNTIME"].append(
            {
                "start": start,
                "end": end,
                "globalTid": thread,
                "correlationId": correlation,
                "nameId": self.string(f"{name}_v7000"),
            }
        )

    def thunk(self, op: str) -> str:
        self.unique += 1
        unique = f",unique_hlo_op_id={self.unique}" if self.form.unique_ids else ""
        return f"{self.form.prefix}Thunk:#name=jit(f)/a[x=(0,)],hlo_op={op}{unique}#"

    def module(self, program: str) -> str:
        name, _, number = program.removesuffix(")").rpartition("(")
        return f"{self.form.prefix}XlaModule:#prefix=jit(f),hlo_module={name},program_id={number}#"

    def work(self, table: str, **values: Any) -> None:
        self.rows[table].append({"contextId": 1, **values})

    def write(self, path: Path) -> Path:
        integer = self.form.integer
        with sqlite3.connect(path) as db:
            db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
            db.executemany(
                "INSERT INTO StringIds VALUES (?, ?)", [(i, t) for t, i in self.strings.items()]
            )
            db.execute("CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT)")
            db.execute("CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER)")
            db.executemany(
                "INSERT INTO TARGET_INFO_GPU VALUES (?, 'NVIDIA H200', 132)", [(0,), (1,)]
            )
            if self.form.has_session:
                db.execute("CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER)")
                db.execute(
                    "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)"
                )
            if self.diagnostics:
                db.execute("CREATE TABLE DIAGNOSTIC_EVENT (severity INTEGER, text TEXT)")
                db.executemany("INSERT INTO DIAGNOSTIC_EVENT VALUES (?, ?)", self.diagnostics)
            for table, rows in self.rows.items():
                if rows:
                    self._write_table(db, table, rows, integer)
        db.close()
        return path

    def _write_table(
        self, db: sqlite3.Connection, table: str, rows: list[dict[str, Any]], integer: str
    ) -> None:
        extra = self.form.extra.get(table, "")
        columns = [c.strip() for c in f"{_TABLES[table]},{extra}".split(",") if c.strip()]
        declared = [f'"{column}" {integer}' for column in columns]
        if table == "NVTX":
            # The text stands in the middle of a row, before what is needed of it.
            columns.insert(3, "text")
            declared.insert(3, "text TEXT")
        name = _FULL_NAMES.get(table, f"CUPTI_ACTIVITY_KIND_{table}")
        db.execute(f"CREATE TABLE {name} ({', '.join(declared)})")
        # Old exports have no NULL but in texts: what is not there is 0.
        nothing = 0 if "NOT NULL" in integer else None
        fills = [None if column == "text" else nothing for column in columns]
        values = [
            tuple(f if row.get(c) is None else row[c] for c, f in zip(columns, fills, strict=True))
            for row in rows
        ]
        marks = ", ".join("?" * len(columns))
        db.executemany(f"INSERT INTO {name} VALUES ({marks})", values)


@dataclass(frozen=True)
class Process:
    """A process to write a recording as: its number, its device, how many threads launch."""

    pid: int = 4242
    device: int = 0
    threads: int = 1

    @property
    def global_pid(self) -> int:
        return (1 << 48) | (self.pid << 24)

    def thread(self, number: int) -> int:
        return self.global_pid | (self.pid + number % self.threads)


def export_of(
    profile: Profile, form: Form = CURRENT, processes: tuple[Process, ...] = (Process(),)
) -> ExportBuilder:
    """A recording's events as an export, once for each process."""
    builder = ExportBuilder(form)
    for process in processes:
        _add_launches(builder, profile, process)
        _add_work(builder, profile, process)
    return builder


def _add_launches(builder: ExportBuilder, profile: Profile, process: Process) -> None:
    """Ranges and calls: executions in steps, instructions in executions, launches in those."""
    for number, (program, execution) in enumerate(_executions(profile)):
        thread = process.thread(number)
        began = builder.now
        for op, launches in groupby(execution, key=lambda launch: launch[0]):
            opened = builder.now
            for _, correlation, is_graph in launches:
                name = "cuGraphLaunch" if is_graph else "cuLaunchKernelEx"
                builder.call(name, builder.now + 200, builder.now + 500, thread, correlation)
                builder.now += 1000
            if op:
                builder.range(builder.thunk(op), opened, builder.now - 100, thread)
        if program:
            builder.range(builder.module(program), began - 20, builder.now + 100, thread)
            builder.range(f"step {number}", began - 40, builder.now + 200, thread)
        builder.now += 10_000


Launch = tuple[str, int, bool]


def _executions(profile: Profile) -> Iterator[tuple[str, list[Launch]]]:
    """(program, launches in order) of each execution."""
    events = profile.events
    _, rows = np.unique(events["correlation"], return_index=True)
    key = [(events.text("program", row), int(events["execution"][row])) for row in rows.tolist()]
    for (program, _), group in groupby(zip(key, rows.tolist(), strict=True), key=lambda x: x[0]):
        found = [row for _, row in group]
        yield (
            program,
            [
                (
                    events.text("op", row),
                    int(events["correlation"][row]),
                    bool(events["graph"][row]),
                )
                for row in found
            ],
        )


def _add_work(builder: ExportBuilder, profile: Profile, process: Process) -> None:
    events = profile.events
    for row in range(len(events)):
        start = DEVICE_NS + int(events["start_ps"][row]) // 1000
        lane = profile.lanes[int(events["lane"][row])].name
        common = {
            "start": start,
            "end": start + int(events["duration_ps"][row]) // 1000,
            "deviceId": process.device,
            "streamId": int(re.findall(r"#(\d+)", lane)[0]),
            "correlationId": int(events["correlation"][row]),
            "globalPid": process.global_pid,
        }
        graph = int(events["graph"][row])
        if graph:
            common |= {"graphNodeId": (graph << 32) | row, "graphId": graph}
        _add_event(builder, events.text("name", row), events.text("details", row), common)


def _add_event(builder: ExportBuilder, name: str, details: str, common: dict[str, Any]) -> None:
    said = dict(re.findall(r"(\w+):([\w,]+)", details))
    if name in _COPY_KINDS:
        builder.work(
            "MEMCPY",
            **common,
            copyKind=_COPY_KINDS[name],
            bytes=int(said["size"]),
            srcKind=_MEMORY[said["kind_src"]],
            dstKind=_MEMORY[said["kind_dst"]],
        )
    elif name.startswith("Memset"):
        builder.work("MEMSET", **common, value=0, bytes=4)
    else:
        sizes = [*said["grid"].split(","), *said["block"].split(",")]
        columns = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
        builder.work(
            "KERNEL",
            **common,
            demangledName=builder.string(name),
            shortName=builder.string(name.partition("<")[0]),
            registersPerThread=int(said["regs"]),
            staticSharedMemory=int(said["static_shared"]),
            dynamicSharedMemory=int(said["dynamic_shared"]),
            **dict(zip(columns, map(int, sizes), strict=True)),
        )


def write_dumps(folder: Path, protos: dict[str, bytes]) -> Path:
    """Programs by `name(id)` as XLA dumps them."""
    folder.mkdir(exist_ok=True)
    for program, proto in protos.items():
        name, _, number = program.removesuffix(")").rpartition("(")
        file = f"module_{int(number):04d}.{name}.sm_9.0_gpu_after_optimizations.hlo.pb"
        (folder / file).write_bytes(proto)
    return folder

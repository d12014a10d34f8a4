"""Nsight Systems: a report's SQLite export as the Profile of its processes.

Each process is a host of the profile. Device work is attributed to instructions by the NVTX ranges
around the call that launched it (see `ranges`); programs come from XLA's dumps.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.errors import BadInput, Missing
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS, Array, Column, Table, Texts
from slipstream.profile.profile import Device, Lane, Profile, ProfileWarning, Programs
from slipstream.reading import DAMAGE, describe
from slipstream.sources.hlo.dumps import Dumps
from slipstream.sources.nsys.device_work import DeviceWork, read_device_work
from slipstream.sources.nsys.machine import ProfiledMachine, diagnostics
from slipstream.sources.nsys.ranges import (
    COMPILE,
    INSTRUCTION,
    NO_RANGE,
    PROCESS,
    PROGRAM,
    Launches,
    RangeLabel,
    Spans,
    enclosing,
    parse_label,
)
from slipstream.sources.nsys.tables import Export

_PUSH_POP, _START_END = (59, 70), (60, 71)
_CALLS = {"start": 0, "end": 0, "globalTid": 0, "correlationId": 0, "nameId": -1}
_RANGES = {"start": 0, "end": -1, "eventType": 59, "globalTid": 0, "textId": -1}
_DAMAGE: tuple[type[Exception], ...] = (*DAMAGE, sqlite3.Error)
_LONGEST_NS = (1 << 63) // 1000 - 1
"""106 days, which is as far as 64 bits of picoseconds reach"""
_UNLAUNCHED_SHARE = 0.005
"""share of device time without a recorded launch above which there is a warning"""


def read_export(path: Path, dumps: Dumps, source: Path | None = None) -> Profile:
    """The Profile of an export; `source` is the file the user named, if `path` is temporary."""
    with closing(Export(path, source)) as export:
        if not any(export.has(table) for table in ("StringIds", "META_DATA_EXPORT")):
            raise BadInput(
                f"{source or path} is a SQLite file but not an Nsight Systems export: it has no "
                "StringIds; make one with: nsys export --type sqlite report.nsys-rep"
            )
        try:
            return _Reader(export, source or path, dumps).profile()
        except _DAMAGE as error:
            raise export.damaged(f"content that can't be read ({describe(error)})") from error


@contextmanager
def exported(report: Path) -> Iterator[Path]:
    """A temporary SQLite export of a report, made by the `nsys` on the PATH."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise Missing(
            f"only Nsight Systems itself can open {report}, and nsys is not on the PATH; where it "
            f"is installed, run: nsys export --type sqlite {report.name} "
            "and read the .sqlite file that it writes"
        )
    with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
        made = Path(folder) / f"{report.stem}.sqlite"
        command = (nsys, "export", "--type", "sqlite", "--output", str(made), os.fspath(report))
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not made.exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["no output"]
            raise BadInput(
                f"nsys export could not read {report} ({said[0]}); nsys reads reports of its own "
                "and older versions: try the nsys that recorded it"
            )
        yield made


@dataclass(frozen=True)
class _Joined:
    """What launched each piece of device work."""

    process: Array
    call: Array
    """row of the call that launched it; -1 if that was not recorded"""
    op: Array
    program: Array


class _Reader:
    """Reads one export."""

    def __init__(self, export: Export, source: Path, dumps: Dumps) -> None:
        self.export, self.source, self.dumps = export, source, dumps
        self.texts = Texts()
        self.work = read_device_work(export, self.texts)
        self._read_calls()
        self._read_ranges()
        self._number_threads()
        self.machine = ProfiledMachine.of(export, source, self._first_ns())
        self._check_times()

    def _read_calls(self) -> None:
        rows = self.export.read("CUPTI_ACTIVITY_KIND_RUNTIME", _CALLS)
        self.calls = rows
        name, distinct = _numbered(rows["nameId"])
        strings = self.export.strings(distinct)
        names = [_plain_name(strings.get(one, "")) for one in distinct.tolist()]
        self.call_names = self.texts.map(names)[name] if len(name) else name

    def _read_ranges(self) -> None:
        rows = self.export.read("NVTX_EVENTS", _RANGES, ("text",))
        kept = _is_one_of(rows["eventType"], (*_PUSH_POP, *_START_END))
        which = slice(None) if kept.all() else np.flatnonzero(kept)
        columns = {name: rows[name][which] for name in (*_RANGES, "text")}
        registered, distinct = _numbered(columns["textId"])
        strings = self.export.strings(distinct)
        self.label_texts = [strings.get(one, "") for one in distinct.tolist()]
        written = rows.texts["text"]
        self.range_labels = registered
        if written:
            # No text, or an empty one, means that the text is a registered string.
            is_text = np.array([bool(text) for text in (*written, "")], bool)[columns["text"]]
            label = np.where(is_text, columns["text"] + len(self.label_texts), registered)
            self.range_labels = label.astype(np.int32)
        self.label_texts += written
        self.labels: list[RangeLabel] = [parse_label(text) for text in self.label_texts]
        self.ranges = columns
        open_ = columns["end"] < columns["start"]
        if open_.any():
            # A range still open when the recording ended lasts until then.
            both = [a.max() for a in (columns["end"], self.calls["end"]) if len(a)]
            end = np.where(open_, max(both), columns["end"])
            columns["end"] = np.maximum(end, columns["start"])

    def _number_threads(self) -> None:
        """Number the threads and processes of all tables."""
        call, of_calls = _numbered(self.calls["globalTid"])
        range_, of_ranges = _numbered(self.ranges["globalTid"])
        threads = np.unique(np.concatenate((of_calls, of_ranges)))
        self.call_thread = np.searchsorted(threads, of_calls).astype(np.int32)[call]
        self.range_thread = np.searchsorted(threads, of_ranges).astype(np.int32)[range_]
        self.threads = threads
        parts = [np.unique(part.process) for part in self.work]
        busy = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        # Processes without device work come last.
        idle = np.setdiff1d(np.unique(threads & PROCESS), busy)
        self.processes = np.concatenate((busy, idle))
        self.process_number = {int(one): i for i, one in enumerate(self.processes)}
        self.process_of_thread = np.array(
            [self.process_number[one] for one in (threads & PROCESS).tolist()], np.int32
        )

    def _first_ns(self) -> int:
        columns = [part.start_ns for part in self.work]
        columns += [self.calls["start"], self.ranges["start"]]
        return min((int(column.min()) for column in columns if len(column)), default=0)

    def _check_times(self) -> None:
        """Refuse times so far apart that differences would not fit into 64 bits."""
        starts = [part.start_ns for part in self.work]
        starts += [self.calls["start"], self.ranges["start"]]
        ends = [part.end_ns for part in self.work] + [self.calls["end"], self.ranges["end"]]
        latest = max((int(column.max()) for column in starts + ends if len(column)), default=0)
        first = min(self._first_ns(), self.machine.base_ns)
        if latest - first > _LONGEST_NS:
            raise BadInput(
                f"{self.source} is damaged: it has times of {first} and of {latest} ns, expected "
                "less than 106 days between them; export it again with: "
                "nsys export --type sqlite report.nsys-rep"
            )

    def profile(self) -> Profile:
        self._join()
        programs, warnings_of_dumps = self._programs()
        devices, lanes, lane_parts = self._places()
        threads = self.machine.thread_lanes(self.threads, self.process_of_thread)
        events = self._events(lane_parts)
        host_events = self._host_events(len(lanes))
        warnings = (*diagnostics(self.export, self.source), *warnings_of_dumps, *self._warnings())
        return Profile(
            self.machine.hosts(self.processes),
            devices,
            (*lanes, *threads),
            events,
            host_events,
            programs=programs,
            warnings=warnings,
        )

    def _join(self) -> None:
        """Find the instruction and program of all device work, by the call that launched it."""
        nested = _is_one_of(self.ranges["eventType"], _PUSH_POP)
        rows = slice(None) if nested.all() else np.flatnonzero(nested)
        ranges = Spans(
            self.ranges["start"][rows],
            self.ranges["end"][rows],
            self.range_thread[rows],
            self.range_labels[rows],
        )
        calls = Spans(self.calls["start"], self.calls["end"], self.call_thread, self.call_names)
        kinds = [label.kind for label in self.labels]
        op, program = enclosing(ranges, calls, kinds, len(self.threads))
        ops = self._texts_of(INSTRUCTION)
        programs = self._texts_of(PROGRAM)
        process = self.process_of_thread[self.call_thread]
        launches = Launches(process, self.calls["correlationId"], len(self.processes))
        self.launching = np.zeros(len(op), bool)
        self.joined: list[_Joined] = []
        for part in self.work:
            number, distinct = _numbered(part.process)
            numbers = [self.process_number[one] for one in distinct.tolist()]
            own = np.array(numbers, np.int32)[number]
            call = launches.find(own, part.correlation)
            if len(op):
                self.launching[call[call >= 0]] = True
            found = (ops[_taken(op, call)], programs[_taken(program, call)])
            self.joined.append(_Joined(own, call, *found))

    def _texts_of(self, kind: int) -> Array:
        """Text of each label of a kind; 0 for other labels and, at the end, for no label."""
        names = [label.name if label.kind == kind else "" for label in self.labels]
        return np.append(self.texts.map(names), [0, 0]).astype(np.int32)

    def _programs(self) -> tuple[Programs, tuple[ProfileWarning, ...]]:
        """Programs that ran or were compiled, as far as their dumps are found."""
        kinds = (PROGRAM, COMPILE)
        names = {label.name: None for label in self.labels if label.kind in kinds and label.name}
        # Kernels of a graph traced as a whole can't be attributed, so nothing must try to.
        for part, joined in zip(self.work, self.joined, strict=True):
            for index in np.unique(joined.program).tolist() if part.is_graph else ():
                names.pop(self.texts.values[index], None)
        return self.dumps.programs(names)

    def _places(self) -> tuple[tuple[Device, ...], tuple[Lane, ...], list[Array]]:
        """Devices, their streams as lanes, and the lane of each piece of work."""
        from slipstream.profile.grouping import group_pairs

        streams: dict[tuple[int, int, int], int] = {}
        parts = []
        for part, joined in zip(self.work, self.joined, strict=True):
            device = (joined.process.astype(np.int64) << 32) + part.device
            groups, firsts = group_pairs(device, part.stream.astype(np.int32))
            keys = zip(
                joined.process[firsts].tolist(),
                part.device[firsts].tolist(),
                part.stream[firsts].tolist(),
                strict=True,
            )
            parts.append((groups, [streams.setdefault(key, len(streams)) for key in keys]))
        ordered = sorted(streams)
        place = {streams[key]: i for i, key in enumerate(ordered)}
        devices = sorted({key[:2] for key in ordered})
        lanes = [Lane(f"Stream #{key[2]}", key[0], devices.index(key[:2])) for key in ordered]
        found = [
            np.array([place[number] for number in numbers], np.int32)[groups]
            for groups, numbers in parts
        ]
        return self.machine.devices(devices, self.processes), tuple(lanes), found

    def _events(self, lanes: list[Array]) -> Table:
        if not self.work:
            return Table.empty(EVENT_COLUMNS, self.texts.values)
        parts = [
            _event_columns(part, joined, lane, self.machine.base_ns)
            for part, joined, lane in zip(self.work, self.joined, lanes, strict=True)
        ]
        return _table(EVENT_COLUMNS, parts, self.texts)

    def _host_events(self, first: int) -> Table:
        """Calls and ranges, on the lanes of their threads."""
        calls, ranges = self.calls, self.ranges
        size, first_range = len(calls) + len(self.range_labels), len(calls)
        columns = {column.name: np.zeros(size, column.dtype) for column in HOST_COLUMNS}
        named = self.texts.map(self.label_texts)
        for rows, times, thread, name in (
            (slice(0, first_range), calls, self.call_thread, self.call_names),
            (slice(first_range, size), ranges, self.range_thread, named[self.range_labels]),
        ):
            start, end = times["start"], times["end"]
            np.multiply(start - self.machine.base_ns, 1000, out=columns["start_ps"][rows])
            np.multiply(_durations(start, end), 1000, out=columns["duration_ps"][rows])
            np.add(thread, first, out=columns["lane"][rows])
            columns["name"][rows] = name
        np.multiply(
            calls["correlationId"], self.launching, out=columns["correlation"][:first_range]
        )
        steps = [label.step for label in self.labels]
        if any(step is not None for step in steps):
            number = np.array([step or 0 for step in steps], np.int64)
            columns["step"][first_range:] = number[self.range_labels]
            is_step = np.array([step is not None for step in steps], bool)
            columns["is_step"][first_range:] = is_step[self.range_labels]
        return Table(HOST_COLUMNS, columns, self.texts.values)

    def _warnings(self) -> Iterator[ProfileWarning]:
        """What affects how to read the numbers."""
        if any(part.is_graph for part in self.work):
            yield ProfileWarning(
                "whole-graphs",
                f"{self.source.name}: CUDA graphs were traced as a whole, so the kernels in them "
                "are unknown; record with: nsys profile --cuda-graph-trace=node",
            )
        total = sum(int(_durations(part.start_ns, part.end_ns).sum()) for part in self.work)
        if not total:
            return
        if not any(label.kind == INSTRUCTION for label in self.labels):
            yield ProfileWarning(
                "no-ranges",
                f"{self.source.name} has no NVTX ranges of XLA's instructions, so device time "
                "can't be attributed to them; record JAX with: nsys profile --trace=cuda,nvtx",
            )
            return
        lost = 0
        for part, joined in zip(self.work, self.joined, strict=True):
            missing = joined.call < 0
            lost += int(_durations(part.start_ns, part.end_ns)[missing].sum())
        if lost > _UNLAUNCHED_SHARE * total:
            yield ProfileWarning(
                "no-launch",
                f"{self.source.name}: the calls that launched {lost / total:.1%} of the device "
                "time were not recorded, so it belongs to no program; record with "
                "--trace=cuda,nvtx and start before the first step",
            )


def _event_columns(
    part: DeviceWork, joined: _Joined, lane: Array, base_ns: int
) -> dict[str, Array]:
    nothing = np.zeros(len(part), np.int32)
    return {
        **_times(part.start_ns, part.end_ns, base_ns),
        "lane": lane,
        "name": part.name,
        "op": joined.op,
        "program": joined.program,
        "details": part.details,
        "correlation": part.correlation,
        "graph": part.graph,
        "graph_node": part.graph_node,
        "instruction": nothing,
        "execution": nothing,
    }


def _times(start_ns: Array, end_ns: Array, base_ns: int) -> dict[str, Array]:
    start = (start_ns - base_ns) * 1000
    return {"start_ps": start, "duration_ps": _durations(start_ns, end_ns) * 1000}


def _durations(start: Array, end: Array) -> Array:
    """Times from start to end; 0 where the end is earlier, however much."""
    found: Array = np.maximum(end, start) - start
    return found


def _table(columns: tuple[Column, ...], parts: list[dict[str, Array]], texts: Texts) -> Table:
    arrays = {}
    for column in columns:
        pieces = [part.pop(column.name) for part in parts]
        whole = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        arrays[column.name] = whole.astype(column.dtype, copy=False)
    return Table(columns, arrays, texts.values)


def _is_one_of(values: Array, few: tuple[int, ...]) -> Array:
    found: Array = np.logical_or.reduce([values == one for one in few])
    return found


def _numbered(values: Array) -> tuple[Array, Array]:
    """(number of each value, the distinct values), numbered as they appear."""
    from slipstream.profile.grouping import group_pairs

    groups, firsts = group_pairs(values, np.zeros(len(values), np.int32))
    return groups, values[firsts]


def _taken(values: Array, rows: Array) -> Array:
    """Values of some rows; row -1 stands for no range."""
    return np.append(values, np.int32(NO_RANGE))[rows]


def _plain_name(call: str) -> str:
    """`cudaLaunchKernel_v7000` is `cudaLaunchKernel`."""
    return re.sub(r"_v\d+$", "", call)

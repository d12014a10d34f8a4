"""Nsight Systems: a report's SQLite export as the Profile of its processes.

A process is a host of the profile. Device work is put down to instructions by the NVTX ranges
around the call that launched it (see `nsys_ranges`); programs come from XLA's dumps.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from slipstream.errors import BadInput, Missing
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS, Array, Table, Texts
from slipstream.profile.profile import Lane, Profile, Programs, Warning
from slipstream.sources.dumps import Dumps
from slipstream.sources.nsys_facts import Facts, diagnostics
from slipstream.sources.nsys_ranges import (
    COMPILE,
    INSTRUCTION,
    PROCESS,
    PROGRAM,
    Label,
    Launches,
    Spans,
    enclosing,
    parse_label,
)
from slipstream.sources.nsys_tables import Export
from slipstream.sources.nsys_work import Work, read_work

_PUSH_POP, _START_END = (59, 70), (60, 71)
_CALLS = {"start": 0, "end": 0, "globalTid": 0, "correlationId": 0, "nameId": -1}
_RANGES = {"start": 0, "end": -1, "eventType": 59, "globalTid": 0, "textId": -1}
LOST = 0.005
"""share of device time without a recorded launch from which on it is worth a warning"""


def read_export(path: Path, dumps: Dumps, source: Path | None = None) -> Profile:
    """The Profile of an export; `source` is what people call it if it is a temporary file."""
    with closing(Export(path)) as export:
        if not any(export.has(table) for table in ("StringIds", "META_DATA_EXPORT")):
            raise BadInput(
                f"{source or path} is a SQLite file, but no export of Nsight Systems: it has no "
                "StringIds; make one with: nsys export --type sqlite report.nsys-rep"
            )
        return _Reader(export, source or path, dumps).profile()


@contextmanager
def exported(report: Path) -> Iterator[Path]:
    """The SQLite export of a report, made by the `nsys` on the PATH, for as long as it is used."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise Missing(
            f"{report} can only be opened by Nsight Systems itself, and there is no nsys on the "
            f"PATH; where it is installed, run: nsys export --type sqlite {report.name} "
            "and read the .sqlite file that it writes"
        )
    with tempfile.TemporaryDirectory(prefix="slipstream-") as folder:
        made = Path(folder) / f"{report.stem}.sqlite"
        command = (nsys, "export", "--type", "sqlite", "--output", str(made), str(report))
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode or not made.exists():
            said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
            raise BadInput(
                f"nsys export could not read {report} ({said[0]}); it reads reports of its own "
                "and older versions: try the nsys that recorded it"
            )
        yield made


class _Reader:
    """Reads one export."""

    def __init__(self, export: Export, source: Path, dumps: Dumps) -> None:
        self.export, self.source, self.dumps = export, source, dumps
        self.texts = Texts()
        self.work = read_work(export, self.texts)
        self._read_calls()
        self._read_ranges()
        self._number_threads()
        self.facts = Facts.of(export, source, self._first_ns())

    def _read_calls(self) -> None:
        rows = self.export.read("CUPTI_ACTIVITY_KIND_RUNTIME", _CALLS)
        self.calls = rows
        name, distinct = _numbered(rows["nameId"])
        strings = self.export.strings(distinct)
        names = [_plain_name(strings.get(one, "")) for one in distinct.tolist()]
        self.call_names = self.texts.map(names)[name] if len(name) else name

    def _read_ranges(self) -> None:
        rows = self.export.read("NVTX_EVENTS", _RANGES, ("text",))
        kept = np.isin(rows["eventType"], (*_PUSH_POP, *_START_END))
        columns = {name: rows[name][kept] for name in (*_RANGES, "text")}
        registered, distinct = _numbered(columns["textId"])
        strings = self.export.strings(distinct)
        self.label_texts = [strings.get(one, "") for one in distinct.tolist()]
        written = rows.texts["text"]
        empty = np.array([not text for text in (*written, "")], bool)
        use_text = ~empty[columns["text"]]
        label = np.where(use_text, columns["text"] + len(self.label_texts), registered)
        self.label_texts += written
        self.labels: list[Label] = [parse_label(text) for text in self.label_texts]
        self.range_labels = label.astype(np.int32)
        self.ranges = columns
        last = max((int(a.max()) for a in (columns["end"], self.calls["end"]) if len(a)), default=0)
        # A range that was open when the recording ended goes on to there.
        open_ = columns["end"] < columns["start"]
        columns["end"] = np.where(open_, max(last, 0), columns["end"])
        columns["end"] = np.maximum(columns["end"], columns["start"])

    def _number_threads(self) -> None:
        """Numbers for threads and processes, over all tables."""
        call, of_calls = _numbered(self.calls["globalTid"])
        range_, of_ranges = _numbered(self.ranges["globalTid"])
        threads = np.unique(np.concatenate((of_calls, of_ranges)))
        self.call_thread = np.searchsorted(threads, of_calls).astype(np.int32)[call]
        self.range_thread = np.searchsorted(threads, of_ranges).astype(np.int32)[range_]
        self.threads = threads
        parts = [np.unique(part.process) for part in self.work]
        busy = np.unique(np.concatenate(parts)) if parts else np.empty(0, np.int64)
        # Processes that did nothing on a device come last.
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

    def profile(self) -> Profile:
        self._join()
        programs, doubts = self._programs()
        devices, lanes, lane_parts = self._places()
        threads = self.facts.thread_lanes(self.threads, self.process_of_thread)
        events = self._events(lane_parts)
        host_events = self._host_events(len(lanes))
        warnings = (*diagnostics(self.export, self.source), *doubts, *self._doubts())
        return Profile(
            self.facts.hosts(self.processes),
            devices,
            (*lanes, *threads),
            events,
            host_events,
            programs=programs,
            warnings=warnings,
        )

    def _join(self) -> None:
        """Instruction and program of every piece of device work, by the call that launched it."""
        nested = np.isin(self.ranges["eventType"], _PUSH_POP)
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
        self.joined = []
        for part in self.work:
            number, distinct = _numbered(part.process)
            numbers = [self.process_number[one] for one in distinct.tolist()]
            own = np.array(numbers, np.int32)[number]
            call = launches.find(own, part.correlation)
            if len(op):
                self.launching[call[call >= 0]] = True
            # The last entry of these stands for "none".
            at_op = ops[_taken(op, call)]
            at_program = programs[_taken(program, call)]
            self.joined.append((own, call, np.where(at_program < 0, 0, at_op), at_program))

    def _texts_of(self, kind: int) -> Array:
        """Text of each label of a kind; 0 for other labels and, at the end, for no label."""
        names = [label.name if label.kind == kind else "" for label in self.labels]
        return np.append(self.texts.map(names), [0, 0]).astype(np.int32)

    def _programs(self) -> tuple[Programs, tuple[Warning, ...]]:
        """Programs that ran or were compiled, where their dumps are known."""
        kinds = (PROGRAM, COMPILE)
        names = {label.name: None for label in self.labels if label.kind in kinds and label.name}
        # Within a graph that was traced whole nothing can be told apart, so nothing must try to.
        for part, (_, _, _, program) in zip(self.work, self.joined, strict=True):
            if part.is_graph:
                for index in np.unique(program).tolist():
                    names.pop(self.texts.values[index], None)
        return self.dumps.programs(names)

"""NVTX ranges and the device work launched inside them.

XLA opens a range for a program, and in it one for each instruction that it launches:

    thread  ├─ XlaModule:#hlo_module=jit_step,program_id=7# ─────────────────┤
            │   ├─ Thunk:#name=…,hlo_op=dot.3# ─┤  ├─ Thunk:#hlo_op=while.1# ─┤
            │   │    cuLaunchKernel             │  │  ├─ Thunk:#…copy.2# ─┤   │
    device           └──────────► a kernel of dot.3      └──► a copy of copy.2

A launch belongs to the innermost instruction and program around it on its own thread. Kernels
launched while XLA compiles (it tries out variants) belong to no program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.native import native
from slipstream.profile.events import Array

OTHER, INSTRUCTION, PROGRAM, COMPILE = range(4)
PROCESS = -1 << 24
"""mask of the process in a thread's global id"""
NO_RANGE = -1

_COMPILING = -2
_DOMAIN = r"^(?:TSL:)?"
_INSTRUCTION = re.compile(_DOMAIN + r"Thunk:#(?:.*,)?hlo_op=([^,#]+)")
_PROGRAM = re.compile(_DOMAIN + r"XlaModule:#(?:.*,)?hlo_module=([^,#]+)(?:,program_id=(-?\d+))?")
_COMPILE = re.compile(_DOMAIN + r"Xla\w+")
_COMPILED = re.compile(r"[#,]module=([^,#]+),program_id=(-?\d+)")
_STEP = re.compile(
    r"#(?:.*,)?step_num=(\d+)|^(?:train[ _]?)?(?:step|iteration|iter)[ _:=#]*(\d+)$", re.I
)


_RANGE_COLUMNS = "i64*, i64*, i32*, i32*, i64*, i64"
_CALL_COLUMNS = "i64*, i32*, i64*, i64"


@dataclass(frozen=True)
class RangeLabel:
    """What the text of a range says."""

    kind: int
    name: str = ""
    """the instruction, or the program as `name(id)`"""
    step: int | None = None


def parse_label(text: str) -> RangeLabel:
    """What an NVTX range's text says, if XLA or a step annotation wrote it."""
    if found := _INSTRUCTION.match(text):
        return RangeLabel(INSTRUCTION, found.group(1))
    if found := _PROGRAM.match(text):
        name, number = found.groups()
        return RangeLabel(PROGRAM, f"{name}({number})" if number else name)
    if _COMPILE.match(text):
        compiled = _COMPILED.search(text)
        return RangeLabel(COMPILE, "{}({})".format(*compiled.groups()) if compiled else "")
    found = _STEP.search(text)
    return RangeLabel(OTHER, step=int(found.group(1) or found.group(2)) if found else None)


@native(f"i64({_RANGE_COLUMNS}, {_CALL_COLUMNS}, i32*, i64*, i32*, i32*, i32*, i32*, i32*)")
def _sweep(  # type: ignore[no-untyped-def]
    starts, ends, threads, labels, order, ranges,
    call_starts, call_threads, call_order, calls,
    kinds, top, parents, ops, programs, call_ops, call_programs,
):  # fmt: skip
    """Walk ranges and calls in time, with a stack of open ranges for each thread."""
    at = 0
    for i in range(calls + 1):
        call = call_order[min(i, calls - 1)] if calls else np.int64(0)
        while at < ranges and (i == calls or starts[order[at]] <= call_starts[call]):
            one = order[at]
            at += 1
            thread, label = threads[one], labels[one]
            parent = top[thread]
            while parent >= 0 and ends[parent] <= starts[one] and ends[parent] < ends[one]:
                parent = np.int64(parents[parent])
            parents[one] = np.int32(parent)
            top[thread] = one
            op = ops[parent] if parent >= 0 else np.int32(NO_RANGE)
            program = programs[parent] if parent >= 0 else np.int32(NO_RANGE)
            if program != _COMPILING:
                if kinds[label] == INSTRUCTION:
                    op = label
                elif kinds[label] == PROGRAM:
                    op = np.int32(NO_RANGE)
                    program = label
                elif kinds[label] == COMPILE:
                    op = np.int32(NO_RANGE)
                    program = np.int32(_COMPILING)
            ops[one] = op
            programs[one] = program
        if i == calls:
            break
        thread = call_threads[call]
        inside = top[thread]
        while inside >= 0 and ends[inside] < call_starts[call]:
            inside = np.int64(parents[inside])
        top[thread] = inside
        call_ops[call] = ops[inside] if inside >= 0 else np.int32(NO_RANGE)
        call_programs[call] = programs[inside] if inside >= 0 else np.int32(NO_RANGE)
    return 0


@dataclass(frozen=True)
class Spans:
    """Ranges or calls: times, the number of their thread, and of their text."""

    start: Array
    end: Array
    thread: Array
    label: Array

    def in_order(self) -> Array:
        """Rows by start, and what encloses others first."""
        order = np.argsort(self.start, kind="stable")
        start, end = self.start[order], self.end[order]
        if ((start[1:] == start[:-1]) & (end[1:] > end[:-1])).any():
            order = np.lexsort((-self.end, self.start))
        return order


def enclosing(
    ranges: Spans, calls: Spans, kinds: Sequence[int], threads: int
) -> tuple[Array, Array]:
    """(label of the instruction, label of the program) around each call; negative for none."""
    size = len(ranges.start)
    parents, ops, programs = np.empty((3, size), np.int32)
    call_ops, call_programs = np.full((2, len(calls.start)), NO_RANGE, np.int32)
    top = np.full(threads, -1, np.int64)
    kinds_ = np.array([*kinds, OTHER], np.int32)
    columns = (ranges.start, ranges.end, ranges.thread, ranges.label, ranges.in_order(), size)
    others = (calls.start, calls.thread, np.argsort(calls.start, kind="stable"), len(calls.start))
    _sweep(*columns, *others, kinds_, top, parents, ops, programs, call_ops, call_programs)
    return call_ops, call_programs


@native("i64(i32*, i64*, i64, i64*, i64*)")
def _bounds(processes, launches, rows, bases, ends):  # type: ignore[no-untyped-def]
    for row in range(rows):
        process = processes[row]
        bases[process] = min(bases[process], launches[row])
        ends[process] = max(ends[process], launches[row] + 1)
    return 0


@native("i64(i32*, i64*, i64, i64*, i64*, i32*)")
def _index(processes, launches, rows, bases, offsets, table):  # type: ignore[no-untyped-def]
    # Backwards, so that of several calls with one id the first is found.
    for row in range(rows - 1, -1, -1):
        process = processes[row]
        table[offsets[process] + launches[row] - bases[process]] = row
    return 0


@native("i64(i32*, i64*, i64, i64*, i64*, i64*, i32*, i32*)")
def _find(processes, launches, rows, bases, ends, offsets, table, out):  # type: ignore[no-untyped-def]
    for row in range(rows):
        process = processes[row]
        out[row] = -1
        if bases[process] <= launches[row] and launches[row] < ends[process]:
            out[row] = table[offsets[process] + launches[row] - bases[process]]
    return 0


class Launches:
    """Finds the call that launched device work, by process and correlation id."""

    DENSE = 32
    """table entries that a call may cost; beyond that, calls are searched"""

    def __init__(self, process: Array, correlation: Array, processes: int) -> None:
        self.process, self.correlation = process, correlation
        self.base = np.full(processes, np.iinfo(np.int64).max)
        self.end = np.zeros(processes, np.int64)
        _bounds(process, correlation, len(process), self.base, self.end)
        self.base = np.minimum(self.base, self.end)
        spans = self.end - self.base
        self.offset = np.cumsum(spans) - spans
        self.table: Array | None = None
        if spans.sum() <= self.DENSE * len(correlation) + (1 << 20):
            self.table = np.full(int(spans.sum()), -1, np.int32)
            rows = (process, correlation, len(correlation), self.base, self.offset)
            _index(*rows, self.table)

    def find(self, process: Array, correlation: Array) -> Array:
        """The row of the call behind each piece of device work; -1 if it was not recorded."""
        if self.table is None:
            return self._search(process, correlation)
        out = np.empty(len(process), np.int32)
        places = (self.base, self.end, self.offset)
        _find(process, correlation, len(process), *places, self.table, out)
        return out

    def _search(self, process: Array, correlation: Array) -> Array:
        keys = (self.process.astype(np.int64) << 40) + self.correlation
        order = np.argsort(keys, kind="stable")
        wanted = (process.astype(np.int64) << 40) + correlation
        row = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
        return np.where(keys[row] == wanted, row, -1).astype(np.int32)

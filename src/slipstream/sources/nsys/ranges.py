"""NVTX ranges and the device work launched inside them.

XLA opens a range for each program, and inside it one for each instruction that it launches:

    thread  ├─ XlaModule:#hlo_module=jit_step,program_id=7# ─────────────────┤
            │   ├─ Thunk:#name=…,hlo_op=dot.3# ─┤  ├─ Thunk:#hlo_op=while.1# ─┤
            │   │    cuLaunchKernel             │  │  ├─ Thunk:#…copy.2# ─┤   │
    device           └──────────► a kernel of dot.3      └──► a copy of copy.2

A launch belongs to the innermost instruction and program around it on its own thread. Kernels
launched while XLA compiles (it times variants) belong to no program.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array

OTHER, INSTRUCTION, PROGRAM, COMPILE = range(4)
PROCESS = -1 << 24
"""mask that leaves the process of a thread's global id"""
NO_RANGE = -1

_COMPILING = -2
_DOMAIN = r"^(?:TSL:)?"
_INSTRUCTION = re.compile(_DOMAIN + r"Thunk:#(?:.*,)?hlo_op=([^,#]+)")
_PROGRAM = re.compile(_DOMAIN + r"XlaModule:#(?:.*,)?hlo_module=([^,#]+)(?:,program_id=(-?\d+))?")
_COMPILE = re.compile(_DOMAIN + r"Xla\w+")
_COMPILED = re.compile(r"[#,]module=([^,#]+),program_id=(-?\d+)")
_STEP = re.compile(
    r"#(?:.*,)?step_num=(\d{1,18})(?!\d)"
    r"|^(?:train[ _]?)?(?:step|iteration|iter)[ _:=#]*(\d{1,18})$",
    re.I,
)


@dataclass(frozen=True)
class RangeLabel:
    """What the text of a range means."""

    kind: int
    name: str = ""
    """the instruction, or the program as `name(id)`"""
    step: int | None = None


def parse_label(text: str) -> RangeLabel:
    """What an NVTX range's text means, if XLA or a step annotation wrote it."""
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


@inner
def _innermost(row, at, ends, parents):  # type: ignore[no-untyped-def]
    """The innermost range that is still open at a time, from a range outwards; -1 for none."""
    while row >= 0 and ends[row] < at:
        row = np.int64(parents[row])
    return row


@inner
def _open_range(row, starts, ends, threads, labels, kinds, top, nodes, stride):  # type: ignore[no-untyped-def]
    """Put a range on its thread's stack, with the instruction and program that it stands for."""
    thread, label = threads[row], labels[row]
    parent = top[thread]
    while parent >= 0 and ends[parent] <= starts[row] and ends[parent] < ends[row]:
        parent = np.int64(nodes[parent])
    nodes[row] = np.int32(parent)
    top[thread] = row
    op = nodes[stride + parent] if parent >= 0 else np.int32(NO_RANGE)
    program = nodes[2 * stride + parent] if parent >= 0 else np.int32(NO_RANGE)
    if program != _COMPILING:
        if kinds[label] == INSTRUCTION:
            op = label
        elif kinds[label] == PROGRAM:
            op = np.int32(NO_RANGE)
            program = label
        elif kinds[label] == COMPILE:
            op = np.int32(NO_RANGE)
            program = np.int32(_COMPILING)
    nodes[stride + row] = op
    nodes[2 * stride + row] = program


@native("i64(i64*, i64*, i32*, i32*, i64*, i64, i64*, i32*, i64*, i64, i32*, i64*, i32*, i64*)")
def _sweep(  # type: ignore[no-untyped-def]
    starts, ends, threads, labels, order, ranges,
    call_starts, call_threads, call_order, calls,
    kinds, top, nodes, innermost,
):  # fmt: skip
    """Walk along ranges and calls in time, with a stack of open ranges for each thread.

    `nodes` gets three rows: each range's parent, its instruction and its program (with room for
    "no range" at the end). `innermost` gets the range around each call, or -1. `top` is the top
    of each thread's stack.
    """
    opened = 0
    for i in range(calls):
        call = call_order[i]
        now = call_starts[call]
        while opened < ranges and starts[order[opened]] <= now:
            row = order[opened]
            _open_range(row, starts, ends, threads, labels, kinds, top, nodes, ranges + 1)
            opened += 1
        row = _innermost(top[call_threads[call]], now, ends, nodes)
        top[call_threads[call]] = row
        innermost[call] = row
    return 0


@dataclass(frozen=True)
class Spans:
    """Ranges or calls: their times, and the numbers of their threads and texts."""

    start: Array
    end: Array
    thread: Array
    label: Array

    def in_order(self) -> Array:
        """Rows by start; of those that start together, enclosing ranges first."""
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
    nodes = np.full((3, size + 1), NO_RANGE, np.int32)
    innermost = np.empty(len(calls.start), np.int64)
    _sweep(
        ranges.start, ranges.end, ranges.thread, ranges.label, ranges.in_order(), size,
        calls.start, calls.thread, np.argsort(calls.start, kind="stable"), len(calls.start),
        np.array([*kinds, OTHER], np.int32), np.full(threads, -1, np.int64), nodes, innermost,
    )  # fmt: skip
    _, ops, programs = nodes
    return ops[innermost], programs[innermost]


@native("i64(i32*, i64*, i64, i64*, i64*)")
def _bounds(processes, launches, rows, firsts, lasts):  # type: ignore[no-untyped-def]
    for row in range(rows):
        process = processes[row]
        firsts[process] = min(firsts[process], launches[row])
        lasts[process] = max(lasts[process], launches[row])
    return 0


@native("i64(i32*, i64*, i64, i64*, i64*, i32*)")
def _index(processes, launches, rows, firsts, offsets, table):  # type: ignore[no-untyped-def]
    # Backwards, so that of several calls with one id the first is found.
    for row in range(rows - 1, -1, -1):
        process = processes[row]
        table[offsets[process] + launches[row] - firsts[process]] = row
    return 0


@native("i64(i32*, i64*, i64, i64*, i64*, i64*, i32*, i32*)")
def _find(processes, launches, rows, firsts, lasts, offsets, table, out):  # type: ignore[no-untyped-def]
    for row in range(rows):
        process = processes[row]
        out[row] = -1
        if firsts[process] <= launches[row] and launches[row] <= lasts[process]:
            out[row] = table[offsets[process] + launches[row] - firsts[process]]
    return 0


class Launches:
    """Finds the call that launched device work, by process and correlation id.

    Ids are any numbers of 64 bits: what they span is added up in Python, where nothing wraps.
    """

    DENSE = 32
    """table entries per call up to which a table is worth it; beyond that, calls are searched"""

    def __init__(self, process: Array, correlation: Array, processes: int) -> None:
        self.process, self.correlation = process, correlation
        limits = np.iinfo(np.int64)
        self.first, self.last = np.full(processes, limits.max), np.full(processes, limits.min)
        _bounds(process, correlation, len(process), self.first, self.last)
        both = zip(self.first.tolist(), self.last.tolist(), strict=True)
        spans = [max(last - first + 1, 0) for first, last in both]
        self.table: Array | None = None
        if sum(spans) <= self.DENSE * len(correlation) + (1 << 20):
            self.table = np.full(sum(spans), -1, np.int32)
            self.offset = np.cumsum([0, *spans], dtype=np.int64)
            rows = (process, correlation, len(correlation), self.first, self.offset)
            _index(*rows, self.table)

    def find(self, process: Array, correlation: Array) -> Array:
        """Row of the call that launched each piece of device work; -1 if it was not recorded."""
        if self.table is None:
            return self._search(process, correlation)
        out = np.empty(len(process), np.int32)
        places = (self.first, self.last, self.offset)
        _find(process, correlation, len(process), *places, self.table, out)
        return out

    def _search(self, process: Array, correlation: Array) -> Array:
        ids, number = np.unique(self.correlation, return_inverse=True)
        keys = self.process.astype(np.int64) * len(ids) + number
        order = np.argsort(keys, kind="stable")
        place = np.minimum(np.searchsorted(ids, correlation), len(ids) - 1)
        wanted = process.astype(np.int64) * len(ids) + place
        row = order[np.minimum(np.searchsorted(keys[order], wanted), len(order) - 1)]
        found = (keys[row] == wanted) & (ids[place] == correlation)
        return np.where(found, row, -1).astype(np.int32)

"""Calibration of a machine: from the output of `nccl-tests`, and from profiles.

nccl-tests output ──► curves ─┬─► a machine file (TOML), which `collective_time` uses
costs of a program ─► curves ─┘
"""

from __future__ import annotations

import math
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from slipstream.errors import BadInput
from slipstream.machines.collectives import CollectiveCurve, groups_of
from slipstream.machines.machine import Machine
from slipstream.machines.measured_calls import MeasuredCall, rows_of
from slipstream.machines.nccl import TRANSFERS, Group
from slipstream.profile.program import Program
from slipstream.reading import open_input, read_input

TESTS = {
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "sendrecv": "collective-permute",
    "broadcast": "collective-broadcast",
}
"""nccl-tests programs, without `_perf`, to XLA's kinds of collectives"""
TYPE_BYTES = {
    1: ("int8", "uint8", "fp8e4m3", "fp8e5m2", "f8e4m3", "f8e5m2"),
    2: ("half", "bfloat16"),
    4: ("int32", "uint32", "float"),
    8: ("int64", "uint64", "double"),
}
"""element types of nccl-tests by size"""

EXPECTED = "expected nccl-tests output, or a profile that contains its programs"

_PROGRAM = re.compile(r"\b([a-z_]+?)_perf(?:_mpi)?\b")
_STARTS = re.compile(r"nThread \d+ nGpus (\d+)")
_RANK = re.compile(
    r"Rank\s+(\d+)\s+(?:Group\s+\d+\s+)?Pid\s+\d+ on\s+(\S+) device\s+(\d+) \[[^\]]*\] (.+)"
)
_NUMBER = r"\s+([\d.]+(?:e[+-]?\d+)?)"
# size count type redop [root] time algbw busbw wrong time algbw busbw wrong; launchers may prefix
# lines.
_ROW = re.compile(
    r"(?:^|[\s:>\]])(\d+)\s+(\d+)\s+([a-z]\w*)\s+(sum|prod|min|max|avg|mulsum|none)"
    r"(?:\s+(-?\d+))?" + _NUMBER * 3 + r"\s+(\S+)" + rf"(?:{_NUMBER * 3}\s+(\S+))?\s*$"
)


@dataclass
class _Test:
    """One run of one test."""

    kind: str = ""
    gpus: int = 0
    """GPUs per process, according to the header"""
    ranks: dict[int, str] = field(default_factory=dict)
    """host of each rank"""
    device: str = ""
    rows: list[tuple[int, int, str, str, float]] = field(default_factory=list)
    """size, count, type, operation, out-of-place microseconds"""


def nccl_tests(
    text: str, source: str, kind: str | None = None, link_domain: int = 0
) -> list[CollectiveCurve]:
    """The curves in the output of `nccl-tests`, which may contain several tests.

    `link_domain` is the machine's: hosts in one NVLink rack count as one.
    """
    tests = [test for test in _tests(text, source) if test.rows]
    found = [_curve(test, source, kind, link_domain) for test in tests]
    if not found:
        raise BadInput(
            f"{source} has no nccl-tests rows (size, count, type, redop, root, time, algbw, busbw, "
            "#wrong); make it with: all_gather_perf -b 1M -e 1G -f 2 -g 8 > all_gather.txt"
        )
    return found


def device_of(files: Iterable[str]) -> str:
    """The GPU named by the first text that names one."""
    for file in files:
        matched = _RANK.search(read_text(file)) if is_text(file) else None
        if matched is not None:
            return matched[4].strip()
    raise BadInput("the files don't name the measured GPU; name it with --gpu H200")


def is_text(path: str) -> bool:
    """Whether a file is text, like nccl-tests output; recordings are binary."""
    if os.path.isdir(path):
        return False
    with open_input(path, "nccl-tests output, or a profile") as file:
        return b"\0" not in (start := file.read(4096)) and not start.startswith(b"\x1f\x8b")


def _tests(text: str, source: str) -> list[_Test]:
    tests = [_Test()]
    program = ""
    for number, line in enumerate(text.splitlines(), 1):
        named = _PROGRAM.search(line)
        if named and named[1] in TESTS and "concluded" not in line:
            program = TESTS[named[1]]
            if tests[-1].rows:
                tests.append(_Test())
            tests[-1].kind = program
        if begins := _STARTS.search(line):
            if tests[-1].rows or tests[-1].ranks:
                tests.append(_Test(kind=program))
            tests[-1].gpus = int(begins[1])
        if rank := _RANK.search(line):
            tests[-1].ranks[int(rank[1])] = rank[2]
        if row := _ROW.search(line):
            _add_row(tests[-1], row, f"{source}, line {number}")
    return tests


def _add_row(test: _Test, row: re.Match[str], place: str) -> None:
    size, count = int(row[1]), int(row[2])
    # Old versions print the largest relative error here (2e-07); new ones count wrong values.
    if row[9].isdecimal() and int(row[9]) > 0:
        raise BadInput(
            f"{place}: {row[9]} wrong values in a {size}-byte collective; "
            "the fabric corrupts data: repair it before calibrating"
        )
    try:
        us = float(row[6])
    except ValueError:
        raise BadInput(
            f"{place}: the time is {row[6]!r:.40}, expected microseconds; the output is damaged"
        ) from None
    if size > 0:
        test.rows.append((size, count, row[3], row[4], us))


def _curve(test: _Test, source: str, kind: str | None, link_domain: int) -> CollectiveCurve:
    ranks = len(test.ranks) or _ranks_of_rows(test)
    found = kind or test.kind or _kind_of_rows(test, ranks)
    if found is None:
        raise BadInput(
            f"{source} doesn't say which test it is (its header is missing); "
            f"name it with --kind, one of: {', '.join(sorted(set(TESTS.values())))}"
        )
    if not ranks:
        raise BadInput(
            f"{source} doesn't say how many GPUs took part (no `Rank …` lines); "
            "keep the header of nccl-tests, or run it with one process (-g 8)"
        )
    hosts = len(set(test.ranks.values())) or 1
    domains = math.ceil(ranks / link_domain) if link_domain else hosts
    by_size: dict[int, list[float]] = defaultdict(list)
    for size, _, _, _, us in test.rows:
        by_size[size].append(us)
    sizes = tuple(sorted(by_size))
    group = Group(2, min(domains, 2)) if found in TRANSFERS else Group(ranks, domains)
    return CollectiveCurve(
        found, group, sizes, tuple(median(by_size[size]) for size in sizes), source
    )


def _ranks_of_rows(test: _Test) -> int:
    """Ranks, by the columns (all-gather: size = count × type × ranks), otherwise by -g."""
    for size, count, kind, _, _ in test.rows:
        width = _width(kind)
        if count and size != count * width and size % (count * width) == 0:
            return size // (count * width)
    return test.gpus


def _width(kind: str) -> int:
    return next((size for size, names in TYPE_BYTES.items() if kind in names), 4)


def _kind_of_rows(test: _Test, ranks: int) -> str | None:
    """The kind without a header: reductions differ in their count; gathers are ambiguous."""
    size, count, kind, operation, _ = test.rows[-1]
    if operation == "none" or ranks < 2:
        return None
    return "all-reduce" if size == count * _width(kind) else "reduce-scatter"


def program_curves(
    program: Program, us_by_name: Mapping[str, float], machine: Machine, source: str
) -> list[CollectiveCurve]:
    """The curves of a program's collectives, from their times in a cost table."""
    times: dict[tuple[str, Group], dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for instruction in program.scheduled:
        collective = program.collective_of(instruction)
        inner = program.wrapped(instruction.name) if instruction.is_start else None
        names = [instruction.scheduling_name, instruction.name, inner.name if inner else ""]
        us = next((us_by_name[name] for name in names if name in us_by_name), None)
        if collective is None or not us or not collective.bytes:
            continue
        groups = groups_of(machine, collective, machine.devices)
        if len(groups) == 1 and groups[0].size > 1:
            times[collective.kind, groups[0]][collective.bytes].append(us)
    return [
        CollectiveCurve(
            kind, group, tuple(sorted(by)), tuple(median(by[s]) for s in sorted(by)), source
        )
        for (kind, group), by in times.items()
    ]


def machine_data(
    gpu: str,
    curves: Iterable[CollectiveCurve],
    counts: tuple[int, int],
    network: str | None = None,
    kernels: Mapping[str, float] | None = None,
    calls: Iterable[MeasuredCall] = (),
) -> dict[str, Any]:
    """The data for `files.write_machine`: the GPU, counts, and calibration."""
    hosts, gpus_per_host = counts
    kept: dict[tuple[str, Group], CollectiveCurve] = {}
    for curve in curves:
        kept[curve.kind, curve.group] = curve
    items = [
        {
            "kind": curve.kind,
            "group": curve.group.size,
            "hosts": curve.group.domains,
            "source": curve.source,
            "bytes": list(curve.bytes),
            "us": [round(us, 3) for us in curve.us],
        }
        for curve in kept.values()
    ]
    data: dict[str, Any] = {"gpu": gpu, "hosts": hosts, "gpus_per_host": gpus_per_host}
    if network is not None:
        data["network"] = network
    calibration: dict[str, Any] = {"collectives": items} if items else {}
    if kernels:
        scales = {kind: round(scale, 4) for kind, scale in kernels.items()}
        calibration["kernels"] = {"scales": scales}
    if rows := rows_of(calls):
        calibration["calls"] = rows
    return {**data, "calibration": calibration}


def counts_of(curves: Iterable[CollectiveCurve], measured: Machine) -> tuple[int, int]:
    """(hosts, GPUs per host): as stated, otherwise of the largest measured group."""
    if measured.devices > 1:
        return measured.slices * measured.hosts, measured.gpus_per_host
    group = max((curve.group for curve in curves), key=lambda g: g.size, default=Group(1))
    return group.domains, group.local


def read_text(path: str) -> str:
    """The text of an nccl-tests output file."""
    return read_input(path, "nccl-tests output").decode("utf-8", "replace")

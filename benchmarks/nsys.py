"""Nsight Systems exports: Slipstream against the SQL way, on one export, in one run.

    python benchmarks/nsys.py            5 million kernels and 5 million ranges
    python benchmarks/nsys.py --quick    a tenth of that

The SQL does what Nsight's own `nvtx_kern_sum` report does, which is also where JAX's converter of
Nsight profiles begins: an R-tree over the ranges, kernels joined with the calls that launched them,
those with the ranges around them, and time summed by range. Slipstream does all of `load` (kernels,
calls, ranges, steps, launch details) and the totals of every instruction.
"""

import argparse
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np

INSTRUCTIONS = 500
PID = 4242
TID = (PID << 24) | PID

TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
    shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
    registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL,
    gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL,
    blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
    dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL,
    localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER,
    graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL,
    callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER,
    category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
    textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL,
    uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT,
    binaryData TEXT);
"""

RANGES = """
CREATE VIRTUAL TABLE temp.ranges USING rtree(id, opened, closed, +start INTEGER, +end INTEGER,
                                             +thread INTEGER, +label TEXT);
INSERT INTO temp.ranges
    SELECT n.rowid, n.start, n.end, n.start, n.end, n.globalTid, coalesce(s.value, n.text)
    FROM NVTX_EVENTS AS n LEFT JOIN StringIds AS s ON s.id = n.textId
    WHERE n.eventType IN (59, 60);
"""

TOTALS = """
SELECT r.label, k.demangledName, count(*), sum(k.end - k.start), avg(k.end - k.start),
       min(k.end - k.start), max(k.end - k.start)
FROM CUPTI_ACTIVITY_KIND_KERNEL AS k
LEFT JOIN CUPTI_ACTIVITY_KIND_RUNTIME AS c
  ON c.correlationId = k.correlationId AND (c.globalTid & -16777216) = k.globalPid
LEFT JOIN temp.ranges AS r
  ON r.opened <= c.start AND r.closed >= c.end
 AND r.start <= c.start AND r.end >= c.end AND r.thread = c.globalTid
GROUP BY 1, 2
"""


def build(path, kernels):
    """An export as nsys writes it: steps of one program, a range and a launch a kernel."""
    names = [f"Thunk:#name=jit(step)/layer_{i},hlo_op=fusion.{i}#" for i in range(INSTRUCTIONS)]
    strings = [*names, *(f"fusion_{i}" for i in range(INSTRUCTIONS))]
    module, call = len(strings), len(strings) + 1
    strings += ["XlaModule:#hlo_module=jit_step,program_id=7#", "cuLaunchKernelEx"]
    steps = kernels // INSTRUCTIONS
    with sqlite3.connect(path) as db:
        db.executescript(f"PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; {TABLES}")
        db.executemany("INSERT INTO StringIds VALUES (?, ?)", enumerate(strings))
        db.execute("INSERT INTO META_DATA_EXPORT VALUES ('EXPORT_SCHEMA_VERSION', '3.25.0')")
        db.execute("INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H200')")
        for step in range(steps):
            _add_step(db, step, module, call)


def _add_step(db, step, module, call):
    rng = np.random.default_rng(step)
    i = np.arange(INSTRUCTIONS)
    opened = (step * INSTRUCTIONS + i) * 10_000 + step * 100_000
    duration = rng.integers(1_000, 9_000, INSTRUCTIONS)
    launch = step * INSTRUCTIONS + i + 1
    ranges = [(int(opened[0]) - 50, int(opened[-1]) + 9_500, module)]
    ranges += zip(opened.tolist(), (opened + 9_000).tolist(), i.tolist(), strict=True)
    db.executemany(
        f"INSERT INTO NVTX_EVENTS (start, end, eventType, globalTid, textId, domainId) "
        f"VALUES (?, ?, 59, {TID}, ?, 1)",
        ranges,
    )
    db.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, 1, {TID}, ?, {call}, 0, NULL)",
        zip((opened + 2_000).tolist(), (opened + 6_000).tolist(), launch.tolist(), strict=True),
    )
    db.executemany(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, 1, 0, 14, ?, {PID << 24}, ?, "
        "?, NULL, 1, 1, 32, ?, 1, 1, 128, 1, 1, 0, 0, 0, 0, ?, 32768, NULL, 0)",
        zip(
            (opened + 10_000).tolist(),
            (opened + 10_000 + duration).tolist(),
            launch.tolist(),
            (i + INSTRUCTIONS).tolist(),
            (i + INSTRUCTIONS).tolist(),
            (i + 1).tolist(),
            launch.tolist(),
            strict=True,
        ),
    )


def by_sql(path):
    """Nanoseconds by instruction, the SQL way."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA cache_size = -2000000")
    db.execute("PRAGMA temp_store = MEMORY")
    db.executescript(RANGES)
    found = {}
    for label, _, _, total, *_ in db.execute(TOTALS):
        if label and label.startswith("Thunk"):
            found[label.partition("hlo_op=")[2].rstrip("#")] = total
    db.close()
    return found


def by_slipstream(path):
    """Nanoseconds by instruction, with all that a Profile holds."""
    from slipstream import load, ops

    found = ops(load(path), whole=True)
    return {op.instruction: round(op.total_us * 1000) for op in found.ops}


def timed(function, path):
    began = time.perf_counter()
    found = function(path)
    return time.perf_counter() - began, found


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the size")
    arguments = parser.parse_args()
    kernels = 500_000 if arguments.quick else 5_000_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export.sqlite"
        build(path, kernels)
        size = path.stat().st_size / 1e6
        print(f"{kernels:,} kernels, as many calls and ranges, {size:,.0f} MB")
        # The first use on a machine compiles native code; that is kept, and not what this measures.
        small = Path(folder) / "small.sqlite"
        build(small, INSTRUCTIONS)
        by_slipstream(small)
        ours, of_ours = min((timed(by_slipstream, path) for _ in range(3)), key=lambda x: x[0])
        print(f"slipstream: load and totals of every instruction    {ours:8.2f} s")
        theirs, of_theirs = timed(by_sql, path)
        print(f"SQL: R-tree of ranges, joins, totals                {theirs:8.2f} s")
        assert of_ours == of_theirs, "the two ways differ"
        print(f"{theirs / ours:.0f} times faster, same totals")


if __name__ == "__main__":
    main()

"""nsys-jax archives of a few ranges."""

import io
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

Range = tuple[str, int, int]
"""text, depth, µs"""

SMALL: tuple[Range, ...] = (
    ("TSL:XlaCompile:#module=jit_f,program_id=1#", 0, 50),
    ("TSL:XlaModule:#hlo_module=gemm_fusion_dot.1#", 1, 50),
    ("TSL:Thunk:#hlo_op=gemm_fusion_dot.1#", 2, 50),
    ("TSL:XlaModule:#hlo_module=jit_f,program_id=1#", 0, 100),
    ("TSL:Thunk:#hlo_op=while.1#", 1, 60),
    ("TSL:Thunk:#hlo_op=dot.1,unique_hlo_op_id=4#", 2, 60),
    ("TSL:Thunk:#name=a,hlo_op=all-reduce-start.1#", 1, 40),
)


def write_archive(path: Path, ranges: Sequence[Range], **files: bytes) -> Path:
    """An archive of ranges; each begins where the one before it ends."""
    columns: dict[str, list[Any]] = defaultdict(list)
    parents: list[int] = []
    at = 0
    for number, (text, depth, time) in enumerate(ranges, 1):
        parents = [*parents[:depth], number]
        columns["Name"].append(text)
        columns["Projected Start"].append(at)
        columns["Projected Duration"].append(time * 1000)
        columns["Orig Start"].append(float(at))
        columns["Orig Duration"].append(float(time * 1000))
        columns["PID"].append(77)
        columns["TID"].append(78)
        columns["NumGPUOps"].append(1)
        columns["RangeId"].append(float(number))
        columns["ParentId"].append(float(parents[-2]) if depth else None)
        at += 0 if text.startswith("TSL:Xla") else time * 1000
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("nvtx_gpu_proj_trace/trace.parquet", as_parquet(columns))
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def as_parquet(columns: dict[str, list[Any]]) -> bytes:
    buffer = io.BytesIO()
    parquet.write_table(pa.table(dict(columns)), buffer)
    return buffer.getvalue()

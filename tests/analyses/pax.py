"""The Pax archives: one step over four A100, two of the four processes recorded."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from slipstream.profile.profile import Profile
from slipstream.sources.load import load

ARCHIVE = "nsysjax_pax_fsdp4_a100_proc{}.zip"
STEP = "pjit__wrapped_step_fn(40)"


@cache
def both(external: Path) -> Profile:
    """Both archives as one run."""
    return load([external / ARCHIVE.format(number) for number in (0, 1)])


@dataclass(frozen=True)
class Thunk:
    """One range of an instruction, as nsys-jax's loader sees it; times in ns."""

    name: str
    start: int
    end: int
    execution: int
    turn: int
    """how often the instruction ran before in this execution"""

    @property
    def is_communication(self) -> bool:
        return re.match(r"(all-|reduce-scatter|collective-)", self.name) is not None


@cache
def thunks(external: Path, number: int) -> tuple[Thunk, ...]:
    """The instructions of the step's executions, read plainly from the archive."""
    import pyarrow.parquet as parquet

    with zipfile.ZipFile(external / ARCHIVE.format(number)) as archive:
        names = [n for n in archive.namelist() if re.search(r"gpu_proj_trace/.*\.parquet$", n)]
        (name,) = (n for n in names if not n.endswith("files.parquet"))
        rows = parquet.read_table(io.BytesIO(archive.read(name))).to_pylist()
    modules = sorted(
        row["RangeId"]
        for row in rows
        if re.search(r"XlaModule:#.*pjit__wrapped_step_fn,program_id=40#", row["Name"] or "")
    )
    executions = {module: number for number, module in enumerate(modules)}
    found, turns = [], {}
    for row in sorted(rows, key=lambda row: row["RangeId"] or 0):
        op = re.search(r"Thunk:#.*hlo_op=([^#]+)#", row["Name"] or "")
        if op and row["ParentId"] in executions:
            start, execution = row["Projected Start"], executions[row["ParentId"]]
            turn = turns[op[1], execution] = turns.get((op[1], execution), -1) + 1
            end = start + row["Projected Duration"]
            found.append(Thunk(op[1], start, end, execution, turn))
    return tuple(found)

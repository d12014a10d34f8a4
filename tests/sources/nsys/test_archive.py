"""nsys-jax archives: real ones against plain sums over their Parquet, and small ones."""

import io
import re
import sys
import zipfile
from collections import defaultdict
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as parquet
import pytest

from archive_builder import SMALL, as_parquet, write_archive
from recorded import protos
from slipstream import BadInput, Missing, Profile, load, ops, summary
from slipstream.profile.timeline.kinds import COMMUNICATION, kinds
from slipstream.profile.validation import validate

ARCHIVE = "nsysjax_pax_fsdp4_a100_proc{}.zip"
STEP = "pjit__wrapped_step_fn(40)"


@cache
def archived(folder: Path, *processes: int) -> Profile:
    return load([folder / ARCHIVE.format(number) for number in processes])


def rows_of(path: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(path) as archive:
        table = parquet.read_table(io.BytesIO(archive.read("nvtx_gpu_proj_trace/trace.parquet")))
    return table.to_pylist()


def plain_sums(path: Path) -> dict[tuple[str, str], int]:
    """Nanoseconds by program and instruction, for programs that have an id."""
    rows = rows_of(path)
    modules = {}
    for row in rows:
        found = re.search(r"hlo_module=(\w+),program_id=(\d+)#", row["Name"] or "")
        if found:
            modules[row["RangeId"]] = "{}({})".format(*found.groups())
    sums: dict[tuple[str, str], int] = defaultdict(int)
    for row in rows:
        op = re.search(r"Thunk:#.*hlo_op=([^#]+)#", row["Name"] or "")
        if op and row["ParentId"] in modules:
            sums[modules[row["ParentId"]], op.group(1)] += row["Projected Duration"]
    return dict(sums)


def times(profile: Profile) -> dict[tuple[str, str], int]:
    found = ops(profile, whole=True).ops
    return {(op.program, op.instruction): round(op.total_us * 1000) for op in found}


def test_an_archive_has_the_sums_of_its_projection(external: Path) -> None:
    found = archived(external, 0)
    validate(found)
    assert times(found) == plain_sums(external / ARCHIVE.format(0))
    assert found.devices[0].model == "NVIDIA A100-SXM4-40GB"
    assert [lane.name for lane in found.lanes[:2]] == ["Compute", "Communication"]
    assert ops(found).attributed_share == 1.0


def test_the_steps_of_an_archive_take_127_ms(external: Path) -> None:
    found = archived(external, 0)
    runs = found.runs
    step = runs.program == list(found.events.texts).index(STEP)
    assert step.sum() == 5
    assert np.median((runs.end_ps - runs.start_ps)[step]) / 1e9 == pytest.approx(127.46, abs=0.01)
    # Steps count the wait for the next one too.
    assert summary(found).step_median_us / 1e3 == pytest.approx(131.2, abs=0.1)
    assert found.programs[STEP].program_id == 40


def test_collectives_of_an_archive_are_communication(external: Path) -> None:
    found = archived(external, 0)
    events = found.events
    own = kinds(found) == COMMUNICATION
    names = ("all-", "reduce-scatter")
    sums = plain_sums(external / ARCHIVE.format(0))
    wanted = sum(ns for (_, op), ns in sums.items() if op.startswith(names))
    assert int(events["duration_ps"][own].sum()) == wanted * 1000
    lanes = {found.lanes[lane].name for lane in np.unique(events["lane"][own]).tolist()}
    assert lanes == {"Communication"}


def test_archives_of_several_processes_are_one_run(external: Path) -> None:
    found = archived(external, 0, 1)
    validate(found)
    both = defaultdict(int)
    for number in (0, 1):
        for key, value in plain_sums(external / ARCHIVE.format(number)).items():
            both[key] += value
    assert times(found) == dict(both)
    assert len({host.name for host in found.hosts}) == len(found.devices) == 2
    # The archives don't say when they began, so nothing may compare their times.
    assert "clock-skew" in [warning.code for warning in found.warnings]


def test_loops_and_what_xla_tries_out_while_it_compiles_do_not_count(tmp_path: Path) -> None:
    found = load(write_archive(tmp_path / "run.zip", SMALL))
    validate(found)
    wanted = {("jit_f(1)", "dot.1"): 60_000, ("jit_f(1)", "all-reduce-start.1"): 40_000}
    assert times(found) == wanted


def test_a_folder_of_archives_is_one_run_and_other_zips_are_left_alone(tmp_path: Path) -> None:
    for number in (0, 1):
        write_archive(tmp_path / f"rank{number}.zip", SMALL)
    with zipfile.ZipFile(tmp_path / "code.zip", "w") as archive:
        archive.writestr("train.py", "")
    assert len(load(tmp_path).hosts) == 2
    with pytest.raises(BadInput, match="not an nsys-jax archive"):
        load(tmp_path / "code.zip")


def test_graphs_in_an_archive_are_told_of_and_not_guessed_at(tmp_path: Path) -> None:
    name = "dump/module_4634.jit_step.sm_9.0_gpu_after_optimizations.hlo.pb"
    ranges = [
        ("TSL:XlaModule:#hlo_module=jit_step,program_id=4634#", 0, 100),
        ("TSL:Thunk:#hlo_op=command_buffer_1#", 1, 100),
    ]
    proto = protos("off_default")["jit_step(4634)"]
    found = load(write_archive(tmp_path / "run.zip", ranges, **{name: proto}))
    validate(found)
    assert not found.events["instruction"].any()
    assert "whole-graphs" in [warning.code for warning in found.warnings]


def test_reading_an_archive_needs_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_archive(tmp_path / "run.zip", SMALL)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(Missing, match=r"slipstream\[parquet\]"):
        load(path)
    broken = tmp_path / "broken.zip"
    broken.write_bytes(path.read_bytes()[:200])
    with pytest.raises(BadInput, match="is damaged: expected an nsys-jax archive"):
        load(broken)


def rewritten(path: Path, columns: dict[str, Any]) -> Path:
    """The archive with its projection's columns replaced, or left out where they are None."""
    with zipfile.ZipFile(path) as archive:
        data = archive.read("nvtx_gpu_proj_trace/trace.parquet")
    table = parquet.read_table(io.BytesIO(data)).to_pydict() | columns
    with zipfile.ZipFile(path, "w") as archive:
        kept = {name: values for name, values in table.items() if values is not None}
        archive.writestr("nvtx_gpu_proj_trace/trace.parquet", as_parquet(kept))
    return path


@pytest.mark.parametrize("column", ["Name", "Projected Start", "PID", "NumGPUOps", "ParentId"])
def test_a_column_that_is_missing_is_named(tmp_path: Path, column: str) -> None:
    path = rewritten(write_archive(tmp_path / "run.zip", SMALL), {column: None})
    with pytest.raises(BadInput, match=f"trace.parquet has no column '{column}'; record it again"):
        load(path)


@pytest.mark.parametrize(
    "value",
    [True, "12", b"1", [1], datetime(2026, 1, 1), 1 << 60, -(1 << 60), 1e300, float("inf")],
    ids=str,
)
def test_a_column_of_other_values_is_named(tmp_path: Path, value: Any) -> None:
    columns = {"Projected Start": [value] * len(SMALL)}
    path = rewritten(write_archive(tmp_path / "run.zip", SMALL), columns)
    with pytest.raises(BadInput, match="column 'Projected Start' is damaged: expected numbers"):
        load(path)


def test_numbers_that_are_missing_are_no_damage(tmp_path: Path) -> None:
    columns = {"Orig Start": [None, *range(1, len(SMALL))]}
    load(rewritten(write_archive(tmp_path / "run.zip", SMALL), columns))


def test_millions_of_equal_values_in_a_few_bytes_are_refused(tmp_path: Path) -> None:
    count = 500_000
    path = write_archive(tmp_path / "run.zip", SMALL[:1])
    rows = rows_of(path)[0]
    rewritten(path, {name: [value] * count for name, value in rows.items()})
    assert path.stat().st_size < 1_000_000
    with pytest.raises(BadInput, match="trace.parquet unpacks to more than 67"):
        load(path)

"""Nsight Systems exports, of several releases, against the recording they were made of."""

import gzip
import shutil
import sqlite3
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from nsys_builder import (
    CURRENT,
    FORMS,
    NEWEST,
    OLD,
    ExportBuilder,
    Form,
    Process,
    export_of,
    write_dumps,
)
from recorded import DATA, protos
from slipstream import BadInput, Missing, Profile, load, ops, summary
from slipstream.profile.validation import validate
from slipstream.sources.nsys.tables import Export

PLAIN, GRAPHS = "off_lhs_nocb", "off_default"
PID = (1 << 48) | (4242 << 24)
TID = PID | 4242


@cache
def recording(name: str) -> Profile:
    return load(DATA / f"{name}.xplane.pb.gz")


def totals(profile: Profile, times: int = 1) -> dict[tuple[str, str], tuple[int, int]]:
    """(nanoseconds, executions) of each instruction over the whole recording."""
    return {
        (op.program, op.instruction): (round(op.total_us * 1000) * times, op.count * times)
        for op in ops(profile, whole=True).ops
        if op.instruction != "(unattributed)"
    }


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_an_export_has_the_times_of_the_recording_it_is_of(form: Form, tmp_path: Path) -> None:
    wanted = recording(PLAIN)
    path = export_of(wanted, form, (Process(threads=2),)).write(tmp_path / "run.sqlite")
    found = load(path, dumps=write_dumps(tmp_path / "dump", protos(PLAIN)))
    validate(found)
    assert totals(found) == totals(wanted)
    assert len(found.events) == len(wanted.events)
    assert found.steps.basis == "annotations"
    assert found.steps.count == 3
    assert [device.model for device in found.devices] == ["NVIDIA H200"]
    assert found.warnings == ()


def test_without_programs_times_are_still_those_of_instructions(tmp_path: Path) -> None:
    wanted = recording(PLAIN)
    found = load(export_of(wanted).write(tmp_path / "run.sqlite"))
    validate(found)
    assert {k: ns for k, (ns, _) in totals(found).items()} == {
        k: ns for k, (ns, _) in totals(wanted).items()
    }


def test_details_of_launches_and_copies_are_those_of_the_recording(tmp_path: Path) -> None:
    wanted = recording(PLAIN)
    found = load(export_of(wanted).write(tmp_path / "run.sqlite"))

    def described(profile: Profile) -> set[tuple[str, str]]:
        events = profile.events
        pairs = {
            (events.text("name", row), events.text("details", row)) for row in range(len(events))
        }
        return {
            (name, text.partition(" occ_pct")[0].partition(" async")[0])
            for name, text in pairs
            if not name.startswith("Memset")
        }

    assert described(found) == described(wanted)


def test_processes_that_number_their_launches_alike_are_kept_apart(tmp_path: Path) -> None:
    wanted = recording(PLAIN)
    processes = (Process(100, device=0, threads=3), Process(200, device=1))
    path = export_of(wanted, NEWEST, processes).write(tmp_path / "run.sqlite")
    found = load(path, dumps=write_dumps(tmp_path / "dump", protos(PLAIN)))
    validate(found)
    assert totals(found) == totals(wanted, times=2)
    assert [host.name for host in found.hosts] == ["run/100", "run/200"]
    assert [(device.name, device.host) for device in found.devices] == [("GPU:0", 0), ("GPU:1", 1)]
    assert found.steps.count == 3


@pytest.mark.parametrize("form", (CURRENT, NEWEST), ids=lambda form: form.name)
def test_graphs_traced_by_node_are_put_down_to_instructions(form: Form, tmp_path: Path) -> None:
    wanted = recording(GRAPHS)
    path = export_of(wanted, form).write(tmp_path / "run.sqlite")
    # Dumps in a folder beside the export are found without being told.
    write_dumps(tmp_path / "dump", protos(GRAPHS))
    found = load(path)
    validate(found)
    assert totals(found) == totals(wanted)
    assert set(np.unique(found.events["graph"])) == set(np.unique(wanted.events["graph"]))
    assert ops(found).attributed_share == ops(wanted).attributed_share


def test_programs_of_another_id_are_taken_by_name_and_told_of(tmp_path: Path) -> None:
    wanted = recording(PLAIN)
    program = "jit_step(342693)"
    write_dumps(tmp_path / "dump", {"jit_step(7)": protos(PLAIN)[program]})
    found = load(export_of(wanted).write(tmp_path / "run.sqlite"))
    validate(found)
    assert list(found.programs) == [program]
    assert found.programs[program].program_id == 342693
    assert [warning.code for warning in found.warnings] == ["program-by-name"]


def small(form: Form = CURRENT) -> ExportBuilder:
    """One program with two instructions, one of them in a loop, and autotuning before it."""
    builder = ExportBuilder(form)
    builder.range("TSL:XlaCompile:#module=jit_f,program_id=1#", 0, 900, TID)
    builder.range("TSL:XlaAutotunerMeasurement:#hlo_op=gemm_fusion_dot.1#", 50, 800, TID)
    builder.range("TSL:XlaModule:#hlo_module=gemm_fusion_dot.1#", 100, 700, TID)
    builder.range("TSL:Thunk:#hlo_op=gemm_fusion_dot.1#", 100, 600, TID)
    builder.call("cuLaunchKernel", 200, 300, TID, 1)
    builder.range("TSL:XlaModule:#hlo_module=jit_f,program_id=1#", 1000, 9000, TID)
    builder.range("TSL:Thunk:#hlo_op=while.1#", 1000, 5000, TID)
    builder.range("TSL:Thunk:#hlo_op=dot.1#", 1500, 2500, TID)
    builder.range("NCCL:ncclGroupEnd", 1500, 2400, TID)
    builder.call("cuLaunchKernel", 1600, 1700, TID, 2)
    builder.call("cuLaunchKernel", 2500, 2600, TID, 3)
    builder.call("cuLaunchKernel", 5000, 5100, TID, 4)
    builder.call("cuLaunchKernel", 9500, 9600, TID, 5)
    # Another thread's ranges are none of these calls'.
    builder.range("TSL:Thunk:#hlo_op=other.1#", 0, 20_000, TID + 1)
    for correlation in range(1, 7):
        kernel(builder, correlation)
    return builder


def kernel(builder: ExportBuilder, correlation: int, **values: int) -> None:
    start = 100_000 + 1000 * correlation
    common = {"start": start, "end": start + 10 * correlation, "deviceId": 0, "streamId": 7}
    common |= {"correlationId": correlation, "globalPid": PID} | values
    builder.work("KERNEL", **common, demangledName=builder.string("k"), gridX=1)


def labels(profile: Profile) -> list[tuple[str, str]]:
    events = profile.events
    return [(events.text("program", row), events.text("op", row)) for row in range(len(events))]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_launch_belongs_to_the_innermost_instruction_of_its_thread(
    form: Form, tmp_path: Path
) -> None:
    found = load(small(form).write(tmp_path / "run.sqlite"))
    validate(found)
    assert labels(found) == [
        ("", ""),  # while XLA compiles
        ("jit_f(1)", "dot.1"),
        ("jit_f(1)", "dot.1"),  # at the very end of the range
        ("jit_f(1)", "while.1"),
        ("", ""),  # after the program
        ("", ""),  # its call was not recorded
    ]
    assert [warning.code for warning in found.warnings if warning.code != "unattributed"] == [
        "no-launch"
    ]


def test_calls_that_launched_nothing_have_no_launch(tmp_path: Path) -> None:
    builder = small()
    builder.call("cuEventQuery", 9700, 9800, TID, 99)
    found = load(builder.write(tmp_path / "run.sqlite")).host_events
    calls = {
        (found.text("name", row), int(found["correlation"][row]))
        for row in range(len(found))
        if found.text("name", row).startswith("cu")
    }
    assert calls == {("cuLaunchKernel", n) for n in range(1, 6)} | {("cuEventQuery", 0)}


def test_a_range_that_never_closed_goes_on_to_the_end(tmp_path: Path) -> None:
    builder = ExportBuilder()
    builder.range("TSL:XlaModule:#hlo_module=jit_f,program_id=1#", 0, None, TID)
    builder.range("TSL:Thunk:#hlo_op=dot.1#", 10, None, TID)
    builder.call("cuLaunchKernel", 200, 300, TID, 1)
    kernel(builder, 1)
    found = load(builder.write(tmp_path / "run.sqlite"))
    validate(found)
    assert labels(found) == [("jit_f(1)", "dot.1")]


def test_graphs_traced_whole_are_one_event_each_and_told_of(tmp_path: Path) -> None:
    builder = ExportBuilder()
    for step in range(3):
        at = 10_000 * step
        builder.range("XlaModule:#hlo_module=jit_step,program_id=4634#", at, at + 5000, TID)
        builder.range("Thunk:#hlo_op=command_buffer_1#", at + 10, at + 4000, TID)
        builder.call("cuGraphLaunch", at + 20, at + 30, TID, step + 1)
        start = 100_000 + at
        builder.work(
            "GRAPH_TRACE",
            start=start,
            end=start + 7000,
            deviceId=0,
            streamId=7,
            correlationId=step + 1,
            globalPid=PID,
            graphId=5,
        )
    write_dumps(tmp_path / "dump", protos(GRAPHS))
    found = load(builder.write(tmp_path / "run.sqlite"))
    validate(found)
    assert [found.events.text("name", row) for row in range(3)] == ["CUDA graph 5"] * 3
    assert not found.events["instruction"].any()
    assert found.steps.count == 3
    assert "whole-graphs" in [warning.code for warning in found.warnings]


def test_what_the_profiler_complained_of_is_passed_on(tmp_path: Path) -> None:
    builder = small().diagnostic(1, "fine").diagnostic(2, "Not all events\nwere collected: buffer")
    builder.diagnostic(2, "Unable to read clocks").diagnostic(3, "CUPTI failed")
    found = load(builder.write(tmp_path / "run.sqlite"))
    said = [(warning.code, warning.message) for warning in found.warnings][:3]
    assert said == [
        ("dropped-events", "run.sqlite: Not all events were collected: buffer"),
        ("profiler-warning", "run.sqlite: Unable to read clocks"),
        ("profiler-error", "run.sqlite: CUPTI failed"),
    ]


def test_an_export_of_no_device_work_is_read_and_told_of(tmp_path: Path) -> None:
    found = load(ExportBuilder().write(tmp_path / "run.sqlite"))
    validate(found)
    assert len(found.events) == 0
    assert found.warnings


def test_gzipped_exports_and_folders_of_them(tmp_path: Path) -> None:
    wanted = load(small().write(tmp_path / "rank0.sqlite"))
    (tmp_path / "packed").mkdir()
    packed = tmp_path / "packed" / "rank0.sqlite.gz"
    packed.write_bytes(gzip.compress((tmp_path / "rank0.sqlite").read_bytes()))
    assert totals(load(packed)) == totals(wanted)
    small().write(tmp_path / "rank1.sqlite")
    both = load(tmp_path)
    validate(both)
    assert len(both.hosts) == 2
    assert {k: ns for k, (ns, _) in totals(both).items()} == {
        k: 2 * ns for k, (ns, _) in totals(wanted).items()
    }


def test_a_report_needs_nsys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"not ours to read")
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(Missing, match="nsys export --type sqlite run.nsys-rep"):
        load(report)
    # What somebody exported beside it will do.
    small().write(tmp_path / "run.sqlite")
    assert len(load(report).events) == 6


@pytest.mark.parametrize("works", [True, False])
def test_a_report_is_exported_by_nsys(
    works: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = small().write(tmp_path / "made.sqlite")
    folder = tmp_path / "bin"
    folder.mkdir()
    tool = folder / "nsys"
    copy = f'cp "{made}" "$5"' if works else 'echo "report is too new" >&2; exit 1'
    tool.write_text(f"#!/bin/sh\n{copy}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    report = tmp_path / "run.nsys-rep"
    report.write_bytes(b"report")
    if works:
        assert len(load(report).events) == 6
    else:
        with pytest.raises(BadInput, match="report is too new"):
            load(report)


def test_other_files_are_refused_with_what_they_are(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "notes.sqlite")) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    with pytest.raises(BadInput, match="not an Nsight Systems export"):
        load(tmp_path / "notes.sqlite")
    cut = tmp_path / "cut.sqlite"
    cut.write_bytes(small().write(tmp_path / "whole.sqlite").read_bytes()[:1000])
    with pytest.raises(BadInput, match="not a complete SQLite file"):
        load(cut)
    hlo = tmp_path / "step.pb"
    hlo.write_bytes(protos(PLAIN)["jit_step(342693)"])
    for program in (hlo, DATA / "off_default.hlo.gz"):
        with pytest.raises(BadInput, match="is a program"):
            load(program)
    with pytest.raises(BadInput, match="not a folder of dumped programs"):
        load(tmp_path / "whole.sqlite", dumps=tmp_path / "nowhere")


def test_a_long_text_is_left_to_sql(tmp_path: Path) -> None:
    builder = small()
    builder.form = OLD
    builder.range("x" * 10_000, 50, 60, TID)
    path = builder.write(tmp_path / "run.sqlite")
    with closing(Export(path)) as export:
        rows = export.read("NVTX_EVENTS", {"start": 0, "globalTid": 0}, ("text",))
    assert "x" * 10_000 in rows.texts["text"]
    assert labels(load(path))[1] == ("jit_f(1)", "dot.1")


def test_a_damaged_file_does_not_take_us_down(tmp_path: Path) -> None:
    data = bytearray(small().write(tmp_path / "run.sqlite").read_bytes())
    random = np.random.default_rng(0)
    for number in range(60):
        damaged = bytearray(data)
        for place in random.integers(100, len(data), 200).tolist():
            damaged[place] = int(random.integers(256))
        path = tmp_path / f"damaged{number}.sqlite"
        path.write_bytes(damaged)
        with suppress(BadInput):
            load(path)


def test_a_public_export_has_the_sums_that_sql_has(external: Path) -> None:
    path = external / "nsys_h100_2gpu_1s.sqlite"
    found = load(path)
    validate(found)
    events = found.events
    names = {name: 0 for name in events.texts}
    sums = np.bincount(events["name"], events["duration_ps"] // 1000, len(events.texts))
    names |= dict(zip(events.texts, sums.astype(np.int64).tolist(), strict=True))
    with closing(sqlite3.connect(f"file:{path}?immutable=1", uri=True)) as db:
        wanted = dict(
            db.execute(
                "SELECT s.value, sum(k.end - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k "
                "JOIN StringIds AS s ON s.id = k.demangledName GROUP BY 1"
            )
        )
        copied = dict(
            db.execute(
                "SELECT copyKind, sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY GROUP BY 1"
            )
        )
    assert {name: names[name] for name in wanted} == wanted
    assert (names["MemcpyH2D"], names["MemcpyD2D"]) == (copied[1], copied[8])
    assert [host.name for host in found.hosts] == ["modal/111", "modal/112"]
    assert [warning.code for warning in found.warnings] == ["no-ranges"]
    assert summary(found).step_basis == "recording"


def test_a_read_only_export_is_read(tmp_path: Path) -> None:
    path = small().write(tmp_path / "run.sqlite")
    path.chmod(0o444)
    assert len(load(path).events) == 6
    shutil.rmtree(tmp_path, ignore_errors=True)


@pytest.mark.parametrize("value", ["soon", 0.5, b"\xff"])
@pytest.mark.parametrize("column", ["start", "gridX"])
def test_a_value_of_another_type_is_refused_with_its_place(
    column: str, value: object, tmp_path: Path
) -> None:
    path = export_of(recording(PLAIN)).write(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET {column} = ? WHERE rowid = 3", (value,))
    wanted = rf"run\.sqlite is damaged: table CUPTI_ACTIVITY_KIND_KERNEL has .* in column {column} "
    with pytest.raises(BadInput, match=wanted + "of row 3, expected an integer"):
        load(path)


# What SQLite may do with a file.


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Export]:
    """An export of a hundred strings, with a view."""
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as made, made:
        made.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        made.executemany("INSERT INTO StringIds VALUES (?, ?)", [(i, "x" * 99) for i in range(100)])
        made.execute("CREATE VIEW seen AS SELECT id FROM StringIds")
    with closing(Export(tmp_path / "run.sqlite")) as export:
        yield export


@pytest.mark.parametrize(
    "query",
    [
        "SELECT hex(value) FROM StringIds",
        "SELECT id FROM seen",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n LIMIT 9",
        "ATTACH 'other.sqlite' AS other",
        "CREATE TEMP TABLE made (a)",
        "DELETE FROM StringIds",
    ],
)
def test_sqlite_only_reads_tables(opened: Export, query: str) -> None:
    with pytest.raises(sqlite3.DatabaseError, match="not authorized|prohibited"):
        opened._execute(query).fetchall()


def test_sqlite_distrusts_what_the_file_defines(opened: Export) -> None:
    assert opened._execute("PRAGMA trusted_schema").fetchone() == (0,)


def test_a_query_ends_after_steps_in_proportion_to_the_file(
    opened: Export, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "_most_steps", 2_000_000)
    many = "SELECT 1 FROM StringIds a, StringIds b, StringIds c, StringIds d LIMIT 3000000"
    with pytest.raises(sqlite3.OperationalError, match="interrupted"):
        deque(opened._execute(many), maxlen=0)
    assert len(opened._execute("SELECT id FROM StringIds").fetchall()) == 100


def test_a_text_has_a_longest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("slipstream.sources.nsys.tables._LONGEST", 1000)
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as made, made:
        made.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
        made.execute("INSERT INTO StringIds VALUES (1, ?)", ("x" * 5000,))
    export = Export(tmp_path / "run.sqlite")
    with closing(export), pytest.raises(sqlite3.DataError, match="too big"):
        export.strings(np.array([1]))

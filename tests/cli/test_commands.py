"""Every command on a real recording: what it prints, and the errors a person can run into."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from outputs.perfetto.perfetto_reader import read
from slipstream.analyses.ops import GROUPINGS
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.outputs.sql import TABLES

DATA = Path(__file__).parent.parent / "data"
OFFLOAD = str(DATA / "off_default.xplane.pb.gz")
NCCL = str(DATA / "nccl2_lhs_r0.xplane.pb.gz")
SINGLE = str(DATA / "single.xplane.pb.gz")


def run(*arguments: str) -> str:
    return CliRunner().invoke(app, arguments, catch_exceptions=False).output


def test_summary():
    lines = run("summary", OFFLOAD).splitlines()
    assert lines[0] == "NVIDIA H200 · 1 host, 1 device · jax 0.11.2 · jit_step 7733d8da"
    assert lines[1] == "3 steps, by annotation"
    assert max(map(len, lines)) <= 80


def test_summary_json():
    found = json.loads(run("summary", NCCL, "--json"))
    assert list(found) == [
        "hosts",
        "versions",
        "devices",
        "programs",
        "steps",
        "per_step_us",
        "phases_us",
        "top",
        "top_groups",
        "warnings",
    ]
    times = found["per_step_us"]
    parts = ("compute", "exposed_communication", "exposed_copy", "idle")
    assert sum(times[part] for part in parts) == pytest.approx(times["wall"], rel=0.01)
    assert found["steps"]["count"] == 3


@pytest.mark.parametrize("by", GROUPINGS)
def test_ops(by):
    lines = run("ops", OFFLOAD, "--by", by, "--top", "4").splitlines()
    title = {
        "loop": "loop and source line",
        "scope": "loop and source line: no op has a name scope",
    }
    assert lines[0].startswith(f"device time by {title.get(by, by)} · ")
    heading = {"instruction": "what", "scope": "loop"}
    assert lines[3].startswith(heading.get(by, by))
    assert max(map(len, lines)) <= 80


def test_a_model_without_scopes_has_loops_and_source_lines():
    assert run("ops", SINGLE, "--by", "scope", "--depth", "2", "--top", "9") == (
        """\
device time by loop and source line: no op has a name scope · 179 ms per step
3 steps counted · 100% attributed to instructions

loop                          ops  own, ms     ms  share
loop at model.py:32, 8 turns   84      0.3  163.8  91.6%
  model.py:22                  13     85.9   85.9  48.0%
  model.py:25                  14     43.9   43.9  24.6%
  model.py:18                   6     17.3   17.3   9.7%
  model.py:23                   7      6.7    6.7   3.8%
  model.py:16                  16      3.9    3.9   2.2%
  model.py:19                   9      3.7    3.7   2.0%
  model.py:32                  18      2.1    2.1   1.2%
model.py:33                     4      8.8    8.8   4.9%
… and 8 more: --top 17
"""
    )
    assert json.loads(run("ops", SINGLE, "--by", "scope", "--json"))["by"] == "scope"


def test_ops_json_has_all_unless_told():
    found = json.loads(run("ops", OFFLOAD, "--json"))
    assert len(found["ops"]) > 100
    assert sum(op["share"] for op in found["ops"]) == pytest.approx(1)
    assert len(json.loads(run("ops", OFFLOAD, "--json", "--top", "2"))["ops"]) == 2


def test_ops_help_names_every_grouping():
    shown = " ".join(run("ops", "--help").split())
    assert all(by in shown for by in GROUPINGS)


def test_an_unknown_grouping_is_refused_before_anything_is_read():
    with pytest.raises(BadInput, match="there is no grouping 'phse'; did you mean phase?"):
        run("ops", "/no/such/file", "--by", "phse")


def test_programs():
    assert run("programs", OFFLOAD).splitlines()[0].split()[:2] == ["program", "fingerprint"]
    (first, *_) = json.loads(run("programs", OFFLOAD, "--json"))["programs"]
    assert first["fingerprint"].startswith("7733d8da")
    assert first["executions"] == 3


def test_one_program():
    shown = run("programs", NCCL, "jit_train_step")
    assert "all-to-all-start" in shown
    assert "\n  while.30 · 4 times · " in shown
    assert max(map(len, shown.splitlines())) <= 80
    found = json.loads(run("programs", NCCL, "jit_train_step", "--json"))
    assert {c["kind"] for c in found["collectives"]} >= {"all-gather", "all-to-all"}
    assert [loop["trip_count"] for loop in found["loops"]] == [4, 4]


def test_an_unknown_program_suggests_the_nearest():
    with pytest.raises(BadInput, match=r"no program 'jit_trainstep'; did you mean jit_train_step"):
        run("programs", NCCL, "jit_trainstep")


def test_programs_that_share_a_name_are_listed():
    with pytest.raises(
        BadInput, match=r"7 programs are called jit_stage; choose one of: jit_stage"
    ):
        run("programs", OFFLOAD, "jit_stage")


def test_of_programs_that_share_a_name_the_one_that_ran_is_described():
    """Five are called jit_step, with three schedules and one fingerprint."""
    (listed,) = json.loads(run("programs", OFFLOAD, "--json"))["programs"]
    found = json.loads(run("programs", OFFLOAD, "jit_step", "--json"))
    assert listed["name"] == f"jit_step({found['program_id']})" == "jit_step(4634)"


@pytest.mark.parametrize("name", ["a.pftrace", "a.parquet", "a.csv"])
def test_export(name, tmp_path):
    output = tmp_path / name
    said = run("export", OFFLOAD, "-o", str(output))
    assert said.startswith(f"wrote {output}: ")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_exported_trace_holds_every_event(tmp_path):
    output = tmp_path / "a.bin"
    said = run("export", OFFLOAD, "-o", str(output), "--format", "perfetto")
    slices = read(output.read_bytes())
    assert f": {sum(s.category != 'step' for s in slices):,} events," in said
    assert said.splitlines()[1].startswith("open it at https://ui.perfetto.dev ")
    times = run("query", OFFLOAD, "select sum(duration_ps) from events", "--csv").split()
    device = [s for s in slices if s.category == "device"]
    # The recording is in whole nanoseconds, so nothing is lost.
    assert sum(s.end_ns - s.start_ns for s in device) * 1000 == int(times[1])


def test_export_refuses_what_it_can_not_write(tmp_path):
    with pytest.raises(BadInput, match="--open is for Perfetto traces; x.csv is csv"):
        run("export", OFFLOAD, "-o", "x.csv", "--open")
    with pytest.raises(BadInput, match=r"the suffix of x.zip names no format; expected .pftrace"):
        run("export", OFFLOAD, "-o", "x.zip")
    with pytest.raises(BadInput, match=r"no format 'parqet'; did you mean parquet\?"):
        run("export", OFFLOAD, "-o", "x", "--format", "parqet")
    with pytest.raises(BadInput, match=r"no table 'event'; did you mean events"):
        run("export", OFFLOAD, "-o", "x.csv", "--table", "event")
    with pytest.raises(BadInput, match="can't write"):
        run("export", OFFLOAD, "-o", str(tmp_path / "no" / "x.csv"))


def test_query():
    sql = "select name, duration_ps from events order by duration_ps desc limit 3"
    table = run("query", OFFLOAD, sql).splitlines()
    assert (len(table), table[0].split()) == (4, ["name", "duration_ps"])
    as_csv = list(csv.DictReader(io.StringIO(run("query", OFFLOAD, sql, "--csv"))))
    as_json = json.loads(run("query", OFFLOAD, sql, "--json"))
    assert [int(row["duration_ps"]) for row in as_csv] == [r["duration_ps"] for r in as_json]
    with pytest.raises(BadInput, match="choose one"):
        run("query", OFFLOAD, sql, "--csv", "--json")


@pytest.mark.parametrize("table", TABLES)
def test_every_table_of_a_recording(table):
    (row,) = json.loads(run("query", NCCL, f"select count(*) as n from {table}", "--json"))
    assert row["n"] > 0 or table == "transfers"


def test_query_help_names_every_table():
    shown = " ".join(run("query", "--help").split())
    assert ", ".join(TABLES) in shown

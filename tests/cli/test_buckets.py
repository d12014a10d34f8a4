"""Commands with paths in a bucket: what they read, what they write, and what they refuse first."""

import json
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from s3_server import S3Server
from slipstream import BadInput
from slipstream.cli.main import app
from slipstream.cli.study_place import working_folder
from slipstream.remote.mirroring import local_folder

DATA = Path(__file__).parents[1] / "data"
PROFILE = "s3://bucket/p/after.xplane.pb.gz"


@pytest.fixture
def bucket(s3: S3Server) -> S3Server:
    s3.put("p/after.xplane.pb.gz", DATA / "nccl2_lhs_r0.xplane.pb.gz")
    s3.put("p/before.xplane.pb.gz", DATA / "nccl2_nolhs_r0.xplane.pb.gz")
    s3.put("p/step.hlo.gz", DATA / "nccl2_lhs_r0.hlo.gz")
    return s3


def invoke(line: str) -> str:
    done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.parametrize("command", ["summary", "ops", "hosts", "programs"])
def test_a_profile_in_a_bucket_reads_as_here(bucket: S3Server, command: str) -> None:
    here = invoke(f"{command} {DATA}/nccl2_lhs_r0.xplane.pb.gz")
    there = invoke(f"{command} {PROFILE}")
    names = str(DATA / "nccl2_lhs_r0.xplane.pb.gz"), "nccl2_lhs_r0.xplane.pb.gz"
    for name, other in zip(names, (PROFILE, "after.xplane.pb.gz"), strict=True):
        here = here.replace(name, other)
    assert " ".join(there.split()) == " ".join(here.split())


def test_commands_take_each_others_outputs_from_the_bucket(bucket: S3Server) -> None:
    costs = "s3://bucket/out/costs.pb"
    assert f"wrote {costs}.json" in invoke(f"costs {PROFILE} -o {costs}")
    assert "206 instructions" in invoke(f"costs show {costs}")
    assert "100% of the device time" in invoke(f"costs check {costs} --against {PROFILE}")
    assert "/20431334f3dfd2627d428e364cfa5cee.pb" in invoke(f"costs {PROFILE} -o s3://bucket/dir")
    assert invoke(f"costs diff {costs} s3://bucket/dir") == "206 instructions unchanged\n"
    written = invoke(f"export {PROFILE} -o s3://bucket/out/t.csv")
    assert written.startswith("wrote s3://bucket/out/t.csv: 2,052 events, 502 kB")
    page = invoke(f"report {PROFILE} --against s3://bucket/p/before.xplane.pb.gz -o s3://bucket/r")
    assert page.startswith("wrote s3://bucket/r: ") and b"<html" in bucket.get("r")[:200]
    timeline = "s3://bucket/out/s.xplane.pb"
    line = f"simulate s3://bucket/p/step.hlo.gz --on 2xH200 --costs {costs} --timeline {timeline}"
    assert f"timeline: {timeline}; read it with: slipstream summary {timeline}" in invoke(line)
    assert "1 step, by execution" in invoke(f"summary {timeline}")


def test_settings_and_machines_are_read_and_written(bucket: S3Server) -> None:
    bucket.put("job.sh", b"export XLA_FLAGS=--xla_gpu_enable_async_all_gather=true\n")
    assert "s3://bucket/job.sh: 1 fixed" in invoke("flags lint --fix s3://bucket/job.sh")
    assert b"async_all_gather" not in bucket.get("job.sh")
    bucket.put("m.toml", b'gpu = "H200"\ngpus_per_host = 4\n')
    assert "s3://bucket/m.toml: 4 × NVIDIA H200" in invoke("machines show s3://bucket/m.toml")


@pytest.mark.parametrize(
    "line",
    [
        "report s3://bucket/none -o s3://nobucket/r.html",
        "network s3://bucket/none --html s3://nobucket/r.html",
        "export s3://bucket/none -o s3://nobucket/r.csv",
        "costs s3://bucket/none -o s3://nobucket/costs.pb",
        "predict train.py:build --timeline s3://nobucket/t.xplane.pb",
        "machines calibrate none.txt -o s3://nobucket/m.toml",
        "tune train.py:build --study s3://nobucket/study",
        "plan train.py:build --study s3://nobucket/study",
    ],
)
def test_a_bucket_that_is_not_there_is_refused_before_any_work(s3: S3Server, line: str) -> None:
    with pytest.raises(BadInput, match="there is no bucket nobucket"):
        invoke(line)
    assert not any("none" in path for _, path, _ in s3.sent)


def test_python_in_a_bucket_is_not_run(s3: S3Server) -> None:
    with pytest.raises(BadInput, match="is Python in a bucket, which is not run; copy it here"):
        invoke("compile s3://bucket/train.py:build --on H200")


def test_a_study_in_a_bucket_is_continued_elsewhere(s3: S3Server, tmp_path, monkeypatch) -> None:
    study = "s3://bucket/studies/a"
    program = """HloModule f, entry_computation_layout={(f32[64,64])->f32[64,64]}

ENTRY main {
  x = f32[64,64] parameter(0)
  y = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT z = f32[64,64] tanh(y)
}
"""
    s3.put("program.hlo", program.encode())
    monkeypatch.chdir(tmp_path)
    only = "--only xla_gpu_enable_command_buffer --jobs 1"
    line = f"tune s3://bucket/program.hlo --on H200 --study {study} --trials 1 {only} --json"
    done = CliRunner().invoke(app, shlex.split(line), catch_exceptions=False)
    assert json.loads(done.stdout)["study"] == study
    assert f"working in {local_folder(study, 'slipstream-tune')}, copied to {study}" in done.stderr
    keys = [key.removeprefix("studies/a/") for key in s3.keys("studies")]
    assert keys == [".slipstream", "program.bin", "study.json", "study.sqlite3"]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert tried(invoke(f"tune show {study} --json")) == 1
    assert list(Path().iterdir()) == [], "looking leaves nothing here"
    resumed = CliRunner().invoke(
        app, shlex.split(f"tune resume {study} --trials 2 --jobs 1 --json"), catch_exceptions=False
    )
    assert tried(resumed.stdout) == tried(invoke(f"tune show {study} --json")) == 2
    with pytest.raises(BadInput, match=f"^{study} already holds a study; continue it: .*{study},"):
        invoke(line)


def tried(tuning: str) -> int:
    return sum(one["status"] != "waiting" for one in json.loads(tuning)["trials"])


def test_a_study_that_is_not_there_leaves_no_folder(s3: S3Server, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("tune show", "tune apply", "tune resume", "plan show", "plan resume"):
        with pytest.raises(BadInput, match=r"^s3://bucket/none holds no (study|plan)"):
            invoke(f"{command} s3://bucket/none")
    assert not list(tmp_path.glob("slipstream-*"))


def test_a_local_study_stays_where_it_is(tmp_path: Path) -> None:
    with working_folder(f"file://{tmp_path}", "slipstream-tune") as folder:
        assert folder == tmp_path

"""`slipstream run --nsys`: the profile from Nsight Systems, of which a stand-in plays the part.

The stand-in runs the job as nsys would, and exports a recording of the program that the job
saved: it shows the route, not what nsys records.
"""

import os
import sys
from pathlib import Path

import pytest

from run_jobs import OTHER, run, train
from slipstream.costs.files import read_costs
from slipstream.run.run_dir import done_facts

TESTS = Path(__file__).parents[1]
STAND_IN = """#!{python}
import pathlib, subprocess, sys
sys.path.insert(0, {tests!r})
if sys.argv[1] == "profile":
    (output,) = (word for word in sys.argv if word.startswith("--output="))
    at = sys.argv.index(output) + 1
    subprocess.run(sys.argv[at:])
    pathlib.Path(output.partition("=")[2]).write_text(" ".join(sys.argv[1:at]))
    sys.exit()
from nsys_builder import ExportBuilder, Process
from slipstream.sources.hlo.reader import read_program
made, report = map(pathlib.Path, sys.argv[5:7])
program = read_program(next(report.parent.glob("module_*.jit_f.*")))
names = [i.name for i in program.entry.instructions if i.opcode in ("fusion", "dot", "call")]
builder, process, at = ExportBuilder(), Process(), 1000
for number in range(8):
    begin = at
    for k, name in enumerate(names):
        correlation = 1 + number * len(names) + k
        builder.range(f"TSL:Thunk:#hlo_op={{name}}#", at, at + 100, process.thread(0))
        builder.call("cuLaunchKernel", at + 10, at + 20, process.thread(0), correlation)
        builder.work("KERNEL", start=at + 5000, end=at + 5090, deviceId=0, streamId=7, gridX=1,
            correlationId=correlation, globalPid=process.global_pid,
            demangledName=builder.string("k"))
        at += 100
    module = "TSL:XlaModule:#hlo_module=jit_f,program_id=1#"
    builder.range(module, begin, at, process.thread(0))
    at += 10000
builder.write(made)
"""


@pytest.fixture
def place(tmp_path):
    train(tmp_path)
    tool = tmp_path / "bin" / "nsys"
    tool.parent.mkdir()
    tool.write_text(STAND_IN.format(python=sys.executable, tests=str(TESTS)))
    tool.chmod(0o755)
    return tmp_path


def test_the_whole_route(place):
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    job = [sys.executable, "train.py", "30"]
    done = run(place / "out", job, "--nsys", *OTHER, "--rounds", "8", cwd=place, PATH=path)
    assert done.is_as_without_us(), done.err
    phase = place / "out" / "profile" / "rank0"
    report = phase / "profiles" / "before" / "report.nsys-rep"
    assert "--cuda-graph-trace=node" in report.read_text()
    assert done_facts(phase)["profiler"] == "nsys"
    assert len(read_costs(place / "out" / "costs" / "costs.pb")) > 0, done.err
    assert done.phases[:3] == ["1 check", "2 profile", "3 costs"]
    receipt = done.receipt
    assert [arm["name"] for arm in receipt["arms"]][:2] == ["original", "costs"]
    assert receipt["files"]["before"] == str(report)
    variables = receipt["repeat"]["environment"]
    assert variables["JAX_COMPILATION_CACHE_EXPECT_PGLE"] == "true"
    assert variables["JAX_COMPILATION_CACHE_DIR"] == str(place / "out" / "cache")


def test_without_nsys_the_job_is_not_started(place):
    job = [sys.executable, "-c", "open('started', 'w')"]
    done = run(place / "none", job, "--nsys", cwd=place, PATH="/usr/bin:/bin")
    assert done.code == 3
    assert "apt-get install nsight-systems-cli" in done.err
    assert not (place / "started").exists()

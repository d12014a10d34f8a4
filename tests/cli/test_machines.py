"""`slipstream machines` as people type it."""

import json
import tomllib

import pytest
from typer.testing import CliRunner

from slipstream import load
from slipstream.analyses.summary import step_times
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.machines.gpus import gpus
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.topology import machine
from slipstream.machines.tpus import tpus
from slipstream.simulate.prediction import predict

TEXT = """\
# Collective test starting: all_gather_perf
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 2097152 step: 2(factor)
#  Rank  0 Group  0 Pid 7 on host-a device  0 [0000:29:00] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid 7 on host-a device  1 [0000:2f:00] NVIDIA H100 80GB HBM3
     1048576        131072     float    none      -1    40.10   26.15   22.88       0
     2097152        262144     float    none      -1    60.85   51.34   44.93       0
"""


def run(*arguments):
    return CliRunner().invoke(app, ["machines", *map(str, arguments)])


def test_list():
    lines = run("list").output.splitlines()

    assert [line.split()[0] for line in lines[1 : 1 + len(gpus())]] == list(gpus())
    assert lines[5].split()[:8] == ["H100", "84.9", "GB", "3.4", "989", "1979", "450", "64"]
    assert max(map(len, lines)) <= 80
    found = json.loads(run("list", "--json").output)
    assert [gpu["name"] for gpu in found["gpus"]] == list(gpus())
    assert [tpu["name"] for tpu in found["tpus"]] == list(tpus())
    assert "v5p     103 GB   2.8      459    459        600         16  ICI, 6 links" in lines
    assert {"key", "name", "bandwidth", "latency_us"} <= found["networks"][0].keys()


def test_show():
    done = run("show", "2x8xH200")
    lines = done.output.splitlines()

    assert lines[0] == (
        "2x8xH200: 16 × NVIDIA H200 · 2 hosts · topology 1x2x8 · compute capability 9.0"
    )
    assert "measured  nothing, models only" in done.output
    assert "power     700 W at most" in lines
    assert [line.split()[:2] for line in lines if line.endswith("modelled")][::4] == [
        ["8", "all-gather"],
        ["16", "all-gather"],
    ]
    assert max(map(len, lines)) <= 80
    found = json.loads(run("show", "2x8xH200", "--json").output)
    assert (found["devices"], found["topology"], found["gpu"]["cores"]) == (16, "1x2x8", 132)
    assert len(found["collectives"]) == 24


def test_show_tpus():
    lines = run("show", "2xv5e-128").output.splitlines()

    assert lines[0] == "2xv5e-128: 256 × TPU v5 lite · 2 slices · 64 hosts · topology 2xv5e:8x16"
    assert "network   dcn, 100 Gb/s per host, each way, 250 µs" in lines
    assert "torus 8x16 that wraps around along" in "\n".join(lines)
    assert max(map(len, lines)) <= 80
    found = json.loads(run("show", "tpu7x-8", "--json").output)
    assert (found["devices"], found["tpu"]["devices_per_chip"]) == (8, 2)
    assert found["torus"] == {"shape": [2, 2, 1], "wraps": [False] * 3}


def test_one_gpu_has_nobody_to_talk_to():
    assert "collective " not in run("show", "H200").output


def test_calibrate_and_show_what_came_of_it(tmp_path):
    text, out = tmp_path / "ag.txt", tmp_path / "mine.toml"
    text.write_text(TEXT)

    done = run("calibrate", text, "-o", out)

    assert done.output.splitlines() == [
        "all-gather · 2 GPUs · 2 sizes, 1.05 MB to 2.1 MB",
        f"wrote {out}",
        f"see it: slipstream machines show {out}",
    ]
    assert tomllib.loads(out.read_text()) == {
        "gpu": "H100",
        "hosts": 1,
        "gpus_per_host": 2,
        "calibration": {
            "collectives": [
                {"kind": "all-gather", "group": 2, "hosts": 1, "source": "ag.txt",
                 "bytes": [2**20, 2**21], "us": [40.1, 60.85]}
            ]
        },
    }  # fmt: skip
    assert "1.05 MB" in run("show", out).output and "calibrated" in run("show", out).output
    found = json.loads(run("calibrate", text, "-o", out, "--json").output)
    assert (found["file"], found["collectives"][0]["us"]) == (str(out), [40.1, 60.85])


def test_calibrate_from_a_recording(data, tmp_path):
    out = tmp_path / "mine.toml"

    recording = data / "nccl2_lhs_r0.xplane.pb.gz"
    done = run("calibrate", recording, "--gpu", "2x1xH200", "--network", "sockets", "-o", out)

    assert done.exit_code == 0, done.output
    assert "reduce-scatter · 2 GPUs in 2 hosts" in done.output
    found = tomllib.loads(out.read_text())
    assert (found["network"], found["hosts"], found["gpus_per_host"]) == ("sockets", 2, 1)
    assert found["calibration"]["kernels"]["scales"]["fusion"] > 0


def test_one_gpu_calibrates_kernels_alone(data, tmp_path):
    out = tmp_path / "mine.toml"

    recording = data / "single.xplane.pb.gz"
    done = run("calibrate", recording, "--gpu", "H200", "-o", out)

    scales = tomllib.loads(out.read_text())["calibration"]["kernels"]["scales"]
    assert f"gemm kernels · {scales['gemm']:.2f} × the model" in done.output
    assert f"measured  kernels ({', '.join(scales)})" in run("show", out).output
    assert "calibrated" in {
        kernel_time(machine(str(out)), program, instruction).basis
        for program in load(recording).programs.values()
        for instruction in program.scheduled
    }


def test_a_calibrated_machine_meets_its_recording(data, tmp_path):
    """Kernels are scaled from the clock of the recorded step, which is also the predicted one."""
    out = tmp_path / "mine.toml"
    recording = data / "accuracy/gpt_cudnn.no_graphs.xplane.pb.gz"
    run("calibrate", recording, "--gpu", "H200", "-o", out)

    profile = load(recording)
    program = max(profile.programs.values(), key=lambda one: len(list(one.scheduled)))
    measured = step_times(profile).compute_us
    found = predict(program, machine(str(out)), command_buffers=False)
    assert found.compute_us == pytest.approx(measured, rel=0.02)


def test_errors(tmp_path):
    text = tmp_path / "empty.txt"
    text.write_text("nothing\n")

    assert isinstance(run("show", "8xH20").exception, BadInput)
    nothing = run("calibrate", text, "--gpu", "H200", "-o", tmp_path / "x.toml").exception
    assert "has no nccl-tests rows" in str(nothing)
    unknown = run("calibrate", text, "--gpu", "H200", "--network", "nd", "-o", tmp_path / "x.toml")
    assert "there is no network 'nd'; did you mean ndr?" in str(unknown.exception)
    assert not (tmp_path / "x.toml").exists()

"""`slipstream compile`, as people type it."""

import json
import subprocess
import sys

from json_contract import check
from slipstream.compiler.local_gpu import visible_gpu
from slipstream.sources.hlo.reader import read_program

QUICK = "--xla_gpu_enable_triton_gemm=false --xla_backend_optimization_level=0"


def slipstream(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "slipstream", "compile", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _described(computations):
    return sorted((i.name, i.opcode, str(i.shape)) for c in computations for i in c.instructions)


def test_what_it_prints_and_writes(step, tmp_path):
    proto, text = tmp_path / "step.hlo.pb", tmp_path / "step.hlo"
    target = (f"{step}:build", "--on", "8xH200", "--flags", QUICK)
    done = slipstream(*target, "-o", str(proto))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("jit_step · 8 devices of 8xH200 · ")
    assert any(line.startswith("all-gather ") for line in lines)
    assert any(line.startswith("memory of each H200: ") for line in lines)
    assert lines[-1] == f"written: {proto}"

    done = slipstream(*target, "-o", str(text), "--json")
    check("compile", done.stdout)
    found = json.loads(done.stdout)
    assert found["is_cached"] and found["written"] == str(text)
    assert found["memory"]["fits"] and found["memory"]["peak_bytes"] > 0
    assert [row["kind"] for row in found["collectives"]] == ["all-gather"]
    assert found["flags"] == {
        "xla_gpu_enable_triton_gemm": "False",
        "xla_backend_optimization_level": "0",
    }
    # Text and proto are one program; their hashes differ, since the proto says more.
    ours, theirs = (
        [
            (i.name, i.opcode, str(i.shape))
            for c in one.computations.values()
            for i in c.instructions
        ]
        for one in (read_program(text), read_program(proto))
    )
    assert sorted(ours) == sorted(theirs)
    assert read_program(text).fingerprint == found["fingerprint"]


def test_exit_codes(step, tmp_path):
    wrong = slipstream(f"{step}:raises")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert wrong.stderr.startswith(f"error: {step}:raises raised ValueError: no such layer at ")
    ending = slipstream(f"{step}:build", "--flags", QUICK, "-o", str(tmp_path / "step.json"))
    assert ending.returncode == 2 and "expected .hlo.pb" in ending.stderr
    if visible_gpu() is None:
        assert slipstream(f"{step}:build", "--use-gpu").returncode == 3


def test_devices_to_build_a_mesh_of():
    script = (
        "from slipstream.compiler.worker.topology import devices\n"
        "from jax.sharding import Mesh\n"
        "mesh = Mesh(devices('2x4xH200'), ('data',))\n"
        "print(mesh.size, sorted({d.process_index for d in mesh.devices.flat}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "8 [0, 1]\n", done.stderr

"""`slipstream simulate` and the parts of `predict` that need no compiler."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from slipstream.analyses.memory import program_memory
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.sources.hlo.reader import read_program

KEYS = {
    "machine", "devices", "program", "step_us", "low_us", "high_us", "compute_us",
    "communication_us", "exposed_communication_us", "copy_us", "exposed_copy_us", "idle_us",
    "memory_bytes", "memory_capacity_bytes", "mfu", "power", "bounds", "basis", "waits",
    "messages", "unknown", "what_if",
    "fingerprint", "versions",
}  # fmt: skip

PROGRAM = "off_default.hlo.gz"


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def simulated(data: Path, *arguments: str) -> str:
    program, costs = data / PROGRAM, data / "off_lhs_nocb.xplane.pb.gz"
    return run("simulate", str(program), "--costs", str(costs), *arguments)


def test_json_of_one_machine(data: Path) -> None:
    found: dict[str, Any] = json.loads(simulated(data, "--on", "H200", "--json"))
    assert found.keys() == KEYS
    assert found["basis"] == {"measured": 1.0}
    assert 440e3 < found["step_us"] < 480e3
    assert found["bounds"].keys() == {
        "compute_us", "critical_path_us", "memory_us", "least_us", "links_us", "gain",
    }  # fmt: skip
    assert found["bounds"]["least_us"] <= found["step_us"]
    assert found["low_us"] < found["step_us"] < found["high_us"]
    assert found["memory_bytes"] == program_memory(read_program(data / PROGRAM)).peak_bytes
    assert 0.3 < found["mfu"] < 0.6
    assert found["power"] is None  # the costs contain the clock of their recording
    worst = found["waits"][0]
    assert worst["kind"] == "host copy"
    assert worst["why"] == "a command buffer captures it, so it is serialised with the kernels"


def test_json_of_several_machines_is_a_list(data: Path) -> None:
    found = json.loads(simulated(data, "--on", "H200,8xH200", "--json"))
    assert [one["machine"] for one in found["predictions"]] == ["H200", "8xH200"]
    assert all(one.keys() == KEYS for one in found["predictions"])


def test_the_screen_and_the_waits(data: Path) -> None:
    shown = simulated(data, "--on", "H200", "--no-command-buffers", "--waits")
    lines = shown.splitlines()
    assert lines[0] == "jit_step"
    assert [line.split()[0] for line in lines[2:7]] == [
        "step", "compute", "exposed", "lower", "overlap",
    ]  # fmt: skip
    assert "memory                  20.8 GB of 150 GB" in lines
    assert "basis of the times: 100% measured" in shown
    assert "waits on H200" in shown
    assert "dynamic-slice-start.1" in shown


def test_the_timeline_is_a_profile(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "step.xplane.pb"
    found = json.loads(simulated(data, "--on", "H200", "--json", "--timeline", str(file)))
    summary = json.loads(run("summary", str(file), "--json"))
    assert summary["per_step_us"]["wall"] == pytest.approx(found["step_us"])
    assert summary["warnings"][0]["code"] == "simulated"


def test_several_timelines_have_several_names(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "step.xplane.pb"
    simulated(data, "--on", "H200,2xH200", "--timeline", str(file))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"step.H200.xplane.pb", "step.2xH200.xplane.pb"}


def test_a_program_before_optimisation_is_for_predict(tmp_path: Path) -> None:
    program = tmp_path / "before.txt"
    program.write_text(
        "HloModule before\n\nENTRY %main (a: f32[8]) -> f32[8] {\n"
        "  %a = f32[8] parameter(0)\n  ROOT %b = f32[8] negate(%a)\n}\n"
    )
    with pytest.raises(BadInput, match="compile and predict it: slipstream predict"):
        run("simulate", str(program))


def test_a_machine_that_is_none(data: Path) -> None:
    with pytest.raises(BadInput, match="H200"):
        simulated(data, "--on", "8xH2000")

"""`slipstream flags lint` and `slipstream flags preset` as people type them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput, CheckFailed

SCRIPT = """#!/bin/bash
export XLA_FLAGS="--xla_gpu_graph_level=0 --xla_gpu_enable_pipelined_p2p=true"
python train.py
"""


def run(*arguments: object, env: dict[str, str | None] | None = None):
    return CliRunner().invoke(app, ["flags", *map(str, arguments)], env=env)


@pytest.fixture
def script(tmp_path: Path) -> Path:
    file = tmp_path / "job.sh"
    file.write_text(SCRIPT)
    file.chmod(0o755)
    return file


def test_lint_says_what_would_end_the_job(script: Path) -> None:
    done = run("lint", script, "--jaxlib", "0.10.2")
    assert isinstance(done.exception, CheckFailed)
    assert done.exception.exit_code == 1
    assert f"slipstream flags lint {script} --fix" in str(done.exception)
    lines = done.output.splitlines()
    assert lines[0] == f"{script}:2:19: abort retired"
    assert lines[-1] == "jaxlib 0.10.2: 1 abort"
    assert script.read_text() == SCRIPT


def test_lint_of_an_old_release(script: Path) -> None:
    done = run("lint", script, "--jaxlib", "0.4.26")
    assert done.exit_code == 0, done.output


def test_fix_rewrites(script: Path) -> None:
    done = run("lint", script, "--jaxlib", "0.10.2", "--fix")
    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [f"{script}: 1 fixed", "jaxlib 0.10.2: no problems found"]
    assert script.read_text() == SCRIPT.replace(
        "--xla_gpu_graph_level=0", "--xla_gpu_enable_command_buffer="
    )
    assert os.access(script, os.X_OK)


def test_json(script: Path) -> None:
    done = run("lint", script, "--jaxlib", "0.10.2", "--gpu", "H100", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["code"], finding["severity"]) == ("retired", "abort")
    assert finding["place"]["line"] == 2


def test_the_environment() -> None:
    flags = {"XLA_FLAGS": "--xla_nope=1"}
    done = run("lint", "--jaxlib", "0.10.2", env=flags)
    assert isinstance(done.exception, CheckFailed)
    assert "environment: abort unknown" in done.output


def test_fix_needs_a_file() -> None:
    assert isinstance(run("lint", "--fix").exception, BadInput)


def test_preset() -> None:
    done = run("preset", "fsdp", "pgle-performance", "--for", "json", "--jaxlib", "0.10.2")
    assert done.exit_code == 0, done.output
    flags = json.loads(done.stdout)["XLA_FLAGS"].split()
    assert "--xla_gpu_pgle_profile_file_or_directory_path=profile.pbtxt" in flags
    assert "--xla_gpu_all_gather_combine_threshold_bytes=8589934592" in flags


def test_preset_as_json_says_why() -> None:
    done = run("preset", "memory", "--json", "--jaxlib", "0.10.2")
    said = json.loads(done.stdout)
    assert said["environment"]["XLA_PYTHON_CLIENT_MEM_FRACTION"] == "0.9"
    assert [row["today"] for row in said["left_out"]] == ["default", "retired"]


def test_presets_are_listed() -> None:
    lines = run("preset", "--list").output.splitlines()
    assert lines[0].startswith("pgle-profile")
    assert max(map(len, lines)) <= 80
    assert isinstance(run("preset").exception, BadInput)

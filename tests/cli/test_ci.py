"""The workflow of docs/ci.md: its YAML, and its shell steps on commits of a real repository."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOW = ROOT / "examples" / "ci" / "predict.yml"
TRAIN = """
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS = 2


def build(devices):
    mesh = Mesh(np.array(devices), ("data",))
    batch = NamedSharding(mesh, PartitionSpec("data"))

    def step(x, w):
        for _ in range(LAYERS):
            x = jnp.tanh(x @ w)
        return x

    x = jax.ShapeDtypeStruct((4096, 2048), jnp.bfloat16)
    w = jax.ShapeDtypeStruct((2048, 2048), jnp.bfloat16)
    return jax.jit(step, in_shardings=(batch, batch), out_shardings=batch), (x, w)
"""
GH = """#!/bin/sh
echo "$@" >> "$RUNNER_TEMP/gh.log"
"""


def steps() -> dict[str, dict[str, Any]]:
    """The steps of the workflow that have a name."""
    job = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]["predict"]
    assert job["env"] == {"TARGET": "train.py:build", "MACHINES": "64xH100", "GATE": "2%"}
    return {step["name"]: step for step in job["steps"] if "name" in step}


class Runner:
    """A repository, and the shell of a runner of GitHub Actions in it."""

    def __init__(self, folder: Path) -> None:
        self.repository, self.temporary = folder / "repository", folder / "temporary"
        for place in (self.repository, self.temporary, folder / "bin"):
            place.mkdir()
        (folder / "bin" / "gh").write_text(GH)
        (folder / "bin" / "gh").chmod(0o755)
        commands = Path(sys.executable).parent
        self.environment = {
            **os.environ,
            "PATH": f"{folder / 'bin'}:{commands}:{os.environ['PATH']}",
            "XDG_CACHE_HOME": str(folder / "cache"),
            "TARGET": "train.py:build",
            "MACHINES": "4xH100",
            "GATE": "2%",
            "RUNNER_TEMP": str(self.temporary),
            "GITHUB_STEP_SUMMARY": str(self.temporary / "summary.md"),
            "GITHUB_REPOSITORY": "owner/name",
            "NUMBER": "7",
        }
        self.shell("git init -q && git config user.name t && git config user.email t@example.com")

    def commit(self, train: str) -> None:
        (self.repository / "train.py").write_text(train)
        self.shell("git add -A && git commit -qm change")

    def shell(self, script: str, returncode: int = 0) -> str:
        # As GitHub runs a step on Linux.
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            cwd=self.repository,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    def summary(self) -> str:
        return (self.temporary / "summary.md").read_text(encoding="utf-8")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    runner = Runner(tmp_path)
    runner.commit(TRAIN)
    return runner


def test_a_slower_commit_fails_and_a_moved_line_passes(runner: Runner) -> None:
    named = steps()
    runner.commit(TRAIN.replace("LAYERS = 2", "LAYERS = 3"))
    runner.shell(named["Predict the base"]["run"])
    said = runner.shell(named["Predict the pull request"]["run"], returncode=1)
    assert "gate 2.0%: failed: the step is slower by" in said
    runner.shell(named["Show the comparison"]["run"])
    assert ": failed\n" in runner.summary()
    runner.shell(named["Comment"]["run"])
    assert "pr comment 7 --body-file" in (runner.temporary / "gh.log").read_text()

    # Against the same base: its own code, two lines further down.
    (runner.repository / "train.py").write_text(f"# moved\n\n{TRAIN}".replace("x @ w", "(x @ w)"))
    said = runner.shell(named["Predict the pull request"]["run"])
    assert "gate 2.0%: passed: the same program" in said


def test_the_page_shows_the_workflow() -> None:
    assert WORKFLOW.read_text(encoding="utf-8") in (ROOT / "docs" / "ci.md").read_text("utf-8")


def test_jobs_may_do_only_what_they_need() -> None:
    workflow = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    # What a pull request may choose (its title, its branch) is in no script.
    assert all("${{" not in step.get("run", "") for step in workflow["jobs"]["predict"]["steps"])

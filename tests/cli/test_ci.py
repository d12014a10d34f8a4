"""The workflows of docs/ci.md: their YAML, and their shell steps on a repository's commits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from github_schema import github_schema

ROOT = Path(__file__).resolve().parent.parent.parent
WORKFLOWS = ("predict", "diff")
SETTINGS = {
    "predict": {"TARGET": "train.py:build", "MACHINES": "8xH100", "GATE": "2%"},
    "diff": {"TRAIN": "python train.py", "CAPTURE": "10:20", "GATE": "2%"},
}
BUILD = """
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
TRAIN = """
import jax
import jax.numpy as jnp
import numpy as np

LAYERS = 1


@jax.jit
def step(w, x):
    for _ in range(LAYERS):
        x = jnp.tanh(x @ w)
    return 0.99 * w, x.sum()


w = jnp.asarray(np.linspace(-0.1, 0.1, 512 * 512, dtype=np.float32).reshape(512, 512))
x = jnp.asarray(np.eye(512, dtype=np.float32))
for _ in range(200):
    w, loss = step(w, x)
    float(loss)
"""
GH = """#!/bin/sh
echo "$@" >> "$RUNNER_TEMP/gh.log"
case "$*" in *--paginate*) cat "$RUNNER_TEMP/comments" 2>/dev/null || true;; esac
"""


def text_of(name: str) -> str:
    return (ROOT / "examples" / "ci" / f"{name}.yml").read_text(encoding="utf-8")


def scripts(name: str) -> dict[str, str]:
    """The shell steps of a workflow that have a name."""
    job = yaml.safe_load(text_of(name))["jobs"][name]
    assert job["env"] == SETTINGS[name]
    return {step["name"]: step["run"] for step in job["steps"] if "name" in step and "run" in step}


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
            **SETTINGS["predict"],
            **SETTINGS["diff"],
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
        # As GitHub runs a step on Linux that names no shell.
        done = subprocess.run(
            ["bash", "-e", "-c", script],
            cwd=self.repository,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == returncode, done.stdout + done.stderr
        return done.stdout + done.stderr

    def read(self, name: str) -> str:
        return (self.temporary / name).read_text(encoding="utf-8")


@pytest.fixture
def runner(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


def test_a_slower_or_larger_prediction_fails_and_a_moved_line_passes(runner: Runner) -> None:
    runner.commit(BUILD)
    step = scripts("predict")
    runner.commit(BUILD.replace("LAYERS = 2", "LAYERS = 3"))
    runner.shell(step["Predict the base"])
    said = runner.shell(step["Predict the pull request"], returncode=1)
    assert "8xH100: gate 2.0%: failed: the step is slower by" in said
    runner.shell(step["Show the comparison"])
    assert ": failed\n" in runner.read("summary.md")
    runner.shell(step["Comment"])
    assert "pr comment 7 --body-file" in runner.read("gh.log")

    # Against the same base: a second result, then its own code, two lines further down.
    train = runner.repository / "train.py"
    train.write_text(BUILD.replace("return x\n", "return x, x.astype(jnp.float32)\n"))
    said = runner.shell(step["Predict the pull request"], returncode=1)
    assert "8xH100: gate 2.0%: failed: a device needs" in said and "more memory" in said
    train.write_text(f"# moved\n\n{BUILD}".replace("x @ w", "(x @ w)"))
    said = runner.shell(step["Predict the pull request"])
    assert "gate 2.0%: passed: the same program" in said


def test_a_slower_recording_fails_and_a_moved_line_passes(runner: Runner) -> None:
    runner.environment |= {"JAX_PLATFORMS": "cpu"}
    # No noise of a busy machine is as large as this.
    runner.environment |= {"GATE": "300%"}
    step = scripts("diff")
    runner.commit(TRAIN)
    runner.commit(TRAIN.replace("LAYERS = 1", "LAYERS = 40"))
    runner.shell(step["Record the base"])
    runner.shell(step["Record the pull request"])
    said = runner.shell(step["Compare"], returncode=1)
    assert "gate 300.0%: failed: slower by at least" in said
    assert "base/profile" in runner.read("diff.html")
    runner.shell(step["Show the comparison"])
    assert runner.read("summary.md").splitlines()[:2] == [
        "<!-- slipstream diff -->",
        r"### Step of jit\_step: failed",
    ]
    runner.shell(step["Comment"])
    assert "pr comment 7 --body-file" in runner.read("gh.log")

    # The next commit is its own base, two lines further down. The runner's folder is empty again.
    runner.commit(f"# moved\n\n{TRAIN}")
    runner.shell('rm -rf "$RUNNER_TEMP"/* && git reset -q --soft HEAD~2 && git commit -qm moved')
    (runner.temporary / "comments").write_text("12\n")
    runner.shell(step["Record the base"])
    runner.shell(step["Record the pull request"])
    assert "gate 300.0%: passed" in runner.shell(step["Compare"])
    runner.shell(step["Comment"])
    assert "--method PATCH repos/owner/name/issues/comments/12 -F body=@" in runner.read("gh.log")


def test_a_runner_without_gh_leaves_no_comment_and_does_not_fail(runner: Runner) -> None:
    (runner.temporary / "comment.md").write_text("<!-- slipstream diff -->\n")
    bash = shutil.which("bash")
    assert bash
    (runner.temporary / "bash").symlink_to(bash)
    runner.environment["PATH"] = str(runner.temporary)
    said = runner.shell(scripts("diff")["Comment"])
    assert said == "::warning::no comment: this runner has no gh\n"


@pytest.mark.parametrize("name", WORKFLOWS)
def test_the_page_shows_the_workflow(name: str) -> None:
    assert text_of(name) in (ROOT / "docs" / "ci.md").read_text("utf-8")


def test_workflows_comment_alike() -> None:
    """Each keeps one comment of its own up to date, by the first line of it."""
    comments = {scripts(name)["Comment"] for name in WORKFLOWS}
    assert len(comments) == 1


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_fit_the_schema_of_github(name: str, tmp_path: Path) -> None:
    def checked(workflow: str) -> str:
        (tmp_path / "workflow.yml").write_text(workflow)
        return github_schema("workflows", tmp_path / "workflow.yml")

    assert checked(text_of(name)) == "ok -- validation done\n"
    assert "timeout-minute" in checked(text_of(name).replace("timeout-minutes:", "timeout-minute:"))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_jobs_may_do_only_what_they_need(name: str) -> None:
    workflow = yaml.safe_load(text_of(name))
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    # What a pull request may choose (its title, its branch) is in no script.
    assert all("${{" not in script for script in scripts(name).values())


def test_a_fork_runs_nothing_on_a_machine_of_ours() -> None:
    job = yaml.safe_load(text_of("diff"))["jobs"]["diff"]
    own = "github.event.pull_request.head.repo.full_name == github.repository"
    assert ("self-hosted" in job["runs-on"], job["if"]) == (True, own)

"""What surrounds a release: packages built, issue forms, pre-commit hooks, release notes."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from hatchling.builders.sdist import SdistBuilder

from github_schema import github_schema

ROOT = Path(__file__).resolve().parent.parent
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))


def test_the_sdist_has_what_a_build_and_the_site_need() -> None:
    names = {one.distribution_path for one in SdistBuilder(str(ROOT)).recurse_included_files()}
    # What every build has (pyproject.toml, README.md, LICENSE) Hatchling adds by itself.
    wanted = {"CHANGELOG.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "Makefile"}
    wanted |= {"src/slipstream/__init__.py", "docs/conf.py", "examples/clusters/Dockerfile"}
    assert wanted <= names


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_issue_forms_ask_questions(form: Path) -> None:
    told = yaml.safe_load(form.read_text())
    assert {"name", "description", "body"} <= told.keys()
    identifiers = [part["id"] for part in told["body"]]
    assert len(set(identifiers)) == len(identifiers)
    assert any(part.get("validations", {}).get("required") for part in told["body"])


def test_issue_forms_fit_the_schema_of_github() -> None:
    assert len(FORMS) >= 3
    assert github_schema("issue-forms", *FORMS) == "ok -- validation done\n"


def test_hooks_call_what_is_there() -> None:
    repos = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    makefile = (ROOT / "Makefile").read_text()
    for hook in (hook for repo in repos for hook in repo["hooks"]):
        assert hook["entry"].replace(".venv/bin", "$(BIN)") in makefile, "not part of make check"


def test_release_notes_are_a_section_of_the_changelog() -> None:
    script = [sys.executable, str(ROOT / "scripts" / "release_notes.py")]
    done = subprocess.run([*script, "Unreleased"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("### ")
    assert done.stdout.strip() in (ROOT / "CHANGELOG.md").read_text()
    done = subprocess.run([*script, "99.0"], capture_output=True, text=True)
    assert done.returncode == 2 and "it has Unreleased" in done.stderr


def test_classifiers_name_the_pythons_that_are_tested() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = {one.rpartition(" ")[2] for one in project["classifiers"] if ":: Python :: 3." in one}
    assert named == {"3.11", "3.12", "3.13"}
    line = next(
        one for one in (ROOT / "Makefile").read_text().splitlines() if "DIST_PYTHONS ?=" in one
    )
    assert named <= set(line.split())
    assert "\npart make test-dist\n" in (ROOT / ".ci" / "run").read_text()


def test_a_package_that_no_python_could_try_is_not_fine() -> None:
    words = [sys.executable, str(ROOT / "scripts" / "check_dist.py"), "slipstream.whl"]
    done = subprocess.run(
        [*words, "--python", "9.9", "--where-found"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (1, "Python 9.9: not on this machine\n")


def test_the_compiler_comes_for_one_cuda_or_the_other() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    names = {
        extra: [re.split("[>;]", one)[0] for one in extras[extra]]
        for extra in ("compiler", "compiler-cuda12")
    }
    # From CUDA 13 on, NVIDIA's packages don't say their version.
    assert names["compiler"] == ["jax", "jax-cuda13-plugin", "nvidia-cuda-nvcc"]
    assert names["compiler-cuda12"] == ["jax", "jax-cuda12-plugin", "nvidia-cuda-nvcc-cu12"]

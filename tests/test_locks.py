"""Lock files: complete, hashed, in step with pyproject.toml."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11.7", "3.12.1")
STACKS = {"stacks-libraries": "3.11.7", "stacks-levanter": "3.12.1", "stacks-maxtext": "3.12.1"}
"""environments of trainers and trackers, and their oldest Python"""
TESTED = {
    "trainers/keras": ["stacks-libraries"],
    "trainers/flax": ["stacks-libraries"],
    "trainers/equinox": ["stacks-libraries"],
    "trainers/levanter": ["stacks-levanter"],
    "trainers/maxtext": ["stacks-maxtext"],
    "trackers": ["stacks-libraries", "test"],
}
"""pages that say which versions they were tested with, and the locks that have these"""


def entries(name: str) -> list[tuple[Requirement, list[str]]]:
    """(requirement, hashes) of every package of a lock file."""
    text = (LOCKS / f"{name}.txt").read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = []
    for line in lines:
        wanted, *hashes = line.split(" --hash=")
        found.append((Requirement(wanted), [one.strip() for one in hashes]))
    return found


def locked(name: str, python: str) -> dict[str, str]:
    """Version of every package that a lock file installs on Linux with a Python."""
    about = {"python_full_version": python, "python_version": python.rpartition(".")[0],
             "sys_platform": "linux", "platform_system": "Linux"}  # fmt: skip
    found = {}
    for wanted, _ in entries(name):
        if wanted.marker is None or wanted.marker.evaluate(about):
            (pin,) = wanted.specifier
            assert pin.operator == "=="
            assert canonicalize_name(wanted.name) not in found, f"{wanted.name} twice"
            found[canonicalize_name(wanted.name)] = pin.version
    return found


def declared(extra: str | None) -> list[Requirement]:
    """What pyproject.toml asks for, with the extras that an extra includes."""
    texts = PROJECT["dependencies"] if extra is None else PROJECT["optional-dependencies"][extra]
    found: list[Requirement] = []
    for wanted in map(Requirement, texts):
        if wanted.name == PROJECT["name"]:
            found += [one for inner in sorted(wanted.extras) for one in declared(inner)]
        else:
            found.append(wanted)
    return found


@pytest.mark.parametrize("name", ["core", "demo", "test", "lowest", *STACKS])
def test_every_package_has_hashes_and_no_file_names_an_index(name: str) -> None:
    text = (LOCKS / f"{name}.txt").read_text()
    assert "://" not in text and "index" not in text and "find-links" not in text
    for wanted, hashes in entries(name):
        assert hashes, wanted
        assert all(re.fullmatch("sha256:[0-9a-f]{64}", one) for one in hashes)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(("name", "extra"), [("core", None), ("demo", "demo"), ("test", "test")])
def test_locks_have_what_is_declared(name: str, extra: str | None, python: str) -> None:
    """If this fails, pyproject.toml has changed: make lock."""
    found = locked(name, python)
    wanted = [*declared(None), *declared("editable"), *(declared(extra) if extra else [])]
    for one in wanted:
        version = found.get(canonicalize_name(one.name))
        assert version is not None, f"{one.name} is not in {name}.txt"
        assert one.specifier.contains(version), f"{one} but {name}.txt has {version}"


@pytest.mark.parametrize("python", PYTHONS)
def test_locks_agree_with_each_other(python: str) -> None:
    everything = locked("test", python).items()
    assert locked("core", python).items() <= locked("demo", python).items() <= everything


@pytest.mark.parametrize(("name", "python"), STACKS.items())
def test_stacks_have_the_pinned_versions_and_all_that_slipstream_needs(
    name: str, python: str
) -> None:
    """If this fails, tests/stacks/requirements-*.txt or pyproject.toml has changed: make lock."""
    pinned = ROOT / "tests" / "stacks" / f"{name.replace('stacks', 'requirements')}.txt"
    lines = [line.partition("#")[0].strip() for line in pinned.read_text().splitlines()]
    found = locked(name, python)
    for one in [*declared(None), *declared("editable"), *map(Requirement, filter(None, lines))]:
        version = found.get(canonicalize_name(one.name))
        assert version is not None, f"{one.name} is not in {name}.txt"
        assert one.specifier.contains(version, prereleases=True), f"{one} but {version}"
    assert {"pytest", "pytest-rerunfailures", "hypothesis"} <= found.keys()


@pytest.mark.parametrize(("page", "locks"), TESTED.items())
def test_pages_name_the_versions_that_are_installed(page: str, locks: list[str]) -> None:
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    matched = re.search(
        r"[Tt]ested with ((?:(?:, | and )?[\w-]+ \d[\d.]*\d(?: \([^)]*\))?)+)", text
    )
    assert matched, f"{page}.md doesn't say what it was tested with"
    found = {}
    for lock in locks:
        found |= locked(lock, STACKS.get(lock, PYTHONS[0]))
    found = {"mlflow": found.get("mlflow-skinny", ""), "python": "3.12", **found}
    for name, version in re.findall(r"([\w-]+) (\d[\d.]*\d)", matched[1]):
        installed = found[canonicalize_name(name)]
        assert f"{installed}.".startswith(f"{version}."), f"{name} {installed}; docs: {version}"


def test_the_lowest_versions_are_those_of_pyproject() -> None:
    found = locked("lowest", PYTHONS[0])
    for one in declared(None):
        (bound,) = [part.version for part in one.specifier if part.operator == ">="]
        assert Version(found[canonicalize_name(one.name)]) == Version(bound), one


def test_what_is_installed_has_all_that_it_needs() -> None:
    """Packages are installed from the lock files without being resolved: nothing may be missing."""
    command = [sys.executable, "-m", "pip", "check", "--disable-pip-version-check"]
    checked = subprocess.run(command, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout

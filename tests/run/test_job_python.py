"""The job's Python, found and asked before the job starts; and jobs in another environment."""

import importlib.metadata
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from run_jobs import OTHER, Started, environment, run, run_short, train
from slipstream.errors import Missing
from slipstream.run.job_python import JobPython, _require, check_python, python_of

RELOCATABLE = """'''exec' "$(dirname -- "$(realpath -- "$0")")"/'python3' "$0" "$@\""""
"""how uv lets a script find the Python beside it"""
FULL = JobPython("/job/bin/python", (3, 12, 1), None, True, "0.10.2", ())


@pytest.fixture
def tools(tmp_path):
    """A PATH with a Python and scripts beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").symlink_to(sys.executable)
    scripts = {
        "train": f"#!{folder}/python3\n",
        "by-env": "#!/usr/bin/env -S python3 -u\n",
        "long": f"#!/bin/sh\n'''exec' {folder}/python3 \"$0\" \"$@\"\n",
        "moved": f"#!/bin/sh\n{RELOCATABLE}\n",
        "shell": "#!/bin/sh\npython3 train.py\n",
    }  # fmt: skip
    for name in (*scripts, "mpirun", "env", "uv"):
        (folder / name).write_text(scripts.get(name, "#!/bin/sh\n"))
        (folder / name).chmod(0o755)
    return folder


@pytest.mark.parametrize(
    "command",
    [
        ("python3", "train.py"),
        ("train", "--steps", "3"),
        ("by-env",),
        ("long",),
        ("moved",),
        ("env", "A=1", "python3", "-m", "train"),
        ("mpirun", "-n", "2", "train"),
    ],
    ids=" ".join,
)
def test_the_python_of_a_command_is_found_on_the_jobs_path(tools, command):
    assert python_of(command, {"PATH": str(tools)}) == [str(tools / "python3")]


@pytest.mark.parametrize("command", [("shell",), ("no-such-command",), ("mpirun", "-n", "2")])
def test_a_command_that_is_not_recognisably_python(tools, command):
    assert python_of(command, {"PATH": str(tools)}) is None


def test_uv_and_poetry_run_in_the_project_that_one_stands_in(tools, tmp_path, monkeypatch):
    python = tmp_path / "project" / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    (tmp_path / "project" / "pyproject.toml").touch()
    (tmp_path / "project" / "alone.py").write_text("# /// script\n# dependencies = []\n# ///\n")
    (tmp_path / "project" / "src").mkdir()
    monkeypatch.chdir(tmp_path / "project" / "src")
    path = {"PATH": str(tools)}
    assert python_of(("uv", "run", "python", "x.py"), path) == [str(python)]
    assert python_of(("poetry", "run", "train"), path) == [str(python)]
    # With options, or for a script that brings its own packages, it is another environment.
    assert python_of(("uv", "run", "--with", "jax", "x.py"), path) is None
    assert python_of(("uv", "run", "../alone.py"), path) is None


def test_our_own_python_has_all_that_is_needed():
    found = check_python([sys.executable, "x.py"], environment())
    assert found.executable == sys.executable and found.version == sys.version_info[:3]
    assert found.jaxlib == importlib.metadata.version("jaxlib")
    assert (found.has_jax, found.missing) == (True, ())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": (3, 10, 2)}, "is Python 3.10.2; Slipstream needs 3.11 or newer"),
        ({"slipstream": "0.0.1"}, "has slipstream 0.0.1, and this is slipstream"),
        ({"missing": ("numba", "protobuf")}, "/job/bin/python -m pip install slipstream; nothing"),
        ({"missing": ("numba", "protobuf")}, "has no numba and no protobuf"),
    ],
)  # fmt: skip
def test_what_keeps_the_agent_out_is_an_error_with_the_fix(change, said):
    with pytest.raises(Missing) as raised:
        _require(JobPython(**{**vars(FULL), **change}))
    assert said in str(raised.value)


# Whole jobs, in an environment of their own.


def other_environment(folder, *without):
    """A virtual environment with our packages, but for slipstream and those."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    packages = folder / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        hidden = ("slipstream", "__editable__", "_virtualenv", *without)
        if entry.suffix != ".pth" and not entry.name.startswith(hidden):
            (packages / entry.name).symlink_to(entry)
    site = next((folder / "venv" / "lib").glob("python3*/site-packages"))
    (site / "packages.pth").write_text(f"{packages}\n")
    return folder / "venv" / "bin"


def test_a_job_in_an_environment_without_slipstream_is_measured(tmp_path):
    tools = other_environment(tmp_path)
    train(tmp_path)
    (tmp_path / "which.py").write_text(
        "import importlib.util\nassert importlib.util.find_spec('slipstream') is None\n"
        + (tmp_path / "train.py").read_text()
    )
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    done = run(
        tmp_path / "out",
        ["python", "which.py", "30"],
        *OTHER,
        "--rounds",
        "8",
        cwd=tmp_path,
        PATH=path,
    )
    assert done.is_as_without_us(), done.err
    assert done.phases == ["1 check", "2 profile", "3 costs", "4 compile", "5 compare", "verdict"]
    assert len(done.receipt["arms"]) == 5
    assert done.receipt["versions"]["slipstream"]


def test_a_job_in_an_environment_without_what_we_need_is_not_started(tmp_path):
    tools = other_environment(tmp_path, "numba", "google", "protobuf")
    job = [str(tools / "python"), "-c", "open('started', 'w')"]
    done = run(tmp_path / "out", job, cwd=tmp_path)
    assert done.code == 3
    assert "has no protobuf and no numba" in done.err.replace("\n", " ")
    assert f"{tools}/python -m pip install slipstream" in done.err
    assert not (tmp_path / "started").exists() and not (tmp_path / "out").exists()


def test_a_shell_script_whose_python_lacks_packages_runs_and_the_receipt_says_so(tmp_path):
    tools = other_environment(tmp_path, "numba", "google", "protobuf")
    train(tmp_path)
    (tmp_path / "job.sh").write_text(f"#!/bin/sh\nexec {tools}/python train.py 30\n")
    started = Started(tmp_path / "out", ["sh", "job.sh"], cwd=tmp_path)
    started.wait_until((tmp_path / "out" / "compare" / "rank0" / "request.json.problem").exists)
    started.let_end()
    done = started.wait()
    assert done.is_as_without_us(), done.err
    assert done.receipt["verdict"] == "can't tell"
    assert f"{tools}/python -m pip install slipstream" in done.receipt["why"]


def test_a_shell_script_that_never_loads_us_is_told_what_to_try(tmp_path):
    done = run_short(tmp_path / "out", ["sh", "-c", "exit 0"], cwd=tmp_path)
    why = done.receipt["why"]
    assert why.startswith("Slipstream was never loaded inside the job: it ran no Python, or its ")
    assert "python -m pip install slipstream" in why

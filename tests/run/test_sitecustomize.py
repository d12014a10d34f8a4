"""How the agent gets into the job."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

from slipstream.run.launcher import SITE, job_environment


def test_the_way_in_keeps_the_users_path(tmp_path):
    found = job_environment({"PYTHONPATH": "a::b", "X": "1"}, tmp_path / "o", {"X": "2"})
    assert found["PYTHONPATH"] == f"{SITE}:a:b"
    assert found["X"] == "2"
    assert job_environment({"X": "1"}, None) == {"X": "1"}


def test_the_way_in_comes_with_the_package():
    """It is found by its path, not imported, so nothing else would notice that it is missing."""
    package = Path(import_module("slipstream").__file__).parent
    assert (SITE / "sitecustomize.py").is_file()
    assert SITE.is_relative_to(package)


def test_a_process_without_jax_does_not_import_slipstream(tmp_path):
    environment = job_environment({}, tmp_path / "request.json")
    script = "import sys, json; print([m for m in sys.modules if m.startswith('slipstream')])"
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")

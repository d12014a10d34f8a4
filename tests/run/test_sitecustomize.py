"""How the agent gets into the job."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

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


# When the agent starts, with stand-ins for jax and for the agent.

FIND = "import importlib.util; find = lambda: importlib.util.find_spec('jax')\n"
THREADS = """
from threading import Thread
def do(work):
    threads = [Thread(target=work) for _ in range(8)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
"""
LAZY = """
spec = find()
spec.loader = importlib.util.LazyLoader(spec.loader)
jax = sys.modules["jax"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(jax)
print("not yet")
"""


@pytest.fixture
def in_job(tmp_path):
    """Runs a script as a job does; says what was printed, by the script, by jax and the agent."""
    agent = tmp_path / "path" / "slipstream" / "run" / "agent"
    agent.mkdir(parents=True)
    for folder in (agent, agent.parent, agent.parent.parent):
        (folder / "__init__.py").touch()
    (agent / "start.py").write_text("def start(path):\n    print('agent')\n")
    jax = tmp_path / "path" / "jax"
    jax.mkdir()
    (jax / "__init__.py").write_text(
        "import os\nprint('jax')\nif os.path.exists('broken'):\n    raise ImportError('broken')\n"
        "VALUE = 3\n"
    )
    (jax / "numpy.py").touch()

    def run(script):
        path = {"PYTHONPATH": str(tmp_path / "path")}
        done = subprocess.run(
            [sys.executable, "-c", f"import os, sys\n{script}"], cwd=tmp_path,
            env=job_environment(path, tmp_path / "request.json"), capture_output=True, text=True,
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout.split("\n")[:-1]

    return run


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("import jax", ["jax", "agent"]),
        ("import jax.numpy, jax", ["jax", "agent"]),
        (FIND + "find()\nprint(len([find(), find()]))\nimport jax", ["2", "jax", "agent"]),
        (FIND + "find()", []),
        (FIND + "import jax\nprint(find().name)", ["jax", "agent", "jax"]),
        (
            FIND + "one, other = find(), find()\nimport jax\n"
            "for spec in (one, other):\n"
            "    spec.loader.exec_module(importlib.util.module_from_spec(spec))",
            ["jax", "agent", "jax", "jax"],
        ),
        (
            FIND + "spec = find()\njax = importlib.util.module_from_spec(spec)\n"
            "sys.modules['jax'] = jax\nspec.loader.exec_module(jax)\nimport jax",
            ["jax", "agent"],
        ),
        (
            "import importlib, jax\nimportlib.reload(jax)\nprint(jax.VALUE)",
            ["jax", "agent", "jax", "3"],
        ),
        (
            "open('broken', 'w')\ntry:\n    import jax\nexcept ImportError:\n    print('no')\n"
            "os.remove('broken')\nimport jax",
            ["jax", "no", "jax", "agent"],
        ),
        (FIND + THREADS + "do(find)\ndo(lambda: __import__('jax'))", ["jax", "agent"]),
        (FIND + LAZY + "print(jax.VALUE)", ["not yet", "jax", "agent", "3"]),
        (
            "import jax\nprint(type(jax.__loader__).__name__, vars(jax.__loader__).keys())",
            ["jax", "agent", "SourceFileLoader dict_keys(['name', 'path'])"],
        ),
    ],
)
def test_the_agent_starts_once_when_jax_was_executed(in_job, script, printed):
    assert in_job(script) == printed


def test_the_agent_starts_if_the_users_sitecustomize_imports_jax(in_job, tmp_path):
    (tmp_path / "path" / "sitecustomize.py").write_text("import jax\n")
    assert in_job("import jax\nprint(jax.VALUE)") == ["jax", "agent", "3"]


def test_a_job_leaves_a_mark_of_how_far_slipstream_got(in_job, tmp_path):
    loaded, jax = tmp_path / "request.json.loaded", tmp_path / "request.json.jax"
    in_job(FIND + "find()")
    assert loaded.exists() and not jax.exists()
    in_job("import jax")
    assert jax.exists()


def test_an_agent_that_fails_leaves_the_import_alone(in_job, tmp_path):
    agent = tmp_path / "path" / "slipstream" / "run" / "agent" / "start.py"
    agent.write_text("def start(path):\n    raise ValueError('ours')\n")
    assert in_job("import jax\nprint(jax.VALUE)") == ["jax", "3"]
    assert "ValueError: ours" in (tmp_path / "request.json.problem").read_text()

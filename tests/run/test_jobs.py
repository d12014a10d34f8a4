"""Jobs of all shapes end with us as they do without us: output, exit code, results."""

import sys

import pytest

from run_jobs import OTHER, plain, run_short, train

LOOP = """
def f(w):
    for _ in range(2):
        w = jnp.tanh(w @ w)
    return w
step, w = jax.jit(f), jnp.asarray(np.full((32, 32), 0.01, np.float32))
"""

WORKERS = f"""
import multiprocessing, subprocess, sys

def square(x):
    import jax.numpy as jnp
    return float(jnp.square(x))

if __name__ == "__main__":
    import jax, jax.numpy as jnp, numpy as np
{"".join("    " + line + chr(10) for line in LOOP.strip().splitlines())}
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(square, [1.0, 2.0]))
    with multiprocessing.get_context("fork").Pool(1) as pool:
        print(pool.map(abs, [-1, -2]))
    print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True))
    for _ in range(150):
        w = step(w)
    print(float(w.sum()))
"""

MAIN = f"""
import argparse
import jax, jax.numpy as jnp, numpy as np
{LOOP}
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("rest", nargs="*")
    arguments = parser.parse_args()
    global w
    for _ in range(arguments.steps):
        w = step(w)
    print(arguments, float(w.sum()), __name__, __file__)

if __name__ == "__main__":
    main()
"""

RAISES = f"""
import jax, jax.numpy as jnp, numpy as np
{LOOP}
for number in range(40):
    w = step(w)
    if number == 30:
        raise ValueError("the user's own")
"""

PROFILES = f"""
import jax, jax.numpy as jnp, numpy as np, pathlib, sys
{LOOP}
def steps(count):
    global w
    for _ in range(count):
        w = step(w)
with jax.profiler.trace("own"):
    steps(12)
steps(7)
jax.profiler.start_trace("own2")
steps(3)
jax.profiler.stop_trace()
steps(150)
print(float(w.sum()), len(list(pathlib.Path("own").rglob("*.xplane.pb"))),
      len(list(pathlib.Path("own2").rglob("*.xplane.pb"))))
"""


CHECKPOINTS = f"""
import os, pathlib
import jax, jax.numpy as jnp, numpy as np
{LOOP}
folder = pathlib.Path("checkpoints")
os.makedirs(folder, exist_ok=True)
newest = max((int(file.stem) for file in folder.glob("*.npy")), default=0)
print("starting at", newest)
if newest:
    w = jnp.asarray(np.load(folder / f"{{newest}}.npy"))
for number in range(newest, newest + 150):
    w = step(w)
    if number % 5 == 4:
        np.save(folder / f"{{number + 1}}.npy", w)
print(float(w.sum()))
"""
"""resumes from the newest checkpoint, as with Orbax"""

MAKES_A_FOLDER = f"""
import os
import jax, jax.numpy as jnp, numpy as np
os.mkdir("out")
{LOOP}
for number in range(150):
    w = step(w)
np.savetxt("out/w.txt", w)
"""


@pytest.fixture
def both(tmp_path):
    def compare(job, *options, **more):
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        without = plain(job, tmp_path / "a", **more)
        done = run_short(tmp_path / "out", job, *options, cwd=tmp_path / "b", **more)
        assert (done.code, done.out) == (without.code, without.out)
        return done, without

    return compare


def script(folder, text, name="job.py"):
    file = folder / name
    file.write_text(text)
    return str(file)


def test_a_job_with_processes_of_its_own(both, tmp_path):
    done, _ = both([sys.executable, script(tmp_path, WORKERS)], *OTHER, "--rounds", "8")
    assert done.receipt["program"]["name"] == "jit_f"


@pytest.mark.parametrize("text", [CHECKPOINTS, MAKES_A_FOLDER], ids=["checkpoints", "mkdir"])
def test_a_job_leaves_what_it_leaves_without_us(both, tmp_path, text):
    done, _ = both([sys.executable, script(tmp_path, text)], *OTHER, "--rounds", "8")
    assert done.code == 0
    assert contents(tmp_path / "b") == contents(tmp_path / "a") != {}
    assert done.receipt["program"]["name"] == "jit_f"


def contents(folder):
    """Every file in it; the test's own are next to the job's folders."""
    files = [file for sub in folder.iterdir() if sub.is_dir() for file in sub.rglob("*")]
    return {file.relative_to(folder): file.read_bytes() for file in files if file.is_file()}


def test_a_module_of_a_package_with_arguments(both, tmp_path):
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "train.py").write_text(MAIN)
    job = [sys.executable, "-m", "package.train", "--steps", "20", "--", "--in-place"]
    both(job, *OTHER, "--rounds", "8", PYTHONPATH=str(tmp_path))


def test_an_exception_is_the_jobs_own(both, tmp_path):
    done, without = both([sys.executable, script(tmp_path, RAISES)])
    assert done.code == 1
    assert without.err in done.err
    assert done.receipt["verdict"] == "can't tell"


def test_an_exception_before_the_capture_ends_the_job_once(both, tmp_path):
    job = [sys.executable, script(tmp_path, "print('once')\nimport jax\nraise SystemExit(7)\n")]
    done, _ = both(job)
    assert done.code == 7
    assert done.receipt["verdict"] == "can't tell"
    assert "exit code: 7" in done.receipt["why"]


def test_a_job_that_is_shorter_than_the_capture(both, tmp_path):
    done, _ = both([sys.executable, str(train(tmp_path)), "3"])
    assert done.receipt["verdict"] == "can't tell"
    assert "it called jit_f 3 times" in done.receipt["why"]
    assert "--capture 1:1" in done.receipt["why"]


def test_a_job_that_first_asks_whether_jax_is_installed(both, tmp_path):
    """As `datasets` and `transformers` do."""
    asks = "import importlib.util\nprint(importlib.util.find_spec('jax') is not None)\n"
    done, _ = both([sys.executable, script(tmp_path, asks + train(tmp_path).read_text()), "3"])
    assert "it called jit_f 3 times" in done.receipt["why"]


def test_a_job_that_ends_while_it_is_measured(both, tmp_path):
    job = [sys.executable, str(train(tmp_path)), "8"]
    done, _ = both(job)
    assert done.receipt["verdict"] == "can't tell"
    assert "the job ended while it was" in done.receipt["why"]


def test_a_job_without_a_jitted_function(both, tmp_path):
    job = [sys.executable, script(tmp_path, "import jax\nprint(jax.__version__)\n")]
    done, _ = both(job)
    assert "called no jitted function" in done.receipt["why"]


def test_a_command_without_python(both):
    done, _ = both(["echo", "-n", "--out", "hello"])
    assert done.out == "--out hello"
    assert done.receipt["verdict"] == "can't tell"


def test_the_users_sitecustomize_and_path_are_kept(both, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    script(own, "import builtins\nbuiltins.FROM_SITE = __file__\n", "sitecustomize.py")
    script(own, "VALUE = 3\n", "helper.py")
    text = (
        "import sys, helper, sitecustomize\n"
        "print(FROM_SITE, helper.VALUE, sys.path[1:], sitecustomize.__file__)\n"
    )
    both([sys.executable, script(tmp_path, text)], PYTHONPATH=str(own))


def test_the_jobs_own_profiler_comes_first(both, tmp_path):
    done, _ = both(
        [sys.executable, script(tmp_path, PROFILES)], "--capture", "3:3", *OTHER, "--rounds", "8"
    )
    assert done.receipt["program"]["name"] == "jit_f"
    assert "before" in done.receipt["files"]


def test_a_job_on_another_python_without_slipstream_runs_as_it_is(both, tmp_path):
    """The agent can't be imported where slipstream isn't; the job neither knows nor cares."""
    text = (
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.startswith('slipstream'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
        "import jax\n"
        "print(float(jax.jit(lambda x: x + 1)(1.0)))\n"
    )
    done, _ = both([sys.executable, script(tmp_path, text)])
    assert "did not start inside the job" in done.receipt["why"]

"""What the job's command shows before it starts, and how far Slipstream got inside the job."""

import os
import subprocess
import sys

import pytest

from run_jobs import environment, plain, run_short
from slipstream.run.agent.request import JAX_IMPORTED, LOADED, LOOP, Request, marked
from slipstream.run.context import how_far
from slipstream.run.job_command import obstacle, python_call, suspect
from slipstream.run.launcher import job_environment
from slipstream.run.preflight import check_job
from slipstream.run.run_dir import REQUEST
from slipstream.run.settings import Settings


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python -I train.py", "python -I ignores PYTHONPATH"),
        ("python3.11 -uE train.py", "leave out -E"),
        ("python -X dev -W error -S -m train", "python -S loads no sitecustomize"),
        ("uv run python -I train.py", "leave out -I"),
        ("numactl -N 0 python -I train.py", "leave out -I"),
        ("env -i PATH=/bin python train.py", "env -i … slipstream run -- python"),
        ("nice env - python train.py", "env - removes PYTHONPATH"),
        ("env -u PYTHONPATH python train.py", "env changes PYTHONPATH"),
        ("env --unset=PYTHONPATH python train.py", "env changes PYTHONPATH"),
        ("env A=1 PYTHONPATH=src python train.py", "env … slipstream run -- python"),
    ],
)
def test_what_keeps_slipstream_out_is_seen_in_the_command(command, said):
    assert said in obstacle(command.split(), os.environ)


@pytest.mark.parametrize(
    "command",
    [
        "python train.py -I",
        "python -m train -E",
        "python -c pass -S",
        "python -sPBu train.py",
        "python -X importtime -W ignore::ImportWarning train.py",
        "env A=1 python train.py PYTHONPATH=1",
        "env -u HOME python train.py -i",
        "sh -c python -I",
        "no-such-command -I",
    ],
)
def test_what_does_not_keep_it_out_is_not_blamed(command):
    assert obstacle(command.split(), os.environ) is None


def test_the_options_of_a_scripts_first_line_count(tmp_path):
    script = tmp_path / "train"
    for first in ("#!/usr/bin/python3 -I", "#!/usr/bin/env -S python3 -I"):
        script.write_text(f"{first}\nprint(1)\n")
        script.chmod(0o755)
        assert "leave out -I" in obstacle([str(script)], os.environ)
        assert python_call([str(script)], os.environ).script == script


def test_the_script_of_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for file in ("train.py", "package/step.py", "package/__main__.py"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()

    def script(command):
        call = python_call(command.split(), os.environ)
        return None if call is None or call.script is None else str(call.script)

    assert script("python -u train.py --steps 3") == "train.py"
    assert script("mpirun -n 2 python train.py") == "train.py"
    assert script("uv run train.py") == script("uv run python train.py") == "train.py"
    assert script("python -m package.step") == "package/step.py"
    assert script("python -m package") == "package/__main__.py"
    assert script("python -c pass") is script("python gone.py") is script("sh train.py") is None


def test_a_container_is_suspected_only(tmp_path):
    command = ["docker", "run", "image", "python", "train.py"]
    assert obstacle(command, os.environ) is None
    assert "docker … slipstream run -- python" in suspect(command)
    assert suspect(["python", "train.py"]) is None
    assert "docker may not pass on PYTHONPATH" in how_far(tmp_path, command)


def test_the_three_ways_to_end_without_a_measurement(tmp_path):
    request = Request(LOOP, str(tmp_path)).write(tmp_path / REQUEST)
    command = ["python", "train.py"]
    assert how_far(tmp_path, command).startswith("Slipstream was never loaded inside the job")
    marked(request, LOADED).touch()
    assert how_far(tmp_path, command).startswith("the job never imported jax")
    marked(request, JAX_IMPORTED).touch()
    assert how_far(tmp_path, command).startswith("the job imported jax, but ended before")
    Request(LOOP, str(tmp_path)).write(request)
    assert "never loaded" in how_far(tmp_path, command)


@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-s", "-P"])
def test_what_python_itself_makes_of_its_options(option, tmp_path):
    """The table agrees with Python: a mark is left exactly where no obstacle is seen."""
    command = [sys.executable, option, "-c", "pass"]
    env = job_environment(environment(), tmp_path / REQUEST)
    subprocess.run(command, env=env, check=True)
    is_loaded = marked(tmp_path / REQUEST, LOADED).exists()
    assert is_loaded == (obstacle(command, os.environ) is None) == (option in ("-s", "-P"))


# Whole jobs.


def test_a_job_that_never_loads_us_runs_once_and_is_told_why(tmp_path):
    job = [sys.executable, "-I", "-c", "print('once')"]
    done = run_short(tmp_path / "out", job, cwd=tmp_path)
    assert (done.code, done.out) == (0, plain(job, tmp_path).out)
    assert "nothing will be measured: python -I ignores PYTHONPATH" in " ".join(done.err.split())
    why = "Slipstream was never loaded inside the job: python -I ignores PYTHONPATH, through which"
    assert done.receipt["why"].startswith(why) and "leave out -I" in done.receipt["why"]


def test_a_job_that_never_imports_jax_is_told_so(tmp_path):
    done = run_short(tmp_path / "out", [sys.executable, "-c", "print(1)"], cwd=tmp_path)
    assert done.out == "1\n"
    assert done.receipt["why"].startswith("the job never imported jax")


OWN = "os.environ['XLA_FLAGS'] = '--xla_gpu_enable_triton_gemm=false'"
KEPT = "os.environ['XLA_FLAGS'] = os.environ.get('XLA_FLAGS', '') + ' --xla_x=1'"
DEFAULT = "os.environ.setdefault('XLA_FLAGS', '--xla_gpu_autotune_level=0')"


@pytest.mark.parametrize(
    ("line", "presets", "is_told"),
    [
        (OWN, ("fsdp",), True),
        (OWN, (), False),
        (KEPT, ("fsdp",), False),
        (DEFAULT, ("fsdp",), False),
        ("not python(", ("fsdp",), False),
    ],
)
def test_a_script_that_sets_its_own_flags_may_lose_a_presets(line, presets, is_told, tmp_path):
    script = tmp_path / "train.py"
    script.write_text(f"import os\n{line}\n")
    found = check_job(Settings((sys.executable, str(script)), tmp_path, presets=presets))
    told = [text for text in found.warnings if "XLA_FLAGS itself" in text]
    assert bool(told) == is_told
    if told:
        assert told[0].startswith(
            f"{script} sets XLA_FLAGS itself in line 2, so the flags of --pre"
        )

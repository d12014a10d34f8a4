"""Candidates as jobs: real ones on the CPU, each in a process of its own."""

import json
import os
import shlex
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from free_port import free_port
from run_jobs import environment, is_alive, wait_while_alive
from slipstream.bench import timed_run as shortrun
from slipstream.bench.timed_run import DIED, MEMORY, TimedRunFailed, TimedRuns
from slipstream.cli.main import app
from slipstream.errors import BadInput
from slipstream.experiment.compare_outputs import read_results
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.results.tuning import CRASH, DIFFERENT, HANG, OUT_OF_MEMORY, REFUSED
from slipstream.tune.measure.ab_window import BASELINE, NULL, ArmFailed
from slipstream.tune.measure.in_process import CHECKED
from slipstream.tune.measure.launched import Launched, settings_for

# Runs are to die with us, which is arranged between fork and exec.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*")

JOB = """
import os, sys
import jax, jax.numpy as jnp

trouble = os.environ.get("TROUBLE", "")
size = 1 << 40 if trouble == "memory" else 8
x = jnp.linspace(-3, 3, 64).reshape(8, 8)

@jax.jit
def step(w, x):
    # Without infinities and what is not a number, this is something else.
    kinds = jnp.where(jnp.isnan(x * jnp.inf), 1.0, 2.0)
    return w + 0.01 * jnp.tanh(x @ w), kinds.sum()

w = jnp.eye(8)
for number in range(40):
    if number == 2 and trouble == "crash":
        os.abort()
    w, loss = step(w, x)
    if trouble == "memory":
        jax.block_until_ready(jax.jit(lambda: jnp.ones((size, 16)) @ jnp.ones((16, 4)))())
print("done", sys.argv[1:])
"""
THEIRS = "--xla_cpu_fast_math_honor_nans=false --xla_cpu_fast_math_honor_infs=false"
FAST = {"xla_cpu_enable_fast_math": "true"}


def launched(folder: Path, command: list[str], timeout_s: float = 300.0, **base: str) -> Launched:
    runs = TimedRuns(tuple(command), timeout_s=timeout_s, base=environment(**base))
    return Launched(runs, folder, installed_catalogue())


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    file = tmp_path / "job.py"
    file.write_text(JOB)
    return [sys.executable, str(file)]


def failed(measure: Launched, name: str, settings: dict[str, str]) -> ArmFailed:
    measure.prepare(name, settings)
    with pytest.raises(ArmFailed) as found:
        measure.time(name)
    return found.value


def test_jobs_are_timed_and_failures_are_classified(tmp_path, job):
    measure = launched(tmp_path / "study", job, XLA_FLAGS=THEIRS)
    assert measure.time(BASELINE) > 0 and measure.time(NULL) > 0
    measure.prepare("fine", {"xla_gpu_graph_min_graph_size": "7", "MY_VARIABLE": "1"})
    assert measure.time("fine") > 0
    assert measure.results_check("fine") == CHECKED
    # With the user's own flags, which are still there, this one gives other numbers.
    different = failed(measure, "fast", FAST)
    assert (different.status, "results differ" in different.note) == (DIFFERENT, True)
    crash = failed(measure, "crash", {"TROUBLE": "crash"})
    assert (crash.status, "SIGABRT" in crash.note) == (CRASH, True)
    memory = failed(measure, "memory", {"TROUBLE": "memory"})
    assert (memory.status, "RESOURCE_EXHAUSTED" in memory.note) == (OUT_OF_MEMORY, True)
    # Of those that failed, what they said is there to be read.
    kept = sorted(folder.name[5:] for folder in (tmp_path / "study" / "runs").glob("[0-9]*"))
    assert kept == ["crash", "fast", "memory"]


LAUNCHER = """
import subprocess, sys
address = "localhost:PORT"
start = f"import jax; jax.distributed.initialize({address!r}, 2, RANK)"
code = "; ".join([start, "exec(open(__import__('sys').argv[1]).read())"])
ranks = [
    subprocess.Popen([sys.argv[1], "-c", code.replace("RANK", str(rank)), *sys.argv[2:]])
    for rank in (0, 1)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


def test_a_launcher_in_front_of_the_job_stays_there_and_its_first_rank_is_timed(tmp_path, job):
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER.replace("PORT", str(free_port())))
    runs = TimedRuns((sys.executable, str(launcher), *job), base=environment())
    facts = runs.time(tmp_path / "run", {"MY_VARIABLE": "1"})
    assert facts["processes"] == 2 and facts["step_s"] > 0
    assert facts["environment"]["MY_VARIABLE"] == "1"
    assert read_results(tmp_path / "run") is not None


def test_a_study_whose_candidates_are_jobs(target, tmp_path, job):
    study = tmp_path / "study"
    knob = "--only TROUBLE --add TROUBLE=crash --trials 2 --jobs 1"
    line = f"tune {target} --on 1xH200 {knob} --study {study} --json --measure -- "
    done = CliRunner().invoke(app, [*shlex.split(line), *job], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (crashed,) = [one for one in found["trials"] if one["basis"] == "measured"]
    assert (crashed["settings"], crashed["status"]) == ({"TROUBLE": "crash"}, CRASH)
    assert "SIGABRT" in crashed["note"]
    # Who never wins: the default stays, and says what it was.
    assert found["best"]["settings"] == {} and found["best"]["step_us"] > 0
    assert found["stopped_because"] == "every setting of the space was measured"
    assert "TROUBLE" not in found["left_out"]


def test_a_hanging_run_is_ended_with_its_child_processes(tmp_path, monkeypatch):
    pid, looks = tmp_path / "pid", []

    def monotonic():
        """Time passes once the job is so far, and not before the first look at the clock."""
        looks.append(bool(looks) and pid.exists() and bool(pid.read_text()))
        return 700.0 * any(looks)

    clock = SimpleNamespace(monotonic=monotonic, sleep=time.sleep)
    monkeypatch.setattr(shortrun, "time", clock)
    script = f"sleep 900 & echo $! > {shlex.quote(str(pid))}; wait"
    measure = launched(tmp_path / "study", ["sh", "-c", script], timeout_s=600)
    hung = failed(measure, "stuck", {})
    assert hung.status == HANG
    assert "in 600 s: Slipstream was never loaded inside the job: it ran no Python" in hung.note
    wait_while_alive(int(pid.read_text()))
    assert not is_alive(int(pid.read_text()))


def test_a_baseline_that_cannot_be_timed_ends_the_search(tmp_path):
    with pytest.raises(BadInput, match="can't be measured as it is: the job ended with code 3"):
        launched(tmp_path / "study", ["sh", "-c", "exit 3"]).time(BASELINE)


def test_the_users_own_flags_stay_and_come_last():
    base = {"XLA_FLAGS": "--xla_a=1 --xla_b", "NCCL_PROTO": "LL"}
    command = ("srun", "--ntasks-per-node={processes}", "python", "train.py", "{other}")
    settings = {"xla_c": "2", "NCCL_MAX_CTAS": "8", "processes": "4"}
    catalogue = installed_catalogue()
    typed, variables = settings_for(settings, command, base, catalogue)
    assert typed == ("srun", "--ntasks-per-node=4", "python", "train.py", "{other}")
    assert variables == {"XLA_FLAGS": "--xla_c=2 --xla_a=1 --xla_b", "NCCL_MAX_CTAS": "8"}
    for taken in ("xla_b", "NCCL_PROTO"):
        with pytest.raises(ArmFailed, match=f"{taken}: already set in the environment") as refused:
            settings_for({taken: "2"}, command, base, catalogue)
        assert refused.value.status == REFUSED
    # A form that only XLA_FLAGS has, and costs by their file.
    unrolled = {"xla_gpu_enable_command_buffer": "", "costs": "on"}
    _, variables = settings_for(unrolled, ("job",), {}, catalogue, Path("/a/costs.pb"))
    assert variables["XLA_FLAGS"] == (
        "--xla_gpu_enable_command_buffer= --xla_gpu_pgle_profile_file_or_directory_path=/a/costs.pb"
    )


class Told:
    """Runs that say what they were told to say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: dict = {"step_s": 1.0, "content": "a"}
        monkeypatch.setattr(TimedRuns, "time", self.time)

    def time(self, folder, variables, command, timeout_s):
        folder.mkdir(parents=True)
        return {"environment": dict(variables), **self.said}


def test_settings_that_do_not_reach_the_job_are_an_error(tmp_path, monkeypatch):
    measure, runs = launched(tmp_path, ["true"]), Told(monkeypatch)
    runs.said["environment"] = {"XLA_FLAGS": "--xla_of_the_script=1"}
    measure.time(BASELINE)
    measure.prepare("one", {"xla_gpu_graph_min_graph_size": "7"})
    with pytest.raises(BadInput, match="the script sets it, or the launcher"):
        measure.time("one")


def test_results_that_cannot_be_compared_are_reported_as_unchecked(tmp_path, monkeypatch):
    measure, runs = launched(tmp_path, ["true"]), Told(monkeypatch)
    measure.time(BASELINE)
    measure.prepare("one", {})
    measure.time("one")
    assert measure.results_check("one") == "not checked: the baseline ran only once"
    runs.said["content"] = "b"
    measure.time(NULL)
    measure.time("one")
    assert measure.results_check("one").startswith(
        "not checked: two runs of the baseline also differ"
    )


@pytest.mark.parametrize(
    ("script", "kills", "kind", "said"),
    [
        ("kill -9 $$", 0, DIED, "ended by SIGKILL"),
        ("kill -9 $$", 1, MEMORY, "because the host ran out of memory"),
        ("echo slurmstepd: error: Detected 1 oom_kill event; exit 137", 0, MEMORY, "oom_kill"),
        ("echo not out of memory at all", 0, DIED, "code 0 .*: Slipstream was never loaded inside"),
        ("echo the error; exit 3", 0, DIED, "ended with code 3: the error; see"),
    ],
)
def test_memory_of_the_host(tmp_path, monkeypatch, script, kills, kind, said):
    counter = tmp_path / "vmstat"
    counter.write_text("pgfault 1\noom_kill 4\n")
    monkeypatch.setattr(shortrun, "_COUNTERS", counter)
    more = f"echo oom_kill {4 + kills} > {shlex.quote(str(counter))}; {script}"
    with pytest.raises(TimedRunFailed, match=said) as found:
        TimedRuns(("sh", "-c", more), base=dict(os.environ)).time(tmp_path / "run", {})
    assert found.value.kind == kind

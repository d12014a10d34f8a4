"""`slipstream run --simulate`: the phases without a device, with numbers that are predicted."""

import sys

import pytest

from run_jobs import run
from slipstream.jaxhooks.order_pass import is_supported
from slipstream.run.run_dir import done_facts
from slipstream.sources.load import load

JOB = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(np.array(jax.devices()), ("data",))
cut, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

def step(w, x):
    def loss(w):
        return jnp.mean(jnp.tanh(x @ w) ** 2)
    return w - 0.1 * jax.grad(loss)(w)

step = jax.jit(step, in_shardings=(whole, cut), out_shardings=whole)
w = jax.device_put(np.ones((512, 512), np.float32), whole)
x = jax.device_put(np.ones((64 * len(jax.devices()), 512), np.float32), cut)
print(len(jax.devices()))
while True:
    w = step(w, x)
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulated")
    (folder / "job.py").write_text(JOB)
    job = [sys.executable, "job.py"]
    options = ("--simulate", "2xH200", "--schedule")
    return run(folder / "out", job, *options, cwd=folder, JAX_PLATFORMS="")


def test_it_walks_the_same_phases_and_the_job_prints_nothing(done):
    assert done.code == 0, done.err
    assert done.out == ""
    assert done.phases == [
        "1 check", "2 profile", "3 costs", "4 compile", "5 compare", "verdict",
    ]  # fmt: skip


def test_it_says_that_numbers_are_predicted(done):
    assert "predicted, not measured" in done.err
    assert done.receipt["basis"] == "predicted"
    assert any("nothing ran on a device" in note for note in done.receipt["notes"])
    assert done.receipt["devices"] == ["2xH200"]
    # A prediction has no interval.
    assert list(done.receipt["change"]) == ["estimate"]


def test_xla_took_the_costs(done):
    pgle = done.receipt["pgle"]
    assert pgle["applied"] is True
    assert pgle["found"] > 0 and pgle["missing"] == 0
    arms = [arm for arm in done.receipt["arms"] if not arm["uses_order"]]
    names = [arm["name"] for arm in arms]
    assert names == ["original", "costs", "no command buffers", "costs, no command buffers"]
    assert all(arm["step_us"] > 0 for arm in arms)


def test_an_order_of_our_own_is_one_more_variant_or_says_why_not(done):
    arms = [arm for arm in done.receipt["arms"] if arm["uses_order"]]
    assert [arm["name"] for arm in arms] == ["schedule", "schedule, no command buffers"]
    for arm in arms:
        if is_supported():
            # There is one collective, at the end: nothing could hide it.
            assert arm["is_obeyed"] or "no order was found" in arm["error"]
        else:
            assert "JAX 0.11" in arm["error"]


def test_the_folder_is_that_of_any_run(done):
    profile = done.folder / "profile" / "rank0"
    assert (profile / "output.txt").read_text() == "2\n"
    assert done_facts(profile)["program"] == "jit_step"
    assert [file.name for file in (profile / "programs").glob("*.stablehlo")] == [
        "jit_step.stablehlo"
    ]
    timeline = load(profile / "profiles" / "before")
    assert any(warning.code == "simulated" for warning in timeline.warnings)
    assert (done.folder / "costs" / "costs.pb").exists()


def test_a_later_run_on_a_device_uses_none_of_it(done):
    facts = done_facts(done.folder / "profile" / "rank0")
    assert "xla_flags" not in facts and "steps" not in facts


def test_a_job_with_nothing_to_simulate(tmp_path):
    job = ["sh", "-c", "echo hello; exit 5"]
    done = run(tmp_path / "out", job, "--simulate", "2xH200", cwd=tmp_path)
    assert (done.code, done.out) == (5, "hello\n")
    assert "can't tell: the job failed before its step was known (exit code 5)" in done.err
    assert done.receipt["verdict"] == "can't tell"
    done = run(tmp_path / "out", ["true"], "--simulate", "2xH200", cwd=tmp_path)
    assert done.code == 0
    assert "nothing to simulate" in done.err


CRASHES = """
import os, sys, jax, jax.numpy as jnp, numpy as np
step = jax.jit(lambda w, x: jnp.tanh(x @ w))
x = jnp.asarray(np.ones((64, 64), np.float32))
step(x, x)  # once: compiled, but not known to be the step
print("so far", flush=True)
"""


@pytest.mark.parametrize(
    ("end", "code", "how"),
    [
        ("raise ValueError('bad data')", 1, "exit code 1"),
        ("os.kill(os.getpid(), 9)", 137, "SIGKILL ended it"),
    ],
)
def test_a_crash_of_the_job_is_the_jobs(tmp_path, end, code, how):
    (tmp_path / "job.py").write_text(CRASHES + end)
    job = [sys.executable, "job.py"]
    done = run(tmp_path / "out", job, "--simulate", "2xH200", cwd=tmp_path, JAX_PLATFORMS="")
    assert (done.code, done.out) == (code, "so far\n")
    assert ("ValueError: bad data" in done.err) == (code == 1)
    why = f"the job failed before its step was known ({how})"
    assert f"can't tell: {why}" in done.err
    assert (done.receipt["verdict"], done.receipt["why"]) == ("can't tell", why)
    assert done.receipt["phases"]["exit_code"] == code
    assert (done.folder / "receipt.html").exists()


def test_a_job_that_ends_well_before_its_step_is_known_is_simulated(tmp_path):
    (tmp_path / "job.py").write_text(CRASHES)
    job = [sys.executable, "job.py"]
    done = run(tmp_path / "out", job, "--simulate", "1xH200", cwd=tmp_path, JAX_PLATFORMS="")
    assert done.code == 0
    assert "predicted, not measured" in done.err

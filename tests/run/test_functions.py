"""Which functions of a job are optimised: those that its devices spend their time on."""

import re
import sys

import pytest

from run_jobs import OTHER, conclude, plain, run, run_short

SEVERAL = """
import hashlib, os, sys, time
import jax, jax.numpy as jnp, numpy as np

def loss(w, x):
    return jnp.sum(jnp.tanh(x @ w @ w) ** 2)

@jax.jit
def gradient(w, x):
    return jax.grad(loss)(w, x)

@jax.jit
def update(w, m, g):
    for _ in range(UPDATES):
        m = jnp.cos(0.9 * m + 0.1 * g) * 0.5
    return w - 1e-3 * m, m

@jax.jit
def shuffle(x):
    return jnp.roll(x, 1, 0)

@jax.jit
def evaluate(w, x):
    return loss(w, x)

w = jnp.asarray(np.eye(SIZE, dtype=np.float32))
x, m = jnp.asarray(np.full((SIZE, SIZE), 0.01, np.float32)), jnp.asarray(np.zeros_like(w))
for _ in range(30):
    evaluate(w, x), shuffle(x)
number, goes_on, end = 0, os.environ.get("JOB_GOES_ON", "/none"), time.monotonic() + 300
while number < int(sys.argv[1]) or (os.path.exists(goes_on) and time.monotonic() < end):
    x = shuffle(x)
    w, m = update(w, m, gradient(w, x))
    number += 1
digest = hashlib.sha256(np.asarray(w).tobytes()).hexdigest()[:16]
print("end", number, float(evaluate(w, x)), digest)
"""


def job(folder, updates, size=256):
    file = folder / "several.py"
    file.write_text(SEVERAL.replace("UPDATES", str(updates)).replace("SIZE", str(size)))
    return file


@pytest.mark.parametrize(
    ("updates", "expected"), [(0, {"jit_gradient"}), (5, {"jit_gradient", "jit_update"})]
)
def test_what_takes_the_time_is_optimised(tmp_path, updates, expected):
    """Evaluations and a data loader come first, and are not what the job is about.

    Five updates take about as long as a gradient: a tenth of the time would matter already.
    """
    file = job(tmp_path, updates)
    done = run(
        tmp_path / "out", [sys.executable, file, "5"], *OTHER, "--rounds", "8",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0
    without = plain([sys.executable, file, str(done.steps)], tmp_path)
    assert done.out == without.out
    receipt = done.receipt
    names = [one["program"]["name"] for one in receipt["functions"]]
    names = names or [receipt["program"]["name"]]
    # A busy machine may make a helper look as if it mattered, but not more than the rest.
    assert expected <= set(names) and names[0] in expected
    assert "jit_evaluate" not in names
    assert receipt["program"]["name"] == names[0]
    assert 0 < receipt["program"]["share"] <= 1
    if len(names) > 1:
        shares = [one["program"]["share"] for one in receipt["functions"]]
        assert shares == sorted(shares, reverse=True) and sum(shares) <= 1.001
        assert all(one["arms"] and one["change"] for one in receipt["functions"])
        assert receipt["together"]["before_us"] == receipt["step_us"]["before"]
        assert f"{names[1]}, {shares[1]:.0%} of the device time" in done.err
        assert (done.folder / "compare" / "rank0" / "function2" / "costs.pb").exists()
        check_all_are_applied(done.folder, file, tmp_path, expected)


def check_all_are_applied(folder, file, place, expected):
    """By a second run, which knows what the first one found."""
    conclude(folder, "no command buffers")
    done = run(folder, [sys.executable, file, "5"], *OTHER, cwd=place)
    assert done.code == 0 and "verdict" not in done.phases
    (names,) = re.findall(r"these are faster and run: (.*)", done.err.replace("\n", " "))
    assert all(name in names for name in expected)
    assert done.out == plain([sys.executable, file, str(done.steps)], place).out


def test_the_user_decides(tmp_path):
    done = run(
        tmp_path / "out", [sys.executable, job(tmp_path, 0), "5"],
        *("--function", "update"), *OTHER, "--rounds", "8", cwd=tmp_path,
    )  # fmt: skip
    assert (done.code, done.receipt["program"]["name"]) == (0, "jit_update")
    assert done.receipt["functions"] == []
    # What was found for a function that the user named says nothing about the job's own choice.
    again = run_short(tmp_path / "out", [sys.executable, job(tmp_path, 0), "5"], cwd=tmp_path)
    assert "another --function: not used" in " ".join(again.err.split())


def test_a_function_that_the_job_does_not_call(tmp_path):
    file = job(tmp_path, 0)
    command = [sys.executable, file, "5"]
    done = run_short(tmp_path / "out", command, "--function", "train_step", cwd=tmp_path)
    assert done.code == 0
    assert "no function named train_step" in done.receipt["why"]
    assert "update" in done.receipt["why"] and "--function" in done.receipt["why"]

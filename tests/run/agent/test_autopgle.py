"""`slipstream run --auto`: JAX's AutoPGLE, watched and proven, in real jobs on the CPU."""

import sys

import pytest

from run_jobs import Started, run, run_short, train
from slipstream.errors import BadInput
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.run.agent.autopgle import RecompiledPrograms, seen_note, variables
from slipstream.run.context import signal_name


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("auto")
    train(folder)
    return folder


@pytest.fixture(scope="module")
def done(place):
    job = [sys.executable, "train.py", "30"]
    return run(place / "out", job, "--auto", "--rounds", "8", cwd=place)


def test_the_job_ends_as_without_us(done):
    assert done.is_as_without_us(), done.err


def test_what_jax_compiled_is_an_arm_beside_what_the_job_would_run_without(done):
    names = [arm["name"] for arm in done.receipt["arms"]]
    assert names == ["original", "AutoPGLE", "no command buffers"]
    # A CPU's program knows no costs, nor command buffers: it is the same, and that needs no timing.
    assert [arm["rounds"] for arm in done.receipt["arms"]] == [0, 0, 0]
    same = [arm["same_program_as"] for arm in done.receipt["arms"]]
    assert same == [None, "original", "original"]
    assert done.receipt["verdict"] == "no different"


def test_what_jax_compiled_first_is_timed_where_it_may_run_differently(place, tmp_path):
    """As on a GPU, whose program doesn't show whether it runs in command buffers."""
    (tmp_path / "sitecustomize.py").write_text(
        "import slipstream.experiment.variants as variants\n"
        "variants._is_honoured = lambda flag, platform: True\n"
    )
    job = [sys.executable, "train.py", "30"]
    options = ("--auto", "--rounds", "8")
    done = run(place / "timed", job, *options, cwd=place, PYTHONPATH=str(tmp_path))
    assert done.is_as_without_us(), done.err
    timed = {arm["name"]: arm["rounds"] for arm in done.receipt["arms"]}
    assert timed["AutoPGLE"] == 0 and timed["original"] == timed["no command buffers"] > 0
    assert done.receipt["arms"][1]["same_program_as"] == "original"


def test_the_receipt_says_what_jax_did_and_that_its_profile_was_empty(done):
    pgle = done.receipt["pgle"]
    assert pgle["applied"] is False and pgle["found"] == 0 and pgle["missing"] > 0
    auto = pgle["auto"]
    assert (auto["profiling_runs"], auto["percentile"], auto["profile_bytes"]) == (3, 90, 0)
    assert auto["seen_us"]["before"] > 0 and auto["seen_us"]["after"] > 0
    notes = " ".join(done.receipt["notes"])
    assert "not interleaved" in notes and "its profile is empty" in notes
    assert "JAX profiled 3 calls of jit_f and recompiled it with an empty profile" in done.err


def test_a_job_too_short_for_autopgle_is_told_so(place, tmp_path):
    done = run_short(tmp_path / "short", [sys.executable, "train.py", "3"], "--auto", cwd=place)
    assert done.code == 0
    assert "before JAX had recompiled jit_f" in done.receipt["why"]


def test_a_job_that_a_signal_ended_before_any_step_names_it(tmp_path):
    waiting = [sys.executable, "-c", "import time; open('waits', 'w'); time.sleep(600)"]
    started = Started(tmp_path / "ended", waiting, "--auto", cwd=tmp_path)
    started.wait_until((tmp_path / "waits").exists)
    started.send(15)
    ended = started.wait()
    assert ended.code == 143
    assert ended.receipt["why"] == "SIGTERM ended the job before it called a jitted function"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--auto", "--in-place"), "--auto and --in-place can't be combined"),
        (
            ("--auto", "--flags", "--xla_cpu_enable_fast_math=true"),
            "--auto and --flags can't be combined",
        ),
    ],
)
def test_two_ways_at_once_are_refused(tmp_path, options, said):
    bad = run(tmp_path / "bad", ["true"], *options, cwd=tmp_path)
    assert (bad.code, said in bad.err) == (2, True)


def test_the_users_own_numbers_count():
    found = variables({"JAX_PGLE_PROFILING_RUNS": "7"})
    assert found == {
        "JAX_ENABLE_PGLE": "true",
        "JAX_PGLE_PROFILING_RUNS": "7",
        "JAX_PGLE_AGGREGATION_PERCENTILE": "90",
    }
    with pytest.raises(BadInput, match="JAX_PGLE_PROFILING_RUNS is '0'"):
        variables({"JAX_PGLE_PROFILING_RUNS": "0"})


def test_only_a_program_that_ran_and_was_compiled_again_has_a_first_one():
    recompiled = RecompiledPrograms()
    first, again, other = (
        CompiledProgram("f", code, 0.1, None, None) for code in (b"a", b"a", b"b")
    )
    recompiled.compiled(first)
    recompiled.compiled(again)
    assert recompiled.first_of(again) is None
    first.calls = 3
    recompiled.compiled(again)
    recompiled.compiled(other)
    assert recompiled.first_of(again) is first
    assert recompiled.first_of(first) is None and recompiled.first_of(other) is None
    assert recompiled.seen_us(again, first) == {"before": None, "after": None}
    assert "too few steps" in seen_note({"before": None, "after": 1.0})


def test_signals_have_names():
    assert (signal_name(143), signal_name(128 + 127)) == ("SIGTERM", "signal 127")

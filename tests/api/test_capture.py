"""`capture` records real JAX steps on CPU, and nothing that goes wrong reaches the job."""

import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import fsspec
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import slipstream
from slipstream.api import capture as module
from slipstream.api.capture import step_number
from slipstream.errors import BadInput
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.profiler import ProfilerFailed, ProfilerSession
from slipstream.sources.load import load


@jax.jit
def captured_step(x):
    return jnp.tanh(x @ x)


@pytest.fixture(scope="module", autouse=True)
def compiled():
    captured_step(jnp.eye(16)).block_until_ready()


@pytest.fixture
def said():
    return []


def run_steps(hook, count=12, first=0):
    x = jnp.eye(16)
    for number in range(first, first + count):
        x = captured_step(x)
        hook(number, wait_for=x)


def recorded_steps(folder):
    profile = load(folder)
    names = [profile.events.texts[int(text)] for text in profile.runs.program]
    return sum("captured_step" in name for name in names)


def test_the_hook_records_the_steps_it_was_told(tmp_path, said):
    hook = slipstream.capture(tmp_path, start=5, steps=3, announce=said.append)
    run_steps(hook)
    hook.wait()
    assert hook.folder == tmp_path and hook.problem is None
    assert recorded_steps(tmp_path) == 3
    assert said == [f"slipstream: recorded {tmp_path}; see: slipstream summary {tmp_path}"]
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 1


def test_levanters_names(tmp_path, said):
    hook = slipstream.capture(
        tmp_path, profiler=True, start_step=2, num_steps=2, perfetto_link=True,
        announce=said.append,
    )  # fmt: skip
    run_steps(hook, 6)
    hook.wait()
    assert recorded_steps(tmp_path) == 2
    drawn = tmp_path / "trace.pftrace"
    assert drawn.stat().st_size > 1000
    assert said[0].endswith(f"drop {drawn} onto https://ui.perfetto.dev")
    off = slipstream.capture(tmp_path / "off", profiler=False)
    run_steps(off)
    assert off.folder is None and not (tmp_path / "off").exists()


class StepInfo:
    """As Levanter's: the number is a property, and an array on the device."""

    def __init__(self, number):
        self.state = jnp.asarray(number + 1)

    @property
    def step(self):
        return self.state - 1


class Unreadable:
    @property
    def step(self):
        raise RuntimeError("Array has been deleted")

    def __repr__(self):
        raise RuntimeError("a repr that would copy the whole state")


@pytest.mark.parametrize(
    "form",
    [
        int, float, np.int32, np.int64, np.uint8, np.asarray, jnp.asarray,
        lambda number: jnp.full((4,), number), StepInfo,
        lambda number: type("State", (), {"step": number})(),
        lambda number: type("State", (), {"step": np.int32(number)})(),
    ],
    ids=[
        "int", "float", "int32", "int64", "uint8", "numpy", "jax", "replicated", "StepInfo",
        "attribute", "numpy attribute",
    ],
)  # fmt: skip
def test_forms_of_a_steps_number(form):
    assert [step_number(form(number)) for number in (0, 7)] == [0, 7]


@pytest.mark.parametrize(
    "step",
    [
        "step", "7", True, float("nan"), float("inf"), object(), Unreadable(), [1], {}, print,
        np.asarray([1, 2]), np.asarray([]), np.asarray(True), jnp.asarray(True), jax.random.key(0),
        type("State", (), {"step": lambda self: 3})(),
    ],
    ids=lambda step: type(step).__name__,
)  # fmt: skip
def test_what_is_no_number_is_logged_once_and_calls_are_counted(step, caplog):
    hook = slipstream.capture("logs", start=1000)
    for _ in range(3):
        hook(step, step)
    assert hook._calls == 3
    assert "is no step number and has none as .step, so calls are counted" in hook.problem
    assert caplog.text.count("is no step number") == 1


def test_a_hook_called_in_a_way_that_we_do_not_know_still_records(tmp_path, said, caplog):
    hook = slipstream.capture(tmp_path, start=2, steps=2, announce=said.append)
    for _ in range(6):
        captured_step(jnp.eye(16)).block_until_ready()
        hook("epoch", None, {"loss": 1.0}, verbose=True)
    hook.wait()
    assert recorded_steps(tmp_path) == 2 and len(said) == 1
    assert "'epoch' that it was called with is no step number" in hook.problem


def test_a_levanter_style_hook_records_its_steps(tmp_path, said):
    hook = slipstream.capture(tmp_path, start_step=2, num_steps=3, announce=said.append)
    for number in range(8):
        captured_step(jnp.eye(16)).block_until_ready()
        hook(StepInfo(number))
    hook.wait()
    assert recorded_steps(tmp_path) == 3 and hook.problem is None


def test_levanters_last_call_ends_the_recording(tmp_path, said, caplog):
    """Its hooks are called with `force`, and once more after the last step, with `force=True`."""
    hook = slipstream.capture(tmp_path, start=2, steps=20, announce=said.append)
    for number in range(4):
        hook(StepInfo(number), force=False)
        captured_step(jnp.eye(16)).block_until_ready()
    hook(StepInfo(3), force=True)
    hook.wait()
    assert recorded_steps(tmp_path) == 2 and len(said) == 1 and hook.problem is None
    late = slipstream.capture(tmp_path / "late", start=9)
    late(StepInfo(0), force=False)
    late(StepInfo(0), force=True)
    assert "there were 1 steps, and recording starts with step 9" in late.problem


def test_a_hook_inside_a_jitted_function_does_not_raise():
    hook = slipstream.capture("logs", start=1000)
    jax.jit(lambda x: (hook(x, x), x + 1)[1])(3)
    assert "Tracer" in hook.problem


def test_a_failure_that_nobody_thought_of_ends_the_capture_only(tmp_path, monkeypatch, caplog):
    def fails():
        raise RuntimeError("planted: no backend")

    monkeypatch.setattr(module, "_process_count", fails)
    hook = slipstream.capture(tmp_path, start=0)
    run_steps(hook, 3)
    assert hook.problem == "RuntimeError: planted: no backend"
    with slipstream.capture(tmp_path, start=0) as hook:
        pass
    assert "planted" in hook.problem and caplog.text.count("planted") == 2


def test_a_block_with_the_hook_inside(tmp_path, said):
    with slipstream.capture(tmp_path, start=1, steps=2, announce=said.append) as hook:
        x = jnp.eye(16)
        for _ in range(6):
            x = captured_step(x)
            hook(wait_for=x)
    assert recorded_steps(tmp_path) == 2 and len(said) == 1


def test_a_block_that_is_recorded_whole(tmp_path, said):
    with slipstream.capture(tmp_path, start=0, steps=1000, announce=said.append):
        for _ in range(4):
            captured_step(jnp.eye(16)).block_until_ready()
    assert recorded_steps(tmp_path) == 4 and len(said) == 1


def test_around_an_iterable(tmp_path, said):
    hook = slipstream.capture(tmp_path, start=2, steps=3, announce=said.append)
    for number in hook.over(range(8)):
        captured_step(jnp.eye(16) * number).block_until_ready()
    assert recorded_steps(tmp_path) == 3


def test_a_block_that_ends_early_is_saved_or_says_why_not(tmp_path, said, caplog):
    with (
        pytest.raises(ZeroDivisionError),
        slipstream.capture(tmp_path, start=0, announce=said.append) as hook,
    ):
        captured_step(jnp.eye(16)).block_until_ready()
        raise ZeroDivisionError
    assert recorded_steps(tmp_path) == 1 and hook.problem is None
    with slipstream.capture(tmp_path / "short") as hook:
        run_steps(hook, 3)
    assert "there were 3 steps, and recording starts with step 5" in hook.problem
    assert "there were 3 steps" in caplog.text


def test_a_url_gets_a_copy(tmp_path, said):
    files = fsspec.filesystem("memory")
    hook = slipstream.capture("memory://runs/1", start=0, steps=1, announce=said.append)
    with hook:
        captured_step(jnp.eye(16)).block_until_ready()
    found = files.find("/runs/1")
    assert [name for name in found if name.endswith(".xplane.pb")]
    assert said[0].startswith("slipstream: recorded memory://runs/1;")
    local = f"file://{tmp_path}/copy"
    with slipstream.capture(local, start=0, announce=said.append):
        captured_step(jnp.eye(16)).block_until_ready()
    assert recorded_steps(tmp_path / "copy") == 1


def test_an_upload_that_fails_keeps_the_recording(said, caplog):
    with slipstream.capture("nosuch://bucket", start=0, announce=said.append) as hook:
        captured_step(jnp.eye(16)).block_until_ready()
    assert "nosuch" in hook.problem and str(hook.folder) in hook.problem
    assert recorded_steps(hook.folder) == 1 and said == []
    assert "capture: " in caplog.text


def test_a_session_that_is_open_is_left_alone(tmp_path, said, caplog):
    jax.profiler.start_trace(str(tmp_path / "own"))
    try:
        hook = slipstream.capture(tmp_path / "ours", announce=said.append)
        run_steps(hook)
    finally:
        jax.profiler.stop_trace()
    assert hook.problem == "a profiler session is already open in this process, so none was started"
    assert list((tmp_path / "own").rglob("*.xplane.pb")) and said == []


def test_two_captures_at_once_are_one(tmp_path, said, caplog):
    first = slipstream.capture(tmp_path / "1", start=0, announce=said.append)
    second = slipstream.capture(tmp_path / "2", start=0, announce=said.append)
    run_steps(lambda *a, **k: (first(*a, **k), second(*a, **k)), 6)
    first.wait()
    assert second.problem == "another capture of Slipstream is running in this process"
    assert first.problem is None and recorded_steps(tmp_path / "1") == 3


def test_recordings_of_the_same_second_lie_beside_each_other(tmp_path, said):
    """JAX would write over the first, which is being read."""
    (tmp_path / "own.txt").write_text("not ours")
    hooks = []
    for _ in range(3):
        hooks.append(slipstream.capture(tmp_path, start=0, steps=1, announce=said.append))
        run_steps(hooks[-1], 3)
    for hook in hooks:
        hook.wait()
    assert [hook.problem for hook in hooks] == [None] * 3
    assert len(list(tmp_path.rglob("*.xplane.pb"))) == 3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.txt", "plugins"]


@pytest.mark.parametrize("how", ["abandoned", "not saved", "not moved"])
def test_what_lies_in_the_folder_stays_there(tmp_path, monkeypatch, how):
    (tmp_path / "own.txt").write_text("not ours")
    session = ProfilerSession(tmp_path)
    session.start()
    stop = jax.profiler.stop_trace

    def fails(*arguments):
        if how == "not saved":
            stop()
        raise OSError(28, "No space left on device")

    if how == "abandoned":
        session.abandon()
    else:
        owner, name = (jax.profiler, "stop_trace") if how == "not saved" else (os, "rename")
        monkeypatch.setattr(owner, name, fails)
        with pytest.raises(ProfilerFailed, match="No space left"):
            session.stop()
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir() if path.name != "plugins"] == ["own.txt"]
    assert list(tmp_path.rglob("*.xplane.pb")) == []
    again = ProfilerSession(tmp_path)
    again.start()
    assert again.stop() == tmp_path and again.recording is not None


def test_an_empty_recording_is_noticed_with_the_likely_culprit(tmp_path, said, caplog):
    with slipstream.capture(tmp_path, start=0, announce=said.append) as hook:
        pass
    assert "no device work; most likely another profiler held CUPTI" in hook.problem
    assert "DCGM" in caplog.text


def test_a_disk_that_is_full_is_a_warning(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    hook = slipstream.capture(tmp_path / "file" / "logs", start=0, steps=1)
    run_steps(hook, 4)
    assert "did not start" in hook.problem
    session = ProfilerSession(tmp_path / "after")
    session.start()
    session.abandon()


def test_threads_may_call_the_hook(tmp_path, said):
    hook = slipstream.capture(tmp_path, start=4, steps=4, announce=said.append)
    threads = [threading.Thread(target=lambda: [hook() for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hook.wait()
    assert hook.folder == tmp_path


def test_numbers_that_make_no_sense_are_refused():
    with pytest.raises(BadInput, match="steps >= 1"):
        slipstream.capture("logs", steps=0)


def test_each_process_has_its_folder_and_one_announces(tmp_path, said, monkeypatch):
    monkeypatch.setattr(module, "_process_count", lambda: 2)
    monkeypatch.setattr(module, "_process", lambda: 1)
    with slipstream.capture(tmp_path, start=0, announce=said.append) as hook:
        captured_step(jnp.eye(16)).block_until_ready()
    assert hook.folder == tmp_path / "process1" and said == []
    monkeypatch.setattr(module, "_process", lambda: 0)
    with slipstream.capture(tmp_path, start=0, announce=said.append):
        captured_step(jnp.eye(16)).block_until_ready()
    (sentence,) = said
    assert (
        f"recorded {tmp_path}/process0 (the other 1 processes saved theirs beside it)" in sentence
    )


def test_a_job_that_ends_in_the_middle_saves_what_it_has(tmp_path):
    script = f"""
import jax, jax.numpy as jnp, slipstream
jax.config.update("jax_platforms", "cpu")
hook = slipstream.capture({str(tmp_path)!r}, start=1, steps=1000)
for step in range(5):
    jax.jit(lambda x: x @ x)(jnp.eye(16)).block_until_ready()
    hook(step)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"recorded {tmp_path}" in done.stdout
    assert len(load(tmp_path).runs) >= 3


@pytest.mark.parametrize("page", ["capture", "optimize"])
def test_the_examples_of_the_docs_run(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = (Path(__file__).parents[2] / "docs" / f"{page}.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(examples) > 1

    def train_step(state, batch):
        state = state @ batch
        return state, state.sum()

    for example in examples:
        jitted = train_step if page == "optimize" else jax.jit(train_step)
        names = {"jax": jax, "slipstream": slipstream, "train_step": jitted}
        state, batch = jnp.eye(16), jnp.eye(16)
        used = names | {"state": state, "batch": batch, "data": [batch] * 10}
        exec(example, used)
        if "hook" in used:
            used["hook"].wait()  # a hook has no end of its own
        HOOKS.uninstall()
    said = capsys.readouterr().out
    assert ("still measured" if page == "optimize" else f"recorded {tmp_path}/logs") in said

"""Training loops with one trouble each, recorded here by JAX's profiler, and one without any."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from diagnosis.rules.test_rules import only, rules
from slipstream.analyses.gaps import gaps
from slipstream.diagnosis.diagnose import diagnose
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import Diagnosis
from slipstream.sources.load import load

STEPS, SIZE, PAUSE = 5, 512, 0.03
AHEAD = 6
"""calls before the first step, so that the device has work even if this thread has to wait"""
TROUBLES = ("input-bound", "host-bound", "host-callbacks", "compile-pauses", "launch-bound")
FILE = Path(__file__).name


@cache
def functions() -> dict[str, Any]:
    """The jitted functions of all loops."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy

    def step(weights: Any, batch: Any) -> Any:
        hidden = jnp.tanh(jnp.tanh(batch @ weights) @ weights)
        return weights - 1e-3 * (batch.T @ hidden), jnp.mean(hidden)

    def logged(weights: Any, batch: Any) -> Any:
        weights, loss = step(weights, batch)
        jax.experimental.io_callback(write_metrics, None, loss, ordered=True)
        return weights, loss

    import jax.experimental

    return {"step": jax.jit(step), "logged": jax.jit(logged)}


def write_metrics(loss: Any) -> None:
    """What takes its time, on the host."""
    until = time.perf_counter() + PAUSE
    while time.perf_counter() < until:
        float(loss)


def loaded(count: int, rows: Callable[[int], int] = lambda i: SIZE) -> Iterator[Any]:
    """Batches that take their time."""
    for i in range(count):
        time.sleep(PAUSE)
        yield np.full((rows(i), SIZE), 0.01, np.float32)


def healthy(weights: Any, batch: Any) -> Any:
    """All batches are there, all steps are dispatched at once, and the losses are read at last."""
    losses = []
    for _ in range(AHEAD):
        weights, _ = functions()["step"](weights, batch)
    for _ in steps():
        weights, loss = functions()["step"](weights, batch)
        losses.append(loss)
    return losses


def input_bound(weights: Any, batch: Any) -> Any:
    import jax

    batches = loaded(STEPS)
    for _ in steps():
        weights, loss = functions()["step"](weights, jax.device_put(next(batches)))
        loss.block_until_ready()
    return weights


def host_bound(weights: Any, batch: Any) -> Any:
    for _ in steps():
        weights, loss = functions()["step"](weights, batch)
        write_metrics(float(loss))
    return weights


def host_callbacks(weights: Any, batch: Any) -> Any:
    for _ in steps():
        weights, _ = functions()["logged"](weights, batch)
    return weights


def compile_pauses(weights: Any, batch: Any) -> Any:
    """The last batches of files have fewer rows, each another number."""
    for i in steps():
        rows = np.full((SIZE - 8 * (i + 1), SIZE), 0.01, np.float32)
        weights, loss = functions()["step"](weights, rows)
        loss.block_until_ready()
    return weights


def launch_bound(weights: Any, batch: Any) -> Any:
    """Many small operations outside of jit."""
    small = weights[:8, :8] * 1.0
    for _ in steps():
        for _ in range(20):
            small = small * 0.5 + 1.0
        small.block_until_ready()
    return small


def steps() -> Iterator[int]:
    import jax

    for i in range(STEPS):
        with jax.profiler.StepTraceAnnotation("train", step_num=i):
            yield i


LOOPS = {"healthy": healthy, "input-bound": input_bound, "host-bound": host_bound}
LOOPS |= {"host-callbacks": host_callbacks, "compile-pauses": compile_pauses}
LOOPS |= {"launch-bound": launch_bound}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Profile]:
    """One recording of each loop; all functions but those of `compile_pauses` are compiled."""
    jax = pytest.importorskip("jax")
    weights = batch = jax.numpy.full((SIZE, SIZE), 0.01)
    for name in ("healthy", "host-callbacks", "launch-bound"):
        jax.block_until_ready(LOOPS[name](weights, batch))
    found = {}
    for name, loop in LOOPS.items():
        folder = tmp_path_factory.mktemp(name)
        with jax.profiler.trace(folder):
            jax.block_until_ready(loop(weights, batch))
        found[name] = load(folder)
    return found


@pytest.fixture(scope="module")
def diagnosed(recorded: dict[str, Profile]) -> dict[str, Diagnosis]:
    return {name: diagnose(one) for name, one in recorded.items()}


@pytest.mark.parametrize("rule", TROUBLES)
def test_a_trouble_is_found_in_the_loop_that_has_it(
    rule: str, diagnosed: dict[str, Diagnosis]
) -> None:
    found = only(diagnosed[rule], rule)
    assert found.gain.high_us is not None and found.gain.us is not None or rule == "launch-bound"
    assert 0 <= found.gain.low_us <= (found.gain.high_us or 0) <= diagnosed[rule].step_us
    assert not any(change.text.startswith("--") for change in found.changes), "no flags of GPUs"


def test_the_loop_without_trouble(diagnosed: dict[str, Diagnosis]) -> None:
    found = diagnosed["healthy"]
    assert not set(rules(found)) & set(TROUBLES)
    assert set(TROUBLES) <= set(found.clear)


def test_the_largest_part_of_the_idle_time_is_named(diagnosed: dict[str, Diagnosis]) -> None:
    at_least = 0.3 * PAUSE * 1e6
    for rule in ("input-bound", "host-bound"):
        found = diagnosed[rule].findings[0]
        assert found.rule == rule
        assert found.gain.us is not None and found.gain.us > at_least
    # The functions of this file that take the time, with their lines.
    loader = only(diagnosed["input-bound"], "input-bound").exhibits[0]
    writer = only(diagnosed["host-bound"], "host-bound").exhibits[0]
    assert loader.name.startswith(f"${FILE}:") and loader.name.endswith(" loaded")
    assert writer.name.startswith(f"${FILE}:") and writer.name.endswith(" write_metrics")


def test_callbacks_take_their_time_on_the_cpu(diagnosed: dict[str, Diagnosis]) -> None:
    found = only(diagnosed["host-callbacks"], "host-callbacks")
    assert "1 callback (pure_callback, io_callback, debug.print) takes" in found.evidence
    (shown,) = found.exhibits
    assert shown.us > PAUSE * 1e6 and shown.times == 1
    assert shown.source.startswith(FILE)


def test_functions_that_are_compiled_in_every_step(
    recorded: dict[str, Profile], diagnosed: dict[str, Diagnosis]
) -> None:
    """Each program runs once, so only the function's name makes them steps of one loop."""
    found = only(diagnosed["compile-pauses"], "compile-pauses")
    assert f"jit_step ran as {STEPS} programs" in found.evidence
    # First steps that are much slower than the others are left out: on a busy machine, two.
    assert STEPS // 2 < recorded["compile-pauses"].steps.count <= STEPS
    assert found.gain.us is not None and found.gain.us > 0.5 * diagnosed["compile-pauses"].step_us


def test_steps_that_were_dispatched_ahead_wait_for_nobody(recorded: dict[str, Profile]) -> None:
    """Each run has its call, though all calls were made before the second run began."""
    found = recorded["healthy"]
    assert found.steps.basis == "annotations"
    assert STEPS // 2 < found.steps.count <= STEPS
    idle = gaps(found)
    assert idle.by_cause.get("latency", 0.0) == pytest.approx(idle.idle_us, rel=0.1)
    assert "unknown" not in idle.by_cause

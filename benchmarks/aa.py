"""How often an experiment finds a difference between two compiles of the same program.

A step is compiled twice, with the same flags. `slipstream run` would not time the two; here they
are compared all the same, by the controller, rounds, step timer and statistics of a real
experiment. The verdicts `faster` and `slower` are false, and without bias the second compile is
slower as often as faster.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from slipstream.experiment.controller import Controller
from slipstream.experiment.plan import ExperimentOutcome, ExperimentPlan
from slipstream.experiment.stats import Comparison
from slipstream.experiment.variants import Variant, make_arm, original_arm
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.hooks import HOOKS

STEPS_S = (50e-6, 1e-3, 20e-3, 200e-3)
SIZE = 64
AGAIN = Variant("again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--comparisons", type=int, default=10, help="for each length of a step")
    parser.add_argument("--steps", metavar="S,S,…", help="lengths in seconds", default=STEPS_S,
                        type=lambda text: [float(word) for word in text.split(",")])  # fmt: skip
    parser.add_argument("--processes", type=int, default=1, help="on CPUs: one on each core")
    parser.add_argument("--donate", action="store_true", help="each step overwrites its state")
    parser.add_argument("--wait", action="store_true", help="the job waits for each step")
    options = parser.parse_args()
    print(f"jax {jax.__version__}, {jax.devices()[0].device_kind}, {options.comparisons} each")
    print(
        f"{'step':>9}  {'verdicts':<40} {'slower/faster':>13} {'p':>6} {'median':>8} {'false':>6}"
    )
    for wanted_s in options.steps:
        print(line(list(comparisons(wanted_s, options))), flush=True)


def comparisons(wanted_s: float, options: argparse.Namespace) -> Iterator[Comparison]:
    """As many as asked for, shared out among processes."""
    if options.processes == 1:
        yield from compare_often(0, wanted_s, options.comparisons, options)
        return
    each = -(-options.comparisons // options.processes)
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        tasks = [
            pool.submit(compare_often, core, wanted_s, each, options)
            for core in range(options.processes)
        ]
        for task in tasks:
            yield from task.result()


def compare_often(
    core: int, wanted_s: float, count: int, options: argparse.Namespace
) -> list[Comparison]:
    if options.processes > 1:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[core % len(cores)]})
    loops = calibrated(wanted_s)
    return [compare_once(loops, options) for _ in range(count)]


def line(found: list[Comparison]) -> str:
    verdicts = Counter(one.verdict for one in found)
    slower = sum(one.change > 0 for one in found)
    faster = sum(one.change < 0 for one in found)
    step_us = statistics.median(one.before_us for one in found)
    change = statistics.median(one.change for one in found)
    text = ", ".join(f"{count} {verdict}" for verdict, count in sorted(verdicts.items()))
    false = verdicts["faster"] + verdicts["slower"]
    return (
        f"{step_us:6.0f} µs  {text:<40} {slower:>6}/{faster:<6} {sign_test(slower, faster):6.3f} "
        f"{change:+8.2%} {false:>6}"
    )


def sign_test(ups: int, downs: int) -> float:
    """How likely a balance as uneven as this is without bias, two-sided."""
    count, least = ups + downs, min(ups, downs)
    tail = sum(math.comb(count, k) for k in range(least + 1)) / 2**count
    return min(2 * tail, 1.0)


class Forced:
    """Compares every program named `jit_step` with another compile of itself."""

    def __init__(self, folder: Path) -> None:
        self.controller: Controller | None = None
        self._plan = ExperimentPlan(folder, 3, variants=(AGAIN,), is_recorded=True, checks=False)

    def on_compile(self, program: CompiledProgram) -> None:
        """Nothing to do: programs are compared when they run."""

    def on_call(self, program: CompiledProgram, arguments: Any, run: Callable[[], Any]) -> Any:
        if program.name != "jit_step":
            return run()
        if self.controller is None:
            self.controller = Controller(program, self._plan, prepare)
        if self.controller.compiled is not program:
            return run()
        return self.controller.on_call(arguments, run)


def prepare(compiled: CompiledProgram, plan: ExperimentPlan, outcome: ExperimentOutcome) -> None:
    """Both arms, although they are the same program."""
    arms = [original_arm(compiled), make_arm(compiled, AGAIN, None, None)]
    programs = [arm.program.content_hash for arm in arms if arm.program is not None]
    assert len(programs) == 2 and programs[0] == programs[1]
    outcome.arms = arms


def compare_once(loops: int, options: argparse.Namespace) -> Comparison:
    with tempfile.TemporaryDirectory() as folder:
        forced = Forced(Path(folder))
        HOOKS.add(forced)
        try:
            step = step_of(loops, donate=options.donate)
            state = jnp.eye(SIZE)
            while forced.controller is None or not forced.controller.done.is_set():
                state, loss = step(state)
                if options.wait:
                    float(loss)
        finally:
            HOOKS.remove(forced)
        outcome = forced.controller.outcome
        assert outcome.problem is None, outcome.problem
        return outcome.comparisons[AGAIN.name]


def step_of(loops: int, donate: bool = False) -> Any:
    def step(state: Any) -> Any:
        state = jax.lax.fori_loop(0, loops, lambda _, y: jnp.tanh(y @ y), state)
        return state, state.sum()

    return jax.jit(step, donate_argnums=(0,) if donate else ())


def calibrated(wanted_s: float) -> int:
    """Loops that make a step of about this length."""

    def seconds(loops: int) -> float:
        step, state = step_of(loops), jnp.eye(SIZE)
        jax.block_until_ready(step(state))
        times = []
        for _ in range(15):
            began_s = time.perf_counter()
            jax.block_until_ready(step(state))
            times.append(time.perf_counter() - began_s)
        return statistics.median(times)

    base_s, many_s = seconds(1), seconds(101)
    return max(1 + round((wanted_s - base_s) / max((many_s - base_s) / 100, 1e-9)), 1)


if __name__ == "__main__":
    main()

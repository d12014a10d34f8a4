"""A process that compiles one function in several ways, checks them and times them, on request.

    start    {module, function}   → {platform, devices}   builds the function and its inputs
    ahead    {programs}           → {compiled}            compiles all of them at once
    compile  {name, options}      → {memory_bytes}
    check    {name}               → {difference, is_finite}   against the first program checked
    time     {name}               → {seconds}             one step, as a training loop sees it

A training loop launches the next step while the current one runs, so host work is free unless it
takes longer than the devices do. `time` therefore launches two steps back to back and returns the
time from the end of the first to the end of the second; `times` goes on like this for several
steps. It needs a result of the first step that the second doesn't consume to see when the first
ends. Where there is none, or where inputs must be made in between, it returns the time of a single
step, from launch to result.

Donated inputs exist once. As in a training loop, the next step takes what the last one returned in
their place; what a step doesn't return is made again before the clock starts. A check starts from
the initial inputs, and so does a step after one whose loss was not finite.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from slipstream.bench.index_limits import index_limits
from slipstream.bench.synthetic_inputs import RECIPES, SyntheticInput, synthetic_inputs
from slipstream.compiler.worker.rpc import Answer, serve_stdin
from slipstream.experiment.compare_outputs import difference
from slipstream.experiment.step_timer import done_at
from slipstream.experiment.variants import memory_of
from slipstream.jaxhooks.compiled_program import XLA_ERRORS

if TYPE_CHECKING:
    import jax
    import numpy as np

_SAMPLE = 1 << 20
"""most values of a result that are compared"""


class Bench:
    """The function, its inputs, and its programs by name."""

    def __init__(self) -> None:
        self._lowered: jax.stages.Lowered | None = None
        self._abstract: tuple[Any, ...] = ()
        self._tree: Any = None
        self._inputs: list[SyntheticInput] = []
        self._limits: dict[int, int] = {}
        """how many values the integers among them may have, if they are indices"""
        self._arguments: list[Any] = []
        """on the devices; None before an input is made there, and after a step consumed it"""
        self._donated: list[int] = []
        """indices of donated arguments"""
        self._programs: dict[str, jax.stages.Compiled] = {}
        self._ahead: dict[str, tuple[dict[str, str], jax.stages.Compiled]] = {}
        """compiled ahead of their `compile` request, with their options"""
        self._expected: list[np.ndarray] | None = None
        self._watcher = ThreadPoolExecutor(1)

    def start(self, module: str, function: str) -> Answer:
        import jax

        from slipstream.compiler.worker.worker import import_target

        devices = list(jax.devices())
        self.build(getattr(import_target(module), function), devices)
        return {"platform": devices[0].platform, "devices": len(devices)}

    def build(
        self, function: Any, devices: list[Any], keywords: Mapping[str, Any] | None = None
    ) -> None:
        """Call a target's function, and lower what it returns."""
        import jax

        from slipstream.compiler.worker.lowering import WrongTarget, built_function

        made, self._abstract = built_function(function, devices, keywords)
        if not callable(made):
            raise WrongTarget(
                "returned a lowered or traced program; to time it, return the function and its "
                "arguments: return jitted, params, batch"
            )
        jitted = made if hasattr(made, "lower") else jax.jit(made)
        self._limits = {}
        if hasattr(jitted, "trace"):
            traced = jitted.trace(*self._abstract)
            self._limits = index_limits(traced.jaxpr)
            self._lowered = traced.lower()
        else:
            self._lowered = jitted.lower(*self._abstract)
        self._tree = jax.tree.structure(self._abstract)
        infos = jax.tree.leaves(self._lowered.args_info)
        self._donated = [number for number, info in enumerate(infos) if info.donated]
        self._make_inputs(0)

    def _make_inputs(self, recipe: int) -> None:
        self._inputs = synthetic_inputs(self._abstract, recipe, self._limits)
        self._arguments = [None] * len(self._inputs)

    def ahead(self, programs: dict[str, dict[str, str]]) -> Answer:
        """Compile all programs at once: XLA uses few threads for one program.

        A program that fails to compile is reported when `compile` requests it.
        """
        with ThreadPoolExecutor(len(programs)) as pool:
            made = list(pool.map(self._compiled_or_none, programs.values()))
        self._ahead = {
            name: (options, program)
            for (name, options), program in zip(programs.items(), made, strict=True)
            if program is not None
        }
        return {"compiled": sorted(self._ahead)}

    def _compiled_or_none(self, options: dict[str, str]) -> jax.stages.Compiled | None:
        try:
            return self._compiled(options)
        except XLA_ERRORS:
            return None

    def _compiled(self, options: dict[str, str]) -> jax.stages.Compiled:
        assert self._lowered is not None
        return self._lowered.compile(compiler_options={**options} or None)

    def compile(self, name: str, options: dict[str, str]) -> Answer:
        known, program = self._ahead.pop(name, (None, None))
        if program is None or known != options:
            program = self._compiled(options)
        self._programs[name] = program
        executable = program.runtime_executable()
        return {"memory_bytes": memory_of(executable) if executable is not None else None}

    def check(self, name: str) -> Answer:
        found = self._first_results(name)
        if self._expected is None:
            recipe = 0
            while not all(map(_is_finite, found)) and recipe + 1 < RECIPES:
                self._make_inputs(recipe := recipe + 1)
                found = self._first_results(name)
            self._expected = found
        is_finite = all(map(_is_finite, self._expected))
        largest = max(map(difference, self._expected, found), default=0.0)
        return {"difference": largest, "is_finite": is_finite}

    def _first_results(self, name: str) -> list[np.ndarray]:
        """Results for the initial inputs."""
        self._drop_donated()
        self._put_inputs()
        leaves = self._launch(name)
        found = [_sample(leaf) for leaf in leaves]
        self._feed_back(leaves)
        return found

    def _drop_donated(self) -> None:
        for number in self._donated:
            self._arguments[number] = None

    def find_recipe(self, name: str) -> bool:
        """Choose inputs for which the numbers that a step returns are finite; False if none are.

        The second step counts too: its weights are what the first one's optimizer made of them.
        """
        for recipe in range(RECIPES):
            self._make_inputs(recipe)
            if all(self._run(name, 0)[1] for _ in range(2)):
                return True
        return False

    def release(self) -> None:
        """Free the device memory of all inputs; the next step makes them again."""
        self._arguments = [None] * len(self._inputs)

    def time(self, name: str) -> Answer:
        (seconds,), _ = self._run(name, 1)
        return {"seconds": seconds}

    def times(self, name: str, steps: int) -> Answer:
        """Seconds of each step, and whether the numbers that they return are finite."""
        found: list[float] = []
        is_finite = True
        while len(found) < steps:
            seconds, is_finite_now = self._run(name, steps - len(found))
            found += seconds
            is_finite = is_finite and is_finite_now
        return {"seconds": found, "is_finite": is_finite}

    def _run(self, name: str, steps: int) -> tuple[list[float], bool]:
        """Launch a step, then time as many more as can follow it in a row; else time the first.

        Also whether the numbers that the last one returned are finite.
        """
        self._put_inputs()
        ends = [time.perf_counter()]
        leaves = self._launch(name)
        free = self._feed_back(leaves)
        if free and self._has_all_arguments():
            ends.clear()
            for _ in range(steps):
                # Keep only the smallest result of this step: the others may be large.
                first = min(free, key=lambda leaf: leaf.size)
                del free, leaves
                # Where launching takes longer than running, this step ends before the next is
                # launched, so another thread has to see it end.
                seen = self._watcher.submit(done_at, first)
                leaves = self._launch(name)
                ends.append(seen.result())
                free = self._feed_back(leaves)
        # Kept again below, once the step is known to have succeeded.
        self._drop_donated()
        ends.append(done_at(leaves))
        self._feed_back(leaves)
        is_finite = all(_is_finite(leaf) for leaf in leaves if not leaf.shape)
        if not is_finite:
            self._drop_donated()
        return [end - begin for begin, end in pairwise(ends)], is_finite

    def _put_inputs(self) -> None:
        """Make every missing argument on the devices."""
        for number, one in enumerate(self._inputs):
            if self._arguments[number] is None:
                self._arguments[number] = one.on_devices()
        done_at(self._arguments)

    def _has_all_arguments(self) -> bool:
        return all(argument is not None for argument in self._arguments)

    def _launch(self, name: str) -> list[jax.Array]:
        """Launch a step: its results may not be ready, and donated arguments are consumed."""
        import jax

        arguments = jax.tree.unflatten(self._tree, self._arguments)
        self._drop_donated()
        return jax.tree.leaves(self._programs[name](*arguments))

    def _feed_back(self, results: list[jax.Array]) -> list[jax.Array]:
        """Use results as the next step's donated arguments; return the results left over."""
        free = list(results)
        for number in self._donated:
            wanted = self._inputs[number]
            index = next((i for i, leaf in enumerate(free) if wanted.is_like(leaf)), None)
            if index is not None:
                self._arguments[number] = free.pop(index)
        return free


def _sample(leaf: jax.Array) -> np.ndarray:
    """Values spread evenly over a result: all of a small one, a fixed number of a large one."""
    import jax.numpy as jnp
    import numpy as np

    # Odd, so that the sample covers all columns of a matrix.
    stride = -(-leaf.size // _SAMPLE) | 1 if leaf.size > _SAMPLE else 1
    if stride > 1 and leaf.sharding.memory_kind == "device":
        return np.asarray(jnp.ravel(leaf)[::stride])
    return np.asarray(leaf).reshape(-1)[::stride]


def _is_finite(leaf: jax.Array | np.ndarray) -> bool:
    import jax.numpy as jnp

    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(jnp.isfinite(leaf).all())


if __name__ == "__main__":
    serve_stdin(Bench())

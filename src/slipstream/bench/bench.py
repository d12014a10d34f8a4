"""A process that runs one function compiled in several ways, each when it is asked to.

    start    {module, function}   → {platform, devices}   builds it, makes arguments
    ahead    {programs}           → {compiled}            all of them at once, for `compile`
    compile  {name, options}      → {memory_bytes}
    check    {name}               → {difference, is_finite}   against the first that was checked
    time     {name}               → {seconds}             one step, as a loop sees it

A loop launches the next step while the last one runs, so that the host's work costs nothing unless
there is more of it than the devices have. Hence two steps are launched, the second at once, and the
time is from the end of the first to the end of the second. The first one's end is that of a result
that the second doesn't take. Where there is none, or where arguments must be put on the devices in
between, the time is of one step, from launch to result.

Arguments that a step writes over (donated ones) are there once: as in a training loop, the next
step takes what the last one gave back in their place. What it didn't give back is put there anew,
from the host, before the clock starts. A check begins with the first arguments, and so does a step
after one whose loss was no number.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from slipstream.bench.synthetic_inputs import WAYS, SyntheticInput, synthetic_inputs
from slipstream.compiler.worker.rpc import Answer, serve_stdin
from slipstream.experiment.compare_outputs import difference
from slipstream.jaxhooks.compiled_program import XLA_ERRORS

_SAMPLE = 1 << 20
"""values of a result that are compared"""


class Bench:
    """The function, its arguments, and its programs by name."""

    def __init__(self) -> None:
        self._lowered: Any = None
        self._abstract: tuple[Any, ...] = ()
        self._tree: Any = None
        self._made: list[SyntheticInput] = []
        self._arguments: list[Any] = []
        """on the devices; None until it is put there, and after a step wrote over it"""
        self._donated: list[int] = []
        """places among the arguments"""
        self._programs: dict[str, Any] = {}
        self._ahead: dict[str, tuple[dict[str, str], Any]] = {}
        """compiled and not asked for yet, with their options"""
        self._expected: list[Any] | None = None
        self._watch = ThreadPoolExecutor(1)

    def start(self, module: str, function: str) -> Answer:
        import jax

        from slipstream.compiler.worker.worker import import_target

        devices = list(jax.devices())
        jitted, *abstract = getattr(import_target(module), function)(devices)
        self._lowered = jitted.lower(*abstract)
        self._abstract, self._tree = tuple(abstract), jax.tree.structure(tuple(abstract))
        infos = jax.tree.leaves(self._lowered.args_info)
        self._donated = [number for number, info in enumerate(infos) if info.donated]
        self._make_up(0)
        return {"platform": devices[0].platform, "devices": len(devices)}

    def _make_up(self, way: int) -> None:
        self._made = synthetic_inputs(self._abstract, way)
        self._arguments = [None] * len(self._made)

    def ahead(self, programs: dict[str, dict[str, str]]) -> Answer:
        """XLA uses few threads for one program. What fails is told when it is asked for."""
        with ThreadPoolExecutor(len(programs)) as pool:
            made = list(pool.map(self._compiled_or_none, programs.values()))
        self._ahead = {
            name: (options, program)
            for (name, options), program in zip(programs.items(), made, strict=True)
            if program is not None
        }
        return {"compiled": sorted(self._ahead)}

    def _compiled_or_none(self, options: dict[str, str]) -> Any:
        try:
            return self._compiled(options)
        except XLA_ERRORS:
            return None

    def _compiled(self, options: dict[str, str]) -> Any:
        return self._lowered.compile(compiler_options=options or None)

    def compile(self, name: str, options: dict[str, str]) -> Answer:
        known, program = self._ahead.pop(name, (None, None))
        self._programs[name] = program if known == options else self._compiled(options)
        from slipstream.experiment.variants import memory_of

        executable = self._programs[name].runtime_executable()
        return {"memory_bytes": memory_of(executable)}

    def check(self, name: str) -> Answer:
        found = self._first_results(name)
        if self._expected is None:
            way = 0
            while not all(map(_is_finite, found)) and way + 1 < WAYS:
                self._make_up(way := way + 1)
                found = self._first_results(name)
            self._expected = found
        is_finite = all(map(_is_finite, self._expected))
        largest = max(map(difference, self._expected, found), default=0.0)
        return {"difference": largest, "is_finite": is_finite}

    def _first_results(self, name: str) -> list[Any]:
        """Of the arguments as they were made up."""
        self._forget()
        self._put()
        leaves = self._launch(name)
        found = [_sample(leaf) for leaf in leaves]
        self._take_back(leaves)
        return found

    def _forget(self) -> None:
        for number in self._donated:
            self._arguments[number] = None

    def time(self, name: str) -> Answer:
        self._put()
        begin = time.perf_counter()
        leaves = self._launch(name)
        free = self._take_back(leaves)
        if free and self._is_all_there():
            # What else the first one gave back is not kept: it may be large.
            first = min(free, key=lambda leaf: leaf.size)
            del free, leaves
            # Where launching takes longer than running, the first is at its end before the second
            # is launched: somebody else has to watch.
            seen = self._watch.submit(_end_of, first)
            leaves = self._launch(name)
            begin = seen.result()
        # Until it is known that the step went well.
        self._forget()
        end = _end_of(leaves)
        self._take_back(leaves)
        if not all(_is_finite(leaf) for leaf in leaves if not leaf.shape):
            self._forget()
        return {"seconds": end - begin}

    def _put(self) -> None:
        """Every argument on the devices."""
        for number, made in enumerate(self._made):
            if self._arguments[number] is None:
                self._arguments[number] = made.on_devices()
        _end_of(self._arguments)

    def _is_all_there(self) -> bool:
        return all(argument is not None for argument in self._arguments)

    def _launch(self, name: str) -> list[Any]:
        """The results, which may not be there yet; donated arguments are gone."""
        import jax

        arguments = jax.tree.unflatten(self._tree, self._arguments)
        self._forget()
        return jax.tree.leaves(self._programs[name](*arguments))

    def _take_back(self, results: list[Any]) -> list[Any]:
        """What a step gave back where it wrote over its arguments is the next one's; the rest."""
        free = list(results)
        for number in self._donated:
            made = self._made[number]
            place = next((i for i, leaf in enumerate(free) if made.is_like(leaf)), None)
            if place is not None:
                self._arguments[number] = free.pop(place)
        return free


def _end_of(results: Any) -> float:
    """When they are there."""
    import jax

    wait: Any = jax.block_until_ready
    wait(results)
    return time.perf_counter()


def _sample(leaf: Any) -> Any:
    """Values spread over a result: all of a small one; of gigabytes few are enough to compare."""
    import jax.numpy as jnp
    import numpy as np

    # Odd, so that columns of a matrix take turns.
    stride = -(-leaf.size // _SAMPLE) | 1 if leaf.size > _SAMPLE else 1
    if stride > 1 and leaf.sharding.memory_kind == "device":
        return np.asarray(jnp.ravel(leaf)[::stride])
    return np.asarray(leaf).reshape(-1)[::stride]


def _is_finite(leaf: Any) -> bool:
    import jax.numpy as jnp

    return not jnp.issubdtype(leaf.dtype, jnp.inexact) or bool(jnp.isfinite(leaf).all())


if __name__ == "__main__":
    serve_stdin(Bench())

"""A process that runs one function compiled in several ways, each when it is asked to.

    start    {module, function}   → {platform, devices}   builds it, makes arguments
    compile  {name, options}      → {memory_bytes}
    check    {name}               → {difference}          against the first that was checked
    time     {name}               → {seconds}             one step, from launch to result

Arguments that a step writes over (donated ones) are there once: as in a training loop, the next
step takes what the last one gave back in their place. What it didn't give back is put there anew,
from the host, before the clock starts. A check begins with the first arguments.
"""

from __future__ import annotations

import time
from typing import Any

from slipstream.compiler.answering import Answer, answer_all
from slipstream.loop.results import difference

_SMALL = 0.02
"""the spread of made-up weights"""
_MOST_INTEGER = 8
"""made-up integers stay below: they may index something"""


class Bench:
    """The function, its arguments, and its programs by name."""

    def __init__(self) -> None:
        self._lowered: Any = None
        self._tree: Any = None
        self._arguments: list[Any] = []
        """on the devices; what a step wrote over is None until it is put there again"""
        self._donated: dict[int, Any] = {}
        """by their place among the arguments, as they were made up"""
        self._programs: dict[str, Any] = {}
        self._expected: list[Any] | None = None

    def start(self, module: str, function: str) -> Answer:
        import jax

        from slipstream.compiler.worker import import_target

        devices = list(jax.devices())
        jitted, *abstract = getattr(import_target(module), function)(devices)
        self._lowered = jitted.lower(*abstract)
        leaves, self._tree = jax.tree.flatten(tuple(abstract))
        infos = jax.tree.leaves(self._lowered.args_info)
        for number, (leaf, info) in enumerate(zip(leaves, infos, strict=True)):
            made = _MadeUp(leaf, number)
            if info.donated:
                self._donated[number] = made
            self._arguments.append(None if info.donated else made.on_devices())
        return {"platform": devices[0].platform, "devices": len(devices)}

    def compile(self, name: str, options: dict[str, str]) -> Answer:
        self._programs[name] = self._lowered.compile(compiler_options=options or None)
        from slipstream.loop.arms import memory_of

        executable = self._programs[name].runtime_executable()
        return {"memory_bytes": memory_of(executable)}

    def check(self, name: str) -> Answer:
        import jax
        import numpy as np

        for number in self._donated:
            self._arguments[number] = None
        result, _ = self._run(name)
        found = [np.asarray(leaf) for leaf in jax.tree.leaves(result)]
        self._take_back(jax.tree.leaves(result))
        if self._expected is None:
            self._expected = found
        return {"difference": max(map(difference, self._expected, found), default=0.0)}

    def time(self, name: str) -> Answer:
        import jax

        result, seconds = self._run(name)
        self._take_back(jax.tree.leaves(result))
        return {"seconds": seconds}

    def _run(self, name: str) -> tuple[Any, float]:
        import jax

        wait: Any = jax.block_until_ready
        for number, made in self._donated.items():
            if self._arguments[number] is None:
                self._arguments[number] = made.on_devices()
        arguments = jax.tree.unflatten(self._tree, self._arguments)
        wait(arguments)
        for number in self._donated:
            self._arguments[number] = None
        program = self._programs[name]
        begin = time.perf_counter()
        result = wait(program(*arguments))
        return result, time.perf_counter() - begin

    def _take_back(self, results: list[Any]) -> None:
        """What a step gave back where it wrote over its arguments, for the next one."""
        free = list(results)
        for number, made in self._donated.items():
            place = next((i for i, leaf in enumerate(free) if made.is_like(leaf)), None)
            if place is not None:
                self._arguments[number] = free.pop(place)


class _MadeUp:
    """An array for an abstract one: the same in every process."""

    def __init__(self, leaf: Any, number: int) -> None:
        self._leaf = leaf
        self._number = number
        self._values: Any = None

    def on_devices(self) -> Any:
        import jax

        if not isinstance(self._leaf, jax.ShapeDtypeStruct):
            return jax.numpy.array(self._leaf) if hasattr(self._leaf, "shape") else self._leaf
        if self._values is None:
            self._values = _made_up(self._leaf, self._number)
        return jax.device_put(self._values, self._leaf.sharding)

    def is_like(self, result: Any) -> bool:
        """Whether a result can stand in for it."""
        mine = self._leaf
        if not hasattr(mine, "shape") or (result.shape, result.dtype) != (mine.shape, mine.dtype):
            return False
        wanted = getattr(mine, "sharding", None)
        return wanted is None or bool(result.sharding.is_equivalent_to(wanted, result.ndim))


def _made_up(leaf: Any, number: int) -> Any:
    import jax
    import numpy as np

    random = np.random.default_rng(number)
    kind = np.dtype(leaf.dtype)
    if jax.numpy.issubdtype(kind, jax.numpy.floating):
        return (random.standard_normal(leaf.shape, np.float32) * _SMALL).astype(kind)
    values = random.integers(0, 2 if kind.kind == "b" else _MOST_INTEGER, leaf.shape)
    return values.astype(kind)


if __name__ == "__main__":
    answer_all(Bench())

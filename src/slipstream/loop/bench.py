"""A process that runs one function compiled in several ways, each when it is asked to.

    start    {module, function}   → {platform, devices}   builds it, makes arguments
    compile  {name, options}      → {memory_bytes}
    check    {name}               → {difference}          against the first that was checked
    time     {name}               → {seconds}             one step, from launch to result

Requests are lines of JSON, as the compiler's worker has them. Arguments that a step writes over
(donated ones) are copied before its clock starts.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from typing import Any, TextIO

Answer = dict[str, Any]
_SMALL = 0.02
"""the spread of made-up weights"""
_MOST_INTEGER = 8
"""made-up integers stay below: they may index something"""


class Bench:
    """The function, its arguments, and its programs by name."""

    def __init__(self) -> None:
        self._lowered: Any = None
        self._arguments: tuple[Any, ...] = ()
        self._donated: tuple[bool, ...] = ()
        self._programs: dict[str, Any] = {}
        self._expected: Any = None

    def start(self, module: str, function: str) -> Answer:
        import jax

        from slipstream.compiler.worker import import_target

        devices = list(jax.devices())
        jitted, *abstract = getattr(import_target(module), function)(devices)
        self._lowered = jitted.lower(*abstract)
        infos = jax.tree.leaves(self._lowered.args_info)
        self._donated = tuple(bool(info.donated) for info in infos)
        leaves, tree = jax.tree.flatten(tuple(abstract))
        made = [_made_up(leaf, number) for number, leaf in enumerate(leaves)]
        self._arguments = jax.tree.unflatten(tree, made)
        return {"platform": devices[0].platform, "devices": len(devices)}

    def compile(self, name: str, options: dict[str, str]) -> Answer:
        self._programs[name] = self._lowered.compile(compiler_options=options or None)
        from slipstream.loop.arms import memory_of

        executable = self._programs[name].runtime_executable()
        return {"memory_bytes": memory_of(executable)}

    def check(self, name: str) -> Answer:
        import jax
        import numpy as np

        result, _ = self._run(name)
        found = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(result)]
        if self._expected is None:
            self._expected = found
        return {"difference": max(map(_difference, self._expected, found), default=0.0)}

    def time(self, name: str) -> Answer:
        return {"seconds": self._run(name)[1]}

    def _run(self, name: str) -> tuple[Any, float]:
        import jax
        import jax.numpy as jnp

        wait: Any = jax.block_until_ready
        leaves, tree = jax.tree.flatten(self._arguments)
        fresh = [
            jnp.copy(leaf) if is_donated else leaf
            for leaf, is_donated in zip(leaves, self._donated, strict=True)
        ]
        arguments = jax.tree.unflatten(tree, fresh)
        wait(arguments)
        program = self._programs[name]
        begin = time.perf_counter()
        result = wait(program(*arguments))
        return result, time.perf_counter() - begin


def _made_up(leaf: Any, number: int) -> Any:
    """An array for an abstract one: the same in every process."""
    import jax
    import numpy as np

    if not isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    random = np.random.default_rng(number)
    kind = np.dtype(leaf.dtype)
    if jax.numpy.issubdtype(kind, jax.numpy.floating):
        values = (random.standard_normal(leaf.shape, np.float32) * _SMALL).astype(kind)
    else:
        values = random.integers(0, 2 if kind.kind == "b" else _MOST_INTEGER, leaf.shape)
        values = values.astype(kind)
    return jax.device_put(values, leaf.sharding)


def _difference(expected: Any, found: Any) -> float:
    """The largest error, against the largest value; infinite where one is not a number."""
    import numpy as np

    if expected.shape != found.shape or not np.array_equal(np.isnan(expected), np.isnan(found)):
        return float("inf")
    scale = float(np.nanmax(np.abs(expected), initial=0.0)) or 1.0
    return float(np.nanmax(np.abs(expected - found), initial=0.0)) / scale


def serve(requests: TextIO, answers: TextIO) -> None:
    bench = Bench()
    for line in requests:
        request = json.loads(line)
        try:
            answer = getattr(bench, request.pop("do"))(**request)
        except (Exception, SystemExit) as error:
            # Whatever a function or XLA raises is an answer; the traceback goes to the log.
            traceback.print_exc()
            answer = {"error": type(error).__name__, "line": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def main() -> None:
    # What the function prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    serve(sys.stdin, answers)
    answers.flush()
    os._exit(0)


if __name__ == "__main__":
    main()

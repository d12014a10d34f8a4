"""A process that times several combinations of a build function's arguments, on request.

    start   {module, function, cache}       → {platform, devices, kind, memory_bytes, jaxlib}
    add     {combinations}                  → {name: {memory_bytes, seconds}, or the error}
    time    {name, warm, warm_s, steps}     → {seconds, is_finite, peak_bytes}
    record  {name, steps, folder}           → {}

Every combination is another program with inputs of its own, and they don't fit into the devices'
memory together. So only one of them has its inputs there at a time; the next one to be timed takes
its place. `seconds` are those of each step, as `bench.py` takes them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipstream.bench.bench import Bench
from slipstream.compiler.memory_pool import PLAN_SHARE, VARIABLES
from slipstream.compiler.worker.rpc import Answer, failure_of, serve_stdin
from slipstream.jaxhooks.profiler import ProfilerSession

if TYPE_CHECKING:
    import jax

ARM = "arm"
"""the name of a combination's only program in its bench"""
MOST_THREADS = 8
"""programs that are compiled at once: each takes gigabytes of host memory"""


class Combinations:
    """Combinations by name, of which at most one is on the devices."""

    def __init__(self) -> None:
        self._function: Any = None
        self._devices: list[jax.Device] = []
        self._benches: dict[str, Bench] = {}
        self._resident = ""
        self._finite: dict[str, bool] = {}
        """whether inputs were found for which a combination returns finite numbers"""

    def start(self, module: str, function: str, cache: str | None = None) -> Answer:
        """`cache`: folder in which compiled programs outlive this process."""
        import jax

        from slipstream.compiler.worker.worker import import_target

        if cache is not None:
            jax.config.update(  # type: ignore[no-untyped-call]
                "jax_compilation_cache_dir", cache
            )
        self._devices = list(jax.devices())
        self._function = getattr(import_target(module), function)
        first = self._devices[0]
        stats = first.memory_stats() or {}
        return {
            "platform": first.platform,
            "devices": len(self._devices),
            "kind": first.device_kind,
            "memory_bytes": stats.get("bytes_limit"),
            "jaxlib": version("jaxlib"),
        }

    def add(self, combinations: Mapping[str, Mapping[str, Any]]) -> Answer:
        """Build combinations one after the other, then compile all of them at once."""
        self._leave()
        found: Answer = {}
        built: dict[str, Bench] = {}
        for name, keywords in combinations.items():
            bench = Bench()
            try:
                bench.build(self._function, self._devices, keywords)
                built[name] = bench
            except Exception as error:  # a build function may raise anything
                found[name] = {**failure_of(error), "stage": "build"}
        with ThreadPoolExecutor(min(MOST_THREADS, os.cpu_count() or 1)) as pool:
            found |= zip(built, pool.map(_compiled, built.values()), strict=True)
        self._benches |= {name: one for name, one in built.items() if "error" not in found[name]}
        return found

    def time(self, name: str, warm: int, steps: int, warm_s: float = 0.0) -> Answer:
        """Seconds of each step, after `warm` steps and seconds if its inputs had to be made."""
        before = self._peak_bytes()
        self._enter(name, warm, warm_s)
        answer = self._run(name, steps)
        peak = self._peak_bytes()
        # It only ever rises: unless it did just now, it may be that of another combination.
        is_own = peak is not None and peak > (before or 0)
        return {**answer, "peak_bytes": peak if is_own else None}

    def record(self, name: str, steps: int, folder: str) -> Answer:
        """Profile steps into a folder."""
        self._enter(name, 1)
        session = ProfilerSession(Path(folder))
        session.start()
        try:
            self._run(name, steps)
        finally:
            session.stop()
        return {}

    def _enter(self, name: str, warm: int, warm_s: float = 0.0) -> None:
        """Make a combination the one on the devices, and run it until they are warm."""
        if self._resident == name:
            return
        self._leave()
        self._resident = name
        if name not in self._finite:
            try:
                self._finite[name] = self._benches[name].find_recipe(ARM)
            except BaseException:
                self._leave()
                raise
        end = time.monotonic() + warm_s
        self._run(name, warm)
        while time.monotonic() < end:
            self._run(name, max(warm, 1))

    def _run(self, name: str, steps: int) -> Answer:
        try:
            answer = self._benches[name].times(ARM, steps)
        except BaseException:
            # What is left of a step that failed must not take the memory of others.
            self._leave()
            raise
        return {**answer, "is_finite": answer["is_finite"] and self._finite[name]}

    def _leave(self) -> None:
        if self._resident in self._benches:
            self._benches[self._resident].release()
        self._resident = ""

    def _peak_bytes(self) -> int | None:
        """The most that was ever allocated on a device; None where the backend doesn't count."""
        found = [(one.memory_stats() or {}).get("peak_bytes_in_use") for one in self._devices]
        return max((int(one) for one in found if one is not None), default=None)


def _compiled(bench: Bench) -> Answer:
    begin = time.perf_counter()
    try:
        answer = bench.compile(ARM, {})
    except Exception as error:  # of one combination; the others are worth timing all the same
        return {**failure_of(error), "stage": "compile"}
    return {**answer, "seconds": time.perf_counter() - begin}


if __name__ == "__main__":
    os.environ.setdefault(VARIABLES[0], str(PLAN_SHARE))
    serve_stdin(Combinations())

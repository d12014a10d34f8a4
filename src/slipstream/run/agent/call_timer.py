"""How long single calls of programs take on their devices."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from slipstream.experiment.step_timer import wait


class CallTimer:
    """Times calls one by one: what was called before must be done, and so must its arguments."""

    def __init__(self) -> None:
        self._before: list[weakref.ref[Any]] = []
        """some results of the last call"""

    def run(self, run: Callable[[], Any]) -> Any:
        """Run a call without waiting."""
        result = run()
        self._keep(result)
        return result

    def timed(self, arguments: Sequence[Any], run: Callable[[], Any]) -> tuple[Any, float]:
        """Run a call and wait for it: its result, and the seconds it took."""
        self._wait_for_others()
        _wait_quietly(arguments)
        begin = time.perf_counter()
        result = run()
        _wait_quietly(result)
        return result, time.perf_counter() - begin

    def _wait_for_others(self) -> None:
        """On one device, programs run one after the other."""
        for reference in self._before:
            value = reference()
            if value is not None and not value.is_deleted():
                _wait_quietly(value)

    def _keep(self, result: Any) -> None:
        import jax

        values = result if isinstance(result, (list, tuple)) else (result,)
        # The results of a program are ready together. Weakly: they are the job's to free.
        some = (value for value in (*values[:1], *values[-1:]) if isinstance(value, jax.Array))
        self._before = [weakref.ref(value) for value in some]


def _wait_quietly(values: Any) -> None:
    # A program that failed raises where the job uses its results.
    with suppress(RuntimeError):
        wait(values)

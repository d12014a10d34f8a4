"""The job's own profiler sessions come first: JAX allows one at a time in a process."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any


def give_way(stop_ours: Callable[[], None]) -> None:
    """Call `stop_ours` before any session begins: it ends one of ours that runs, if one does."""
    inside: Any = import_module("jax._src.profiler")
    outside: Any = import_module("jax.profiler")
    start = inside.start_trace

    def start_trace(*arguments: Any, **named: Any) -> Any:
        stop_ours()
        return start(*arguments, **named)

    start_trace.__doc__, start_trace.__name__ = start.__doc__, "start_trace"
    inside.start_trace = outside.start_trace = start_trace

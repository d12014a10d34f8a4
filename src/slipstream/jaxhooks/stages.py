"""What is inside jitted functions, and inside what `.lower()` and `.compile()` return."""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.hooks import HOOKS


def is_compiled(function: Any) -> bool:
    """Whether this is what `.compile()` returned."""
    return isinstance(function, private_api.COMPILED.get())


def is_lowered(function: Any) -> bool:
    """Whether this is what `.lower()` returned."""
    return isinstance(function, private_api.LOWERED.get())


def is_pmapped(function: Any) -> bool:
    """Whether this is from `jax.pmap`: it can be lowered, but not traced as a jitted function.

    Wrappers of libraries (`eqx.filter_jit`) have no `trace` either, but are no plain functions.
    """
    traits = ("lower", "trace", "_clear_cache")
    found = [hasattr(function, name) for name in traits]
    return inspect.isfunction(function) and found == [True, False, False]


def program_of(compiled: Any) -> CompiledProgram | None:
    """The program of what `.compile()` returned, found or adopted; None if its lowering is gone.

    A program can only be compiled again from what it was lowered to.
    """
    executable = private_api.COMPILED.of(compiled)._executable
    found = HOOKS.find(executable.xla_executable)
    if found is None:
        lowered_type = private_api.LOWERED.get()
        # By type: to ask a weak proxy for its class raises where what it stood for is gone.
        objects = (one for one in gc.get_objects() if issubclass(type(one), lowered_type))
        lowered = next((one for one in objects if _made(one, executable)), None)
        found = HOOKS.adopt(executable, lowered._lowering) if lowered is not None else None
    return found


def _made(lowered: Any, executable: Any) -> bool:
    return getattr(lowered._lowering, "_executable", None) is executable


def forget_fast_path(function: Any) -> None:
    """Make the next call of a function pass through Python: a fast path passes the hooks by."""
    if isinstance(function, private_api.PJIT_FUNCTION.get()):
        function._clear_cache()
    elif is_compiled(function):
        private_api.COMPILED.of(function)._call = None
    elif (clear := getattr(function, "_clear_cache", None)) is not None:
        clear()  # of a wrapper that passes on what a jitted function has
    else:
        for jitted in _held_by(function):
            jitted._clear_cache()


def _held_by(wrapper: Any) -> Iterator[Any]:
    """The jitted functions that a library's wrapper has, as `eqx.filter_jit` and `nnx.jit` do."""
    kind = private_api.PJIT_FUNCTION.get()
    return (value for value in getattr(wrapper, "__dict__", {}).values() if isinstance(value, kind))

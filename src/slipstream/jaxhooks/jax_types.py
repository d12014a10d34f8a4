"""Names for the JAX objects that pass through Slipstream, and how XLA's errors are told apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

Arguments: TypeAlias = Sequence[Any]
"""of one call: flattened arrays, as JAX passes them to an executable"""
Results: TypeAlias = Any
"""of one call: arrays, or a pytree of them"""
RunCall: TypeAlias = Callable[[], Results]
"""runs one call of a program"""
ProfilerOptions: TypeAlias = Any
"""`jax.profiler.ProfileOptions`; None for JAX's defaults"""


class HloModule(Protocol):
    def as_serialized_hlo_module_proto(self) -> bytes: ...


class LocalDevice(Protocol):
    device_kind: str

    def memory_stats(self) -> Mapping[str, int] | None: ...


class Executable(Protocol):
    """A program that XLA compiled and loaded (`jaxlib`'s `LoadedExecutable`)."""

    def hlo_modules(self) -> Sequence[HloModule]: ...

    def local_devices(self) -> Sequence[LocalDevice]: ...

    def get_compiled_memory_stats(self) -> object: ...


_ALLOCATION_FAILED = "RESOURCE_EXHAUSTED"
OUT_OF_MEMORY = re.compile(rf"{_ALLOCATION_FAILED}|out of memory|\bOOM\b", re.IGNORECASE)
"""in an error or a line of a log: device memory ran out"""
_HOST_OUT_OF_MEMORY = re.compile(r"oom[-_ ]kill|MemoryError|bad_alloc", re.IGNORECASE)


def is_out_of_memory(text: str, *, or_host: bool = False) -> bool:
    """Whether an error or a line of a log says that device memory (or host memory) ran out."""
    return bool(OUT_OF_MEMORY.search(text) or (or_host and _HOST_OUT_OF_MEMORY.search(text)))


def is_allocation_failure(text: str) -> bool:
    """Whether XLA could not allocate a program's buffers, which it does before anything runs."""
    return _ALLOCATION_FAILED in text


def first_line(error: BaseException, most: int = 300) -> str:
    """What an error says, in one line; its type where it says nothing."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:most]

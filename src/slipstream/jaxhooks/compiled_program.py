"""One program that JAX compiled, and the way to compile it again."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slipstream.errors import Missing
from slipstream.jaxhooks import compiling
from slipstream.jaxhooks.jax_types import Executable

KEPT_BYTES = 256 << 20
"""of StableHLO, in all programs; beyond it, those that run least lose the way to be recompiled"""
XLA_ERRORS = (RuntimeError, ValueError)
"""what compiling raises: jax.errors.JaxRuntimeError is a RuntimeError, and options that XLA doesn't
know or can't read are a ValueError"""
_DONATED = (b"tf.aliasing_output", b"jax.buffer_donor")
"""marks in StableHLO of an argument that the program may overwrite"""


@dataclass(eq=False)
class CompiledProgram:
    """One program that JAX compiled: its executable, and what compiling it again takes."""

    name: str
    stablehlo: bytes
    compile_s: float
    executable: Executable
    """what JAX runs for it now"""
    original: Executable
    """what it runs unless a variant is faster"""
    calls: int = 0
    is_settled: bool = False
    """whether JAX's fast path may run it"""
    is_compared: bool = False
    """whether its executables are being timed: all of them, JAX's own too, are then run alike"""
    options: bytes = b""
    """how JAX compiled it: a serialized CompileOptionsProto"""
    _backend: Any = None
    _devices: Any = None
    _callbacks: Sequence[Any] = ()
    autopgle_executable: Any = None
    """what AutoPGLE compiled for it, where that is not the original"""
    runner: tuple[weakref.ref[Any], Any] | None = None
    """a copy of JAX's object that runs it, for an executable other than JAX's, and of which"""
    lock: threading.RLock = field(default_factory=threading.RLock)
    calls_lock: threading.Lock = field(default_factory=threading.Lock)
    users: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """JAX's objects that run it; once all are gone, nothing can"""

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes whose devices it runs on; at each call all of them must run the same."""
        return tuple(sorted({int(device.process_index) for device in self._devices}))

    @property
    def device_ids(self) -> tuple[int, ...]:
        """The devices that it runs on, in the order of its mesh."""
        return tuple(int(device.id) for device in self._devices)

    @property
    def platform(self) -> str:
        """`cpu`, `gpu`, `tpu`; empty where unknown."""
        return str(getattr(self._backend, "platform", ""))

    @property
    def flags_in_effect(self) -> dict[str, str]:
        """Flags it was compiled with: those of `XLA_FLAGS`, and the function's own options."""
        words = os.environ.get("XLA_FLAGS", "").split()
        split = (word.lstrip("-").partition("=") for word in words if word.startswith("--"))
        own = compiling.overrides_in(self.options) if self.options else {}
        return {name: value for name, _, value in split} | own

    @property
    def is_repeatable(self) -> bool:
        """Whether a failed run can be repeated: it donates nothing and calls no host code."""
        return bool(self.stablehlo) and not len(self._callbacks) and not self.donates

    @property
    def donates(self) -> bool:
        """Whether it may overwrite arguments, as training steps do."""
        return any(mark in self.stablehlo for mark in _DONATED)

    def recompile(self, flags: Mapping[str, str], costs: bytes | None = None) -> Executable:
        """The same program compiled with other flags, or with costs for XLA's scheduler."""
        if not self.stablehlo:
            raise Missing(
                f"{self.name} can't be compiled again: its StableHLO was dropped, since the "
                f"programs of this job have more than {KEPT_BYTES >> 20} MiB of it"
            )
        compiled: Executable = compiling.recompile(
            self.stablehlo, self._backend, self._devices, self.options, self._callbacks,
            flags=flags, costs=costs,
        )  # fmt: skip
        return compiled

    def run_with(self, executable: Executable) -> None:
        """From the next call on, run this executable."""
        if executable is not self.executable:
            self.runner = None  # it would keep the other executable in memory
        self.executable = executable

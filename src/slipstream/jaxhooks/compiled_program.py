"""One program that JAX compiled, and the way to compile it again."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from slipstream.errors import Missing
from slipstream.jaxhooks.jax_types import Executable

KEPT_BYTES = 256 << 20
"""of StableHLO, all programs together; beyond it those that run least can't be compiled again"""
XLA_ERRORS = (RuntimeError, ValueError)
"""what compiling raises: jax.errors.JaxRuntimeError is a RuntimeError, and options that XLA doesn't
know or can't read are a ValueError"""
_DONATED = (b"tf.aliasing_output", b"jax.buffer_donor")
"""in StableHLO, at an argument that the program may write over"""


@dataclass(eq=False)
class CompiledProgram:
    """One program that JAX compiled: what is needed to compile it again, and its executable."""

    name: str
    stablehlo: bytes
    compile_s: float
    executable: Executable
    """what JAX runs for it now"""
    original: Executable
    """what runs where nothing else is better"""
    calls: int = 0
    is_settled: bool = False
    """whether the fast path may have it"""
    _backend: Any = None
    _devices: Any = None
    _options: bytes = b""
    _callbacks: Sequence[Any] = ()
    autopgle_executable: Any = None
    """what JAX made for it, where that isn't the original: AutoPGLE's"""
    lock: threading.RLock = field(default_factory=threading.RLock)
    calls_lock: threading.Lock = field(default_factory=threading.Lock)
    _users: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """JAX's objects that run it; once all are gone, nobody can"""

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes whose devices it runs on: all of them must run the same at each call."""
        return tuple(sorted({int(device.process_index) for device in self._devices}))

    @property
    def is_repeatable(self) -> bool:
        """Whether a run that failed half-way leaves no trace: nothing donated, no host called."""
        if not self.stablehlo or len(self._callbacks):
            return False
        return not any(mark in self.stablehlo for mark in _DONATED)

    def recompile(self, flags: Mapping[str, str], costs: bytes | None = None) -> Executable:
        """The same program compiled with other flags, or with costs for XLA's scheduler."""
        compiled: Executable = _compile(self, flags, costs)
        return compiled

    def run_with(self, executable: Executable) -> None:
        """From the next call on, run this executable."""
        self.executable = executable


def _compile(program: CompiledProgram, flags: Mapping[str, str], costs: bytes | None) -> Any:
    from jax._src import compiler
    from jax._src.interpreters import mlir

    xla_client: Any = import_module("jax._src.lib").xla_client
    ir: Any = import_module("jax._src.lib.mlir").ir

    if not program.stablehlo:
        raise Missing(
            f"{program.name} can't be compiled again: its StableHLO was let go of, since the "
            f"programs of this job take more than {KEPT_BYTES >> 20} MiB of it"
        )
    options = xla_client.CompileOptions.ParseFromString(program._options)
    overrides = dict(options.env_option_overrides) | dict(flags)
    options.env_option_overrides = list(overrides.items())
    if costs is not None:
        options.executable_build_options.fdo_profile = costs
    with mlir.make_ir_context():
        module = ir.Module.parse(program.stablehlo)
        return compiler.backend_compile_and_load(
            program._backend, module, program._devices, options, program._callbacks
        )

"""JAX's runtime, watched: every program it compiles, and each time one of them runs.

    jitted(x) ──► C++ fast path ───────────────────────────► device
                      │ only after a first call through Python, and only if Python says so
                      ▼
                 ExecuteReplicated.__call__   ◄── a listener stands here while it has something to
                                                  measure; then the fast path is given back

All that Slipstream knows of JAX's private parts is in this file. A listener that raises is dropped
with a warning, and the call goes on as if nobody had listened.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from slipstream.errors import Missing

log = logging.getLogger("slipstream")


@dataclass(eq=False)
class Watched:
    """One program that JAX compiled: what is needed to compile it again, and its executable."""

    name: str
    stablehlo: bytes
    compile_s: float
    executable: Any
    """what JAX runs for it now"""
    original: Any
    calls: int = 0
    is_settled: bool = False
    """whether the fast path may have it"""
    _backend: Any = None
    _devices: Any = None
    _options: bytes = b""
    _callbacks: Sequence[Any] = ()
    lock: threading.RLock = field(default_factory=threading.RLock)

    def recompile(self, flags: Mapping[str, str], costs: bytes | None = None) -> Any:
        """The same program compiled with other flags, or with costs for XLA's scheduler."""
        return _compile(self, flags, costs)

    def run_with(self, executable: Any) -> None:
        """From the next call on, run this executable."""
        self.executable = executable


class Listener(Protocol):
    """Stands around each run of a program, until the program is settled."""

    def on_compile(self, program: Watched) -> None: ...

    def on_call(self, program: Watched, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        """Must call `run` exactly once and return what it returns."""


class Runtime:
    """The one watcher of a process."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._programs: dict[int, Watched] = {}
        self._originals: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._busy = threading.local()

    @property
    def programs(self) -> list[Watched]:
        return list({id(program): program for program in self._programs.values()}.values())

    def of_executable(self, executable: Any) -> Watched | None:
        return self._programs.get(id(executable))

    def add(self, listener: Listener) -> None:
        """Watch from now on; the first listener puts the hooks into JAX."""
        with self._lock:
            if not self._originals:
                self._install()
            self.listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        with self._lock:
            if listener in self.listeners:
                self.listeners.remove(listener)

    def adopt(self, executable: Any, lowering: Any) -> Watched:
        """Watch a program that was compiled before anyone watched, from its lowering."""
        found = self.of_executable(executable.xla_executable)
        if found is None:
            module = lowering.stablehlo()
            what = (_name(module), _bytecode(module))
            found = self._remember(executable.xla_executable, what, 0.0, *_how(executable))
        return found

    def _install(self) -> None:
        compiler, pxla, pjit = _jax_parts()
        self._originals = {
            "compile": compiler.compile_or_get_cached,
            "call": pxla.ExecuteReplicated.__call__,
            "fastpath": pjit._get_fastpath_data,
            "rebuild": pjit._need_to_rebuild_with_fdo,
            "aot": pxla.MeshExecutable.create_cpp_call,
        }
        compiler.compile_or_get_cached = self._compiling
        pjit._get_fastpath_data = self._fastpath
        pjit._need_to_rebuild_with_fdo = self._rebuild
        runtime = self

        def call(replicated: Any, *arguments: Any) -> Any:
            return runtime._calling(replicated, arguments)

        def create_cpp_call(executable: Any, params: Any) -> Any:
            if runtime._wants(executable.xla_executable):
                return None
            return runtime._originals["aot"](executable, params)

        pxla.ExecuteReplicated.__call__ = call
        pxla.MeshExecutable.create_cpp_call = create_cpp_call

    def uninstall(self) -> None:
        """Give JAX back as it was."""
        with self._lock:
            if not self._originals:
                return
            compiler, pxla, pjit = _jax_parts()
            compiler.compile_or_get_cached = self._originals["compile"]
            pxla.ExecuteReplicated.__call__ = self._originals["call"]
            pjit._get_fastpath_data = self._originals["fastpath"]
            pjit._need_to_rebuild_with_fdo = self._originals["rebuild"]
            pxla.MeshExecutable.create_cpp_call = self._originals["aot"]
            self._originals = {}
            self.listeners.clear()
            self._programs.clear()

    def _compiling(self, backend: Any, computation: Any, *rest: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        executable = self._originals["compile"](backend, computation, *rest, **named)
        seconds = time.perf_counter() - begin
        try:
            names = ("devices", "compile_options", "host_callbacks", "executable_devices")
            given = {**dict(zip(names, rest, strict=False)), **named}
            how = (
                backend,
                given["executable_devices"],
                given["compile_options"].SerializeAsString(),
                given["host_callbacks"],
            )
            what = (_name(computation), _bytecode(computation))
            program = self._remember(executable, what, seconds, *how)
            for listener in list(self.listeners):
                listener.on_compile(program)
        except Exception:
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )
        return executable

    def _remember(
        self,
        executable: Any,
        what: tuple[str, bytes],
        seconds: float,
        backend: Any,
        devices: Any,
        options: bytes,
        callbacks: Sequence[Any],
    ) -> Watched:
        program = Watched(
            *what, seconds, executable, executable,
            _backend=backend, _devices=devices, _options=options, _callbacks=callbacks,
        )  # fmt: skip
        self._programs[id(executable)] = program
        return program

    def _wants(self, executable: Any) -> bool:
        program = self.of_executable(executable)
        return bool(self.listeners) and program is not None and not program.is_settled

    def _fastpath(self, executable: Any, *rest: Any, **named: Any) -> Any:
        loaded = getattr(executable, "xla_executable", None)
        program = self.of_executable(loaded)
        self._busy.unsettled = self._wants(loaded)
        if self._busy.unsettled:
            return None
        if program is not None and program.executable is not loaded:
            # From here on the fast path runs what was chosen.
            self._programs[id(program.executable)] = program
            executable.xla_executable = program.executable
        return self._originals["fastpath"](executable, *rest, **named)

    def _rebuild(self, profiler: Any) -> bool:
        """Whether the C++ side must ask again: what it gives up on once stays slow for good."""
        unsettled = getattr(self._busy, "unsettled", False)
        return unsettled or bool(self._originals["rebuild"](profiler))

    def _calling(self, replicated: Any, arguments: tuple[Any, ...]) -> Any:
        original = self._originals["call"]
        program = self.of_executable(replicated.xla_executable)
        if program is None:
            return original(replicated, *arguments)
        program.calls += 1

        def run() -> Any:
            if replicated.xla_executable is not program.executable:
                self._programs[id(program.executable)] = program
                replicated.xla_executable = program.executable
            return original(replicated, *arguments)

        # What a listener runs itself is nobody's step.
        if program.is_settled or not self.listeners or getattr(self._busy, "now", False):
            return run()
        self._busy.now = True
        try:
            return self._heard(program, arguments, run)
        finally:
            self._busy.now = False

    def _heard(self, program: Watched, arguments: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        once = _Once(run)
        try:
            call: Callable[[], Any] = once
            for listener in list(self.listeners):
                call = _around(listener, program, arguments, call)
            return call()
        except Exception:
            if once.failed:
                raise
            log.warning("slipstream: measuring stopped; the job goes on", exc_info=True)
            program.is_settled = True
            program.run_with(program.original)
            return once()


class _Once:
    """A call that happens once, however often it is asked for: arguments may be donated."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.run = run
        self.is_done = False
        self.failed = False
        self.result: Any = None

    def __call__(self) -> Any:
        if not self.is_done:
            try:
                self.result = self.run()
            except BaseException:
                self.failed = True
                raise
            self.is_done, self.failed = True, False
        return self.result


def _around(
    listener: Listener, program: Watched, arguments: tuple[Any, ...], call: Callable[[], Any]
) -> Callable[[], Any]:
    return lambda: listener.on_call(program, arguments, call)


RUNTIME = Runtime()


def _jax_parts() -> tuple[Any, Any, Any]:
    try:
        from jax._src import compiler, pjit
        from jax._src.interpreters import pxla
    except ImportError as error:
        raise Missing(
            f"watching a training job needs jax, which can't be imported here ({error}); "
            "install it with: pip install 'jax[cuda13]'"
        ) from None
    return compiler, pxla, pjit


def _name(module: Any) -> str:
    ir: Any = import_module("jax._src.lib.mlir").ir

    return str(ir.StringAttr(module.operation.attributes["sym_name"]).value)


def _bytecode(module: Any) -> bytes:
    from jax._src.interpreters import mlir

    return mlir.module_to_bytecode(module)


def _how(executable: Any) -> tuple[Any, Any, bytes, Sequence[Any]]:
    """How a program was compiled, of one that was compiled before anyone watched."""
    unloaded = executable._unloaded_executable
    loaded = executable.xla_executable
    options = getattr(unloaded, "compile_options", None) or loaded.compile_options()
    return unloaded.backend, unloaded.device_list, options.SerializeAsString(), ()


def _compile(program: Watched, flags: Mapping[str, str], costs: bytes | None) -> Any:
    from jax._src import compiler
    from jax._src.interpreters import mlir

    xla_client: Any = import_module("jax._src.lib").xla_client
    ir: Any = import_module("jax._src.lib.mlir").ir

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

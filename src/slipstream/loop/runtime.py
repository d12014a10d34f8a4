"""JAX's runtime, watched: every program it compiles, and each time one of them runs.

    jitted(x) ──► C++ fast path ───────────────────────────► device
                      │ only after a first call through Python, and only if Python says so
                      ▼
                 ExecuteReplicated.__call__   ◄── a listener stands here while it has something to
                                                  measure; then the fast path is given back

All that Slipstream knows of JAX's private parts is in this file. A listener that raises never ends
the job: the call goes on as if nobody had listened. What JAX lets go of is let go of here.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from slipstream.errors import Missing

log = logging.getLogger("slipstream")

KEPT_BYTES = 256 << 20
"""of StableHLO, all programs together; beyond it those that run least can't be compiled again"""


@dataclass(eq=False)
class Watched:
    """One program that JAX compiled: what is needed to compile it again, and its executable."""

    name: str
    stablehlo: bytes
    compile_s: float
    executable: Any
    """what JAX runs for it now"""
    original: Any
    """what runs where nothing else is better"""
    calls: int = 0
    is_settled: bool = False
    """whether the fast path may have it"""
    _backend: Any = None
    _devices: Any = None
    _options: bytes = b""
    _callbacks: Sequence[Any] = ()
    by_jax: Any = None
    """what JAX made for it, where that isn't the original: AutoPGLE's"""
    lock: threading.RLock = field(default_factory=threading.RLock)
    lock_of_calls: threading.Lock = field(default_factory=threading.Lock)
    _users: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    """JAX's objects that run it; once all are gone, nobody can"""

    @property
    def processes(self) -> tuple[int, ...]:
        """The processes whose devices it runs on: all of them must run the same at each call."""
        return tuple(sorted({int(device.process_index) for device in self._devices}))

    def recompile(self, flags: Mapping[str, str], costs: bytes | None = None) -> Any:
        """The same program compiled with other flags, or with costs for XLA's scheduler."""
        return _compile(self, flags, costs)

    def run_with(self, executable: Any) -> None:
        """From the next call on, run this executable."""
        self.executable = executable


class JobFailed(Exception):
    """Raised by a listener for what it can't make good: its cause is the job's own error."""


class Listener(Protocol):
    """Stands around each run of a program, until the program is settled.

    A listener that has a method `wants(program) -> bool` leaves the others their fast path.
    """

    def on_compile(self, program: Watched) -> None: ...

    def on_call(self, program: Watched, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        """Must call `run` exactly once and return what it returns."""


class Runtime:
    """The one watcher of a process."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self._programs: dict[int, Watched] = {}
        self._originals: dict[str, Any] = {}
        self._bytes = 0
        """of StableHLO, at most"""
        self._unmet: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._busy = threading.local()

    @property
    def programs(self) -> list[Watched]:
        return list({id(program): program for program in self._programs.values()}.values())

    def of_executable(self, executable: Any) -> Watched | None:
        # An id says nothing once its object is gone, so the program must still hold the very one.
        found = self._programs.get(id(executable))
        if found is None:
            return None
        held = (found.original, found.executable, found.by_jax)
        return found if any(executable is one for one in held) else None

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

    def adopt(self, executable: Any, lowering: Any) -> Watched | None:
        """Watch a program that was compiled before anyone watched, from its lowering.

        JAX is asked to compile it again, and is handed what it had compiled: all that is wanted is
        how it would.
        """
        loaded = executable.xla_executable
        if self.of_executable(loaded) is not None:
            return self.of_executable(loaded)
        _, pxla, _ = _jax_parts()
        pxla._cached_compilation.evict_weakref(lowering._hlo)
        before, lowering._executable = lowering._executable, None
        self._busy.adopted = loaded
        try:
            again = self._originals["lowered"](lowering)
        finally:
            self._busy.adopted = None
            lowering._executable = before
        self._adopt_user(executable.unsafe_call)
        del again
        return self.of_executable(loaded)

    def _install(self) -> None:
        compiler, pxla, pjit = _jax_parts()
        self._originals = {
            "compile": compiler.compile_or_get_cached,
            "call": pxla.ExecuteReplicated.__call__,
            "made": pxla.ExecuteReplicated.__init__,
            "lowered": pxla.MeshComputation.compile,
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

        def made(replicated: Any, *arguments: Any, **named: Any) -> None:
            runtime._originals["made"](replicated, *arguments, **named)
            runtime._adopt_user(replicated)

        def compile(lowering: Any, *arguments: Any, **named: Any) -> Any:
            executable = runtime._originals["lowered"](lowering, *arguments, **named)
            runtime._meet(executable, lowering)
            return executable

        def create_cpp_call(executable: Any, params: Any) -> Any:
            if runtime._wants(executable.xla_executable):
                return _Compiled(runtime, executable, params)
            runtime._switch(executable)
            return runtime._originals["aot"](executable, params)

        pxla.ExecuteReplicated.__call__ = call
        pxla.ExecuteReplicated.__init__ = made
        pxla.MeshComputation.compile = compile
        pxla.MeshExecutable.create_cpp_call = create_cpp_call

    def uninstall(self) -> None:
        """Give JAX back as it was."""
        with self._lock:
            if not self._originals:
                return
            compiler, pxla, pjit = _jax_parts()
            compiler.compile_or_get_cached = self._originals["compile"]
            pxla.ExecuteReplicated.__call__ = self._originals["call"]
            pxla.ExecuteReplicated.__init__ = self._originals["made"]
            pjit._get_fastpath_data = self._originals["fastpath"]
            pjit._need_to_rebuild_with_fdo = self._originals["rebuild"]
            pxla.MeshComputation.compile = self._originals["lowered"]
            pxla.MeshExecutable.create_cpp_call = self._originals["aot"]
            self._originals = {}
            self.listeners.clear()
            self._programs.clear()
            self._unmet.clear()
            self._bytes = 0

    def _compiling(self, backend: Any, computation: Any, *rest: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        executable, self._busy.adopted = getattr(self._busy, "adopted", None), None
        if executable is None:
            executable = self._originals["compile"](backend, computation, *rest, **named)
            if not self.listeners:
                return executable
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
        self._bytes += len(program.stablehlo)
        if self._bytes > KEPT_BYTES:
            self._bound()
        return program

    def _bound(self) -> None:
        """Jobs that compile thousands of programs keep the StableHLO of those that run."""
        programs = self.programs
        self._bytes = sum(len(program.stablehlo) for program in programs)
        for program in sorted(programs[:-1], key=lambda p: (not p.is_settled, p.calls)):
            if self._bytes <= KEPT_BYTES:
                return
            self._bytes -= len(program.stablehlo)
            program.stablehlo = b""

    def _meet(self, executable: Any, lowering: Any) -> None:
        """A program that JAX compiled before anyone watched, and runs again."""
        if not self.listeners or lowering in self._unmet:
            return
        try:
            loaded = getattr(executable, "xla_executable", None)
            if loaded is None or self.of_executable(loaded) is not None:
                return
            if self.adopt(executable, lowering) is None:
                self._unmet.add(lowering)
        except Exception:
            self._unmet.add(lowering)
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )

    def _adopt_user(self, replicated: Any) -> None:
        program = self.of_executable(replicated.xla_executable)
        if program is None:
            return
        program._users.add(replicated)
        weakref.finalize(replicated, self._forget, weakref.ref(program)).atexit = False

    def _forget(self, reference: weakref.ref[Watched]) -> None:
        """JAX let go of a program: its executable holds memory of the device."""
        program = reference()
        if program is None or list(program._users):  # its len() counts those that are dying
            return
        for executable in (program.original, program.executable, program.by_jax):
            if self._programs.get(id(executable)) is program:
                self._programs.pop(id(executable), None)

    def _wants(self, executable: Any) -> bool:
        program = self.of_executable(executable)
        if program is None or program.is_settled:
            return False
        return any(_is_wanted(listener, program) for listener in list(self.listeners))

    def _fastpath(self, executable: Any, *rest: Any, **named: Any) -> Any:
        self._busy.unsettled = self._wants(getattr(executable, "xla_executable", None))
        if self._busy.unsettled:
            return None
        self._switch(executable)
        return self._originals["fastpath"](executable, *rest, **named)

    def _switch(self, executable: Any) -> None:
        """From here on JAX's fast path runs what was chosen."""
        loaded = getattr(executable, "xla_executable", None)
        program = self.of_executable(loaded)
        if program is not None and program.is_settled and program.executable is not loaded:
            self._programs[id(program.executable)] = program
            executable.xla_executable = program.executable
            executable.unsafe_call.xla_executable = program.executable

    def _rebuild(self, profiler: Any) -> bool:
        """Whether the C++ side must ask again: what it gives up on once stays slow for good."""
        unsettled = getattr(self._busy, "unsettled", False)
        return unsettled or bool(self._originals["rebuild"](profiler))

    def _calling(self, replicated: Any, arguments: tuple[Any, ...]) -> Any:
        original = self._originals["call"]
        program = self.of_executable(replicated.xla_executable)
        if program is None:
            return original(replicated, *arguments)
        with program.lock_of_calls:
            program.calls += 1

        def run() -> Any:
            return original(self._runner(replicated, program), *arguments)

        # What a listener runs itself is nobody's step.
        if getattr(self._busy, "now", False) or not self._wants(replicated.xla_executable):
            return run()
        self._busy.now = True
        try:
            return self._heard(program, arguments, run)
        finally:
            self._busy.now = False

    def _runner(self, replicated: Any, program: Watched) -> Any:
        """What runs the program's executable of the moment, whatever other threads run."""
        executable = program.executable
        if replicated.xla_executable is executable:
            return replicated
        if program.is_settled:
            self._programs[id(executable)] = program
            replicated.xla_executable = executable
            return replicated
        clone = copy.copy(replicated)
        clone.xla_executable = executable
        return clone

    def _heard(self, program: Watched, arguments: tuple[Any, ...], run: Callable[[], Any]) -> Any:
        once = _Once(run)
        try:
            call: Callable[[], Any] = once
            for listener in [one for one in self.listeners if _is_wanted(one, program)]:
                call = _around(listener, program, arguments, call)
            return call()
        except JobFailed as failed:
            raise failed.__cause__ or failed from None
        except Exception:
            if once.failed:
                raise
            log.warning("slipstream: measuring stopped; the job goes on", exc_info=True)
            program.is_settled = True
            program.run_with(program.original)
            return once()


class _Compiled:
    """An ahead-of-time compiled program's way to run: JAX asks for it once, and keeps it."""

    def __init__(self, runtime: Runtime, executable: Any, params: Any) -> None:
        self.runtime = runtime
        self.executable = executable
        self.params = params
        self.fast: Any = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.fast is None:
            if self.runtime._wants(self.executable.xla_executable):
                return self._slow(*arguments, **named)
            self.fast = type(self.executable).create_cpp_call(self.executable, self.params)
            self.fast = self.fast or self._slow
        return self.fast(*arguments, **named)

    def _slow(self, *arguments: Any, **named: Any) -> Any:
        stages: Any = import_module("jax.stages")

        return stages.Compiled.call(self.params, *arguments, **named)[0]


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

    def reset(self) -> None:
        """Let it happen again: what came of it is worth nothing, and its arguments are whole."""
        self.is_done, self.result = False, None


def _is_wanted(listener: Listener, program: Watched) -> bool:
    wants: Callable[[Watched], bool] | None = getattr(listener, "wants", None)
    return wants is None or wants(program)


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


def _compile(program: Watched, flags: Mapping[str, str], costs: bytes | None) -> Any:
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

"""JAX's hooks, watched: every program it compiles, and each time one of them runs.

    jitted(x) ──► C++ fast path ───────────────────────────► device
                      │ only after a first call through Python, and only if Python says so
                      ▼
                 ExecuteReplicated.__call__   ◄── a listener stands here while it has something to
                                                  measure; then the fast path is given back

What the loop knows of JAX's private parts is in this file and in `watched`. A listener that raises
never ends the job: the call goes on as if nobody had listened.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
import weakref
from collections.abc import Callable
from importlib import import_module
from typing import Any

from slipstream.errors import Missing
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.listener import CallOnce, JobFailed, Listener, around, is_wanted
from slipstream.jaxhooks.program_registry import ProgramRegistry

log = logging.getLogger("slipstream")


class JaxHooks:
    """The one watcher of a process."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.registry = ProgramRegistry()
        self._originals: dict[str, Any] = {}
        self._unmet: weakref.WeakSet[Any] = weakref.WeakSet()
        self._lock = threading.Lock()
        self._busy = threading.local()

    @property
    def programs(self) -> list[CompiledProgram]:
        return self.registry.all()

    def find(self, executable: Any) -> CompiledProgram | None:
        return self.registry.find(executable)

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

    def adopt(self, executable: Any, lowering: Any) -> CompiledProgram | None:
        """Watch a program that was compiled before anyone watched, from its lowering.

        JAX is asked to compile it again, and is handed what it had compiled: all that is wanted is
        how it would.
        """
        loaded = executable.xla_executable
        if self.find(loaded) is not None:
            return self.find(loaded)
        _, pxla, _ = _jax_parts()
        pxla._cached_compilation.evict_weakref(lowering._hlo)
        before, lowering._executable = lowering._executable, None
        self._busy.adopted = loaded
        try:
            again = self._originals["lowered"](lowering)
        finally:
            self._busy.adopted = None
            lowering._executable = before
        self.registry.add_user(executable.unsafe_call)
        del again
        return self.find(loaded)

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
        hooks = self

        def call(replicated: Any, *arguments: Any) -> Any:
            return hooks._calling(replicated, arguments)

        def made(replicated: Any, *arguments: Any, **named: Any) -> None:
            hooks._originals["made"](replicated, *arguments, **named)
            hooks.registry.add_user(replicated)

        def compile(lowering: Any, *arguments: Any, **named: Any) -> Any:
            executable = hooks._originals["lowered"](lowering, *arguments, **named)
            hooks._meet(executable, lowering)
            return executable

        def create_cpp_call(executable: Any, params: Any) -> Any:
            if hooks._wants(executable.xla_executable):
                return _Compiled(hooks, executable, params)
            hooks._switch(executable)
            return hooks._originals["aot"](executable, params)

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
            self.registry.clear()
            self._unmet.clear()

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
            program = self.registry.add(executable, what, seconds, *how)
            for listener in list(self.listeners):
                listener.on_compile(program)
        except Exception:
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )
        return executable

    def _meet(self, executable: Any, lowering: Any) -> None:
        """A program that JAX compiled before anyone watched, and runs again."""
        if not self.listeners or lowering in self._unmet:
            return
        try:
            loaded = getattr(executable, "xla_executable", None)
            if loaded is None or self.find(loaded) is not None:
                return
            if self.adopt(executable, lowering) is None:
                self._unmet.add(lowering)
        except Exception:
            self._unmet.add(lowering)
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )

    def _wants(self, executable: Any) -> bool:
        program = self.find(executable)
        if program is None or program.is_settled:
            return False
        return any(is_wanted(listener, program) for listener in list(self.listeners))

    def _fastpath(self, executable: Any, *rest: Any, **named: Any) -> Any:
        self._busy.unsettled = self._wants(getattr(executable, "xla_executable", None))
        if self._busy.unsettled:
            return None
        self._switch(executable)
        return self._originals["fastpath"](executable, *rest, **named)

    def _switch(self, executable: Any) -> None:
        """From here on JAX's fast path runs what was chosen."""
        loaded = getattr(executable, "xla_executable", None)
        program = self.find(loaded)
        if program is not None and program.is_settled and program.executable is not loaded:
            self.registry.add_executable(program.executable, program)
            executable.xla_executable = program.executable
            executable.unsafe_call.xla_executable = program.executable

    def _rebuild(self, profiler: Any) -> bool:
        """Whether the C++ side must ask again: what it gives up on once stays slow for good."""
        unsettled = getattr(self._busy, "unsettled", False)
        return unsettled or bool(self._originals["rebuild"](profiler))

    def _calling(self, replicated: Any, arguments: tuple[Any, ...]) -> Any:
        original = self._originals["call"]
        program = self.find(replicated.xla_executable)
        if program is None:
            return original(replicated, *arguments)
        with program.calls_lock:
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

    def _runner(self, replicated: Any, program: CompiledProgram) -> Any:
        """What runs the program's executable of the moment, whatever other threads run."""
        executable = program.executable
        if replicated.xla_executable is executable:
            return replicated
        if program.is_settled:
            self.registry.add_executable(executable, program)
            replicated.xla_executable = executable
            return replicated
        clone = copy.copy(replicated)
        clone.xla_executable = executable
        return clone

    def _heard(
        self, program: CompiledProgram, arguments: tuple[Any, ...], run: Callable[[], Any]
    ) -> Any:
        once = CallOnce(run)
        try:
            call: Callable[[], Any] = once
            for listener in [one for one in self.listeners if is_wanted(one, program)]:
                call = around(listener, program, arguments, call)
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

    def __init__(self, hooks: JaxHooks, executable: Any, params: Any) -> None:
        self.hooks = hooks
        self.executable = executable
        self.params = params
        self.fast: Any = None

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.fast is None:
            if self.hooks._wants(self.executable.xla_executable):
                return self._slow(*arguments, **named)
            self.fast = type(self.executable).create_cpp_call(self.executable, self.params)
            self.fast = self.fast or self._slow
        return self.fast(*arguments, **named)

    def _slow(self, *arguments: Any, **named: Any) -> Any:
        stages: Any = import_module("jax.stages")

        return stages.Compiled.call(self.params, *arguments, **named)[0]


HOOKS = JaxHooks()


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

"""Hooks in JAX: they see every program that JAX compiles, and every run of one.

    jitted(x) ──► C++ fast path ───────────────────────────► device
                      │ only after a first call through Python, and only if Python agrees
                      ▼
                 ExecuteReplicated.__call__   ◄── listeners stand here while they have something to
                                                  measure; then JAX gets its fast path back

A listener that raises never ends the job: the call goes on as if nobody had listened.
"""

from __future__ import annotations

import copy
import inspect
import logging
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

from slipstream.jaxhooks import private_api
from slipstream.jaxhooks.compat import Feature, JaxChanged, PrivatePart, warn_once
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.listener import CallOnce, JobFailed, Listener, is_wanted, wrapped
from slipstream.jaxhooks.program_registry import ProgramRegistry

log = logging.getLogger("slipstream")


class JaxHooks:
    """The hooks of this process, and whoever listens to them."""

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.registry = ProgramRegistry()
        self._originals: dict[PrivatePart, Any] = {}
        """what the hooks replaced in JAX; empty while none are installed"""
        self._compile_signature = inspect.Signature()
        self._not_adopted: weakref.WeakSet[Any] = weakref.WeakSet()
        """lowerings whose programs can't be watched: not tried again"""
        self._lock = threading.Lock()
        self._thread = threading.local()

    @property
    def programs(self) -> list[CompiledProgram]:
        return self.registry.all()

    def find(self, executable: Any) -> CompiledProgram | None:
        return self.registry.find(executable)

    def add(self, listener: Listener) -> None:
        """Listen from now on. The first listener installs the hooks.

        JaxChanged, and JAX left as it is, if a private part that the hooks need is not as expected.
        """
        with self._lock:
            if not self._originals:
                private_api.require(Feature.WATCHING, Feature.STABLEHLO)
                self._install()
            self.listeners.append(listener)

    def remove(self, listener: Listener) -> None:
        with self._lock:
            if listener in self.listeners:
                self.listeners.remove(listener)

    def adopt(self, executable: Any, lowering: Any) -> CompiledProgram | None:
        """Watch a program that was compiled before anybody watched, from its lowering.

        JAX is asked to compile it again and gets what it had compiled: this shows how it compiles
        the program, and costs nothing.
        """
        loaded = executable.xla_executable
        if self.find(loaded) is not None:
            return self.find(loaded)
        cache = private_api.CACHED_COMPILATION.get()
        private_api.MESH_COMPUTATION.of(lowering)
        cache.evict_weakref(lowering._hlo)
        before, lowering._executable = lowering._executable, None
        self._thread.adopted = loaded
        try:
            again = self._originals[private_api.MESH_COMPUTATION_COMPILE](lowering)
        finally:
            self._thread.adopted = None
            lowering._executable = before
        self.registry.add_user(executable.unsafe_call)
        del again
        return self.find(loaded)

    def _install(self) -> None:
        hooks = self

        def call(replicated: Any, *arguments: Any) -> Any:
            return hooks._calling(replicated, arguments)

        def init(replicated: Any, *arguments: Any, **named: Any) -> None:
            hooks._originals[private_api.EXECUTE_INIT](replicated, *arguments, **named)
            hooks.registry.add_user(replicated)

        def compile(lowering: Any, *arguments: Any, **named: Any) -> Any:
            original = hooks._originals[private_api.MESH_COMPUTATION_COMPILE]
            executable = original(lowering, *arguments, **named)
            hooks._meet(executable, lowering)
            return executable

        def create_cpp_call(executable: Any, params: Any) -> Any:
            if hooks._wants(executable.xla_executable):
                return _MeasuredCall(hooks, executable, params)
            hooks._switch(executable)
            return hooks._originals[private_api.CREATE_CPP_CALL](executable, params)

        replacements: dict[PrivatePart, Callable[..., Any]] = {
            private_api.COMPILE_OR_GET_CACHED: self._compiling,
            private_api.FASTPATH_DATA: self._fastpath,
            private_api.NEED_TO_REBUILD: self._rebuild,
            private_api.EXECUTE_CALL: call,
            private_api.EXECUTE_INIT: init,
            private_api.MESH_COMPUTATION_COMPILE: compile,
            private_api.CREATE_CPP_CALL: create_cpp_call,
        }
        originals = {part: part.get() for part in replacements}
        self._compile_signature = inspect.signature(originals[private_api.COMPILE_OR_GET_CACHED])
        self._originals = originals
        for part, replacement in replacements.items():
            part.replace(replacement)

    def uninstall(self) -> None:
        """Give JAX back as it was."""
        with self._lock:
            for part, original in self._originals.items():
                part.replace(original)
            self._originals = {}
            self.listeners.clear()
            self.registry.clear()
            self._not_adopted.clear()

    def _compiling(self, *arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        executable, self._thread.adopted = getattr(self._thread, "adopted", None), None
        if executable is None:
            original = self._originals[private_api.COMPILE_OR_GET_CACHED]
            executable = original(*arguments, **named)
            if not self.listeners:
                return executable
        seconds = time.perf_counter() - begin
        try:
            given = self._compile_signature.bind(*arguments, **named).arguments
            program = CompiledProgram(
                _name(given["computation"]),
                _bytecode(given["computation"]),
                seconds,
                executable,
                executable,
                options=given["compile_options"].SerializeAsString(),
                _backend=given["backend"],
                _devices=given["executable_devices"],
                _callbacks=given["host_callbacks"],
            )
            self.registry.add(program)
            for listener in list(self.listeners):
                listener.on_compile(program)
        except Exception:
            # Whatever it is: JAX has compiled the program, and the job is waiting for it.
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )
        return executable

    def _meet(self, executable: Any, lowering: Any) -> None:
        """Adopt a program that JAX compiled before anybody watched, and is about to run again."""
        if not self.listeners or lowering in self._not_adopted:
            return
        try:
            loaded = getattr(executable, "xla_executable", None)
            if loaded is None or self.find(loaded) is not None:
                return
            if self.adopt(executable, lowering) is None:
                self._not_adopted.add(lowering)
        except JaxChanged as changed:
            self._not_adopted.add(lowering)
            warn_once(str(changed))
        except Exception:
            # Whatever it is: the program is compiled, and runs without us.
            self._not_adopted.add(lowering)
            log.warning(
                "slipstream: a program could not be watched; it runs as it is", exc_info=True
            )

    def _wants(self, executable: Any) -> bool:
        program = self.find(executable)
        if program is None or program.is_settled:
            return False
        return any(is_wanted(listener, program) for listener in list(self.listeners))

    def _fastpath(self, executable: Any, *rest: Any, **named: Any) -> Any:
        self._thread.unsettled = self._wants(getattr(executable, "xla_executable", None))
        if self._thread.unsettled:
            return None
        self._switch(executable)
        return self._originals[private_api.FASTPATH_DATA](executable, *rest, **named)

    def _switch(self, executable: Any) -> None:
        """From here on JAX's fast path runs what was chosen."""
        loaded = getattr(executable, "xla_executable", None)
        program = self.find(loaded)
        if program is not None and program.is_settled and program.executable is not loaded:
            self.registry.add_executable(program.executable, program)
            executable.xla_executable = program.executable
            executable.unsafe_call.xla_executable = program.executable

    def _rebuild(self, *arguments: Any, **named: Any) -> bool:
        """Whether the C++ side must ask again: a fast path that it gives up on stays off."""
        unsettled = getattr(self._thread, "unsettled", False)
        original = self._originals[private_api.NEED_TO_REBUILD]
        return unsettled or bool(original(*arguments, **named))

    def _calling(self, replicated: Any, arguments: tuple[Any, ...]) -> Any:
        original = self._originals[private_api.EXECUTE_CALL]
        program = self.find(replicated.xla_executable)
        if program is None:
            return original(replicated, *arguments)
        with program.calls_lock:
            program.calls += 1

        def run() -> Any:
            return original(self._runner(replicated, program), *arguments)

        # Programs that a listener runs itself are no steps of the job.
        if getattr(self._thread, "is_busy", False) or not self._wants(replicated.xla_executable):
            return run()
        self._thread.is_busy = True
        try:
            return self._call_listeners(program, arguments, run)
        finally:
            self._thread.is_busy = False

    def _runner(self, replicated: Any, program: CompiledProgram) -> Any:
        """What runs the program's current executable, whatever other threads run."""
        executable = program.executable
        if replicated.xla_executable is executable and not program.is_compared:
            return replicated
        if program.is_settled:
            self.registry.add_executable(executable, program)
            replicated.xla_executable = executable
            return replicated
        # Kept for the next call: a copy takes microseconds, which would count as this arm's time.
        kept = program.runner
        if kept is not None and kept[0]() is replicated and kept[1].xla_executable is executable:
            return kept[1]
        clone = copy.copy(replicated)
        clone.xla_executable = executable
        program.runner = (weakref.ref(replicated), clone)
        return clone

    def _call_listeners(
        self, program: CompiledProgram, arguments: tuple[Any, ...], run: Callable[[], Any]
    ) -> Any:
        once = CallOnce(run)
        try:
            call: Callable[[], Any] = once
            for listener in [one for one in self.listeners if is_wanted(one, program)]:
                call = wrapped(listener, program, arguments, call)
            return call()
        except JobFailed as failed:
            raise failed.__cause__ or failed from None
        except Exception:
            if once.failed:
                raise
            # Whatever it is, it is ours: the job's own call went well, or has not happened yet.
            log.warning("slipstream: measuring stopped; the job goes on", exc_info=True)
            program.is_settled, program.is_compared = True, False
            program.run_with(program.original)
            return once()


class _MeasuredCall:
    """How an ahead-of-time compiled program runs: JAX asks for it once, and keeps it."""

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
        return private_api.COMPILED_CALL.get()(self.params, *arguments, **named)[0]


HOOKS = JaxHooks()
"""JAX is one per process, and so are the hooks in it"""


def _name(module: Any) -> str:
    ir = private_api.IR.get()
    return str(ir.StringAttr(module.operation.attributes["sym_name"]).value)


def _bytecode(module: Any) -> bytes:
    return bytes(private_api.MODULE_TO_BYTECODE.get()(module))

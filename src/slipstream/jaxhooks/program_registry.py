"""The programs that JAX compiled and may run: found by their executables, let go of as JAX does."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from slipstream.jaxhooks.compiled_program import KEPT_BYTES, CompiledProgram


class ProgramRegistry:
    """Those of one process."""

    def __init__(self) -> None:
        self._by_id: dict[int, CompiledProgram] = {}
        self._bytes = 0
        """of StableHLO, at most"""

    def all(self) -> list[CompiledProgram]:
        now = list(self._by_id.values())  # other threads compile meanwhile
        return list({id(program): program for program in now}.values())

    def clear(self) -> None:
        self._by_id.clear()
        self._bytes = 0

    def find(self, executable: Any) -> CompiledProgram | None:
        # An id says nothing once its object is gone, so the program must still hold the very one.
        found = self._by_id.get(id(executable))
        if found is None:
            return None
        held = (found.original, found.executable, found.autopgle_executable)
        return found if any(executable is one for one in held) else None

    def add_executable(self, executable: Any, program: CompiledProgram) -> None:
        """Another way to run a program that is known."""
        self._by_id[id(executable)] = program

    def add(
        self,
        executable: Any,
        what: tuple[str, bytes],
        seconds: float,
        backend: Any,
        devices: Any,
        options: bytes,
        callbacks: Sequence[Any],
    ) -> CompiledProgram:
        program = CompiledProgram(
            *what, seconds, executable, executable,
            _backend=backend, _devices=devices, options=options, _callbacks=callbacks,
        )  # fmt: skip
        self._by_id[id(executable)] = program
        self._bytes += len(program.stablehlo)
        if self._bytes > KEPT_BYTES:
            self._bound()
        return program

    def _bound(self) -> None:
        """Jobs that compile thousands of programs keep the StableHLO of those that run."""
        programs = self.all()
        self._bytes = sum(len(program.stablehlo) for program in programs)
        for program in sorted(programs[:-1], key=lambda p: (not p.is_settled, p.calls)):
            if self._bytes <= KEPT_BYTES:
                return
            self._bytes -= len(program.stablehlo)
            program.stablehlo = b""

    def add_user(self, replicated: Any) -> None:
        """One of JAX's objects that run a program: once all are gone, so is the program."""
        program = self.find(replicated.xla_executable)
        if program is None:
            return
        program._users.add(replicated)
        weakref.finalize(replicated, self._forget, weakref.ref(program)).atexit = False

    def _forget(self, reference: weakref.ref[CompiledProgram]) -> None:
        """JAX let go of a program: its executable holds memory of the device."""
        program = reference()
        if program is None or list(program._users):  # its len() counts those that are dying
            return
        for executable in (program.original, program.executable, program.autopgle_executable):
            if self._by_id.get(id(executable)) is program:
                self._by_id.pop(id(executable), None)

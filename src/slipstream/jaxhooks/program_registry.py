"""The programs that JAX compiled and can still run, found by their executables."""

from __future__ import annotations

import weakref
from typing import Any

from slipstream.jaxhooks.compiled_program import KEPT_BYTES, CompiledProgram


class ProgramRegistry:
    """The programs of one process; one that JAX drops is dropped here, too."""

    def __init__(self) -> None:
        self._by_id: dict[int, CompiledProgram] = {}
        self._bytes = 0
        """of StableHLO, an upper bound"""

    def all(self) -> list[CompiledProgram]:
        now = list(self._by_id.values())  # a copy: other threads may be compiling
        return list({id(program): program for program in now}.values())

    def clear(self) -> None:
        self._by_id.clear()
        self._bytes = 0

    def find(self, executable: Any) -> CompiledProgram | None:
        """The program that an executable belongs to."""
        # Ids are reused once an object is gone, so the program must still hold this very object.
        found = self._by_id.get(id(executable))
        if found is None:
            return None
        held = (found.original, found.executable, found.autopgle_executable)
        return found if any(executable is one for one in held) else None

    def add_executable(self, executable: Any, program: CompiledProgram) -> None:
        """Another executable of a known program."""
        self._by_id[id(executable)] = program

    def add(self, program: CompiledProgram) -> None:
        """A program that JAX has just compiled."""
        self._by_id[id(program.executable)] = program
        self._bytes += len(program.stablehlo)
        if self._bytes > KEPT_BYTES:
            self._drop_stablehlo()

    def _drop_stablehlo(self) -> None:
        """Of thousands of programs, only those that run most keep their StableHLO."""
        programs = self.all()
        self._bytes = sum(len(program.stablehlo) for program in programs)
        for program in sorted(programs[:-1], key=lambda p: (not p.is_settled, p.calls)):
            if self._bytes <= KEPT_BYTES:
                return
            self._bytes -= len(program.stablehlo)
            program.stablehlo = b""

    def add_user(self, replicated: Any) -> None:
        """One of JAX's objects that run a program; once all of them are gone, so is the program."""
        program = self.find(replicated.xla_executable)
        if program is None:
            return
        program.users.add(replicated)
        weakref.finalize(replicated, self._forget, weakref.ref(program)).atexit = False

    def _forget(self, reference: weakref.ref[CompiledProgram]) -> None:
        """Drop a program that JAX has dropped: its executables hold device memory."""
        program = reference()
        if program is None or list(program.users):  # len() would count dying objects
            return
        for executable in (program.original, program.executable, program.autopgle_executable):
            if self._by_id.get(id(executable)) is program:
                self._by_id.pop(id(executable), None)

"""Who listens to a program's calls, and the call they stand around, which happens once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from slipstream.jaxhooks.compiled_program import CompiledProgram


class JobFailed(Exception):
    """Raised by a listener for what it can't make good: its cause is the job's own error."""


class Listener(Protocol):
    """Stands around each run of a program, until the program is settled.

    A listener that has a method `wants(program) -> bool` leaves the others their fast path.
    """

    def on_compile(self, program: CompiledProgram) -> None: ...

    def on_call(
        self, program: CompiledProgram, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """Must call `run` exactly once and return what it returns."""


class CallOnce:
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


def is_wanted(listener: Listener, program: CompiledProgram) -> bool:
    wants: Callable[[CompiledProgram], bool] | None = getattr(listener, "wants", None)
    return wants is None or wants(program)


def around(
    listener: Listener,
    program: CompiledProgram,
    arguments: tuple[Any, ...],
    call: Callable[[], Any],
) -> Callable[[], Any]:
    return lambda: listener.on_call(program, arguments, call)

"""Listeners to a program's calls, and the call that they wrap, which happens once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from slipstream.jaxhooks.compiled_program import CompiledProgram


class JobFailed(Exception):
    """Raised by a listener that can't save a call; its cause is the job's own error."""


class Listener(Protocol):
    """Wraps each run of a program until the program is settled.

    A listener may have a method `wants(program) -> bool`; programs it doesn't want keep their fast
    path.
    """

    def on_compile(self, program: CompiledProgram) -> None:
        """JAX has compiled a program."""

    def on_call(
        self, program: CompiledProgram, arguments: Sequence[Any], run: Callable[[], Any]
    ) -> Any:
        """JAX runs a program. Must call `run` exactly once, and return what it returns."""


class CallOnce:
    """A call that happens only once, however often it is made: its arguments may be donated."""

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
        """Let the call happen again: its result is useless, and its arguments are intact."""
        self.is_done, self.result = False, None


def is_wanted(listener: Listener, program: CompiledProgram) -> bool:
    """Whether a listener wants to wrap the runs of a program."""
    wants: Callable[[CompiledProgram], bool] | None = getattr(listener, "wants", None)
    return wants is None or wants(program)


def wrapped(
    listener: Listener,
    program: CompiledProgram,
    arguments: tuple[Any, ...],
    call: Callable[[], Any],
) -> Callable[[], Any]:
    """The call with a listener around it."""
    return lambda: listener.on_call(program, arguments, call)

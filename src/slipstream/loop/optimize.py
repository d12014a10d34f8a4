"""`optimize`: a jitted or compiled function that makes itself faster while it is used.

    step = slipstream.optimize(jax.jit(train_step, donate_argnums=0))
    for batch in data:
        state, loss = step(state, batch)      # the first calls are measured, then the best is kept
    print(step.report())

Each signature (shapes, types, shardings, static arguments) is a program of its own to XLA, and has
a loop of its own. The function stays JAX's: pytrees, donation, shardings and static arguments are
as they were, and once a program is settled JAX's own fast path runs it.
"""

from __future__ import annotations

import gc
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from slipstream.errors import BadInput
from slipstream.loop.arms import DEFAULT_VARIANTS, Variant
from slipstream.loop.conductor import Conductor, Plan
from slipstream.loop.receipt import Receipt, receipt_of
from slipstream.loop.runtime import RUNTIME, Watched


def optimize(
    function: Any,
    *,
    flags: Iterable[Mapping[str, str]] = (),
    folder: str | Path | None = None,
    start: int = 5,
    steps: int = 3,
    rounds: int = 30,
    policy: str = "typical",
) -> Optimized:
    """The function, profiled and compiled anew while it is used, and kept only where faster.

    `function` is what `jax.jit` returned, or a lowered or compiled program (`.lower(…)`,
    `.lower(…).compile()`). After `start` calls, `steps` are profiled; then the program is compiled
    with the costs that were seen, without command buffers, and with each of `flags`, and timed
    against the original, call by call. `folder` keeps profiles, costs and receipts.
    """
    more = tuple(Variant(_flags_name(one), dict(one)) for one in flags)
    where = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="slipstream-"))
    plan = Plan(where, start, steps, rounds, (*DEFAULT_VARIANTS, *more), policy)
    return Optimized(function, plan)


class Optimized:
    """What `optimize` returns: called like the function it was made from."""

    def __init__(self, function: Any, plan: Plan) -> None:
        self.plan = plan
        self._conductors: dict[int, Conductor] = {}
        self._now = threading.local()
        self._call = _callable(function)
        self._function = function
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        RUNTIME.add(self)
        _watch_from_now_on(function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        self._now.is_inside = True
        try:
            return self._call(*arguments, **named)
        finally:
            self._now.is_inside = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._function, name)

    def on_compile(self, program: Watched) -> None:
        """Programs are looked at when they run."""

    def on_call(self, program: Watched, arguments: Sequence[Any], run: Callable[[], Any]) -> Any:
        if not getattr(self._now, "is_inside", False):
            return run()
        conductor = self._conductors.get(id(program))
        if conductor is None:
            folder = self.plan.folder
            if self._conductors:
                folder = folder / f"signature{len(self._conductors) + 1}"
            conductor = Conductor(program, _moved(self.plan, folder))
            self._conductors[id(program)] = conductor
        result = conductor.on_call(arguments, run)
        if conductor.done.is_set() and not hasattr(conductor, "receipt"):
            conductor.receipt = receipt_of(conductor)  # type: ignore[attr-defined]
            conductor.receipt.write(conductor.plan.folder)  # type: ignore[attr-defined]
        return result

    @property
    def is_settled(self) -> bool:
        """Whether every signature seen so far has its program."""
        return bool(self._conductors) and all(c.done.is_set() for c in self._conductors.values())

    def receipts(self) -> list[Receipt]:
        """One for each signature that is settled."""
        found = (getattr(c, "receipt", None) for c in self._conductors.values())
        return [receipt for receipt in found if receipt is not None]

    def report(self) -> str:
        """What was found, in words."""
        lines = [receipt.sentence() for receipt in self.receipts()]
        waiting = sum(not c.done.is_set() for c in self._conductors.values())
        if waiting or not lines:
            lines.append(f"{waiting or 'no'} program{'s' if waiting != 1 else ''} still measured")
        return "\n".join(lines)

    def close(self) -> None:
        """Stop measuring; what is settled stays settled."""
        for conductor in self._conductors.values():
            conductor.stop("it was closed before the comparison was done")
        RUNTIME.remove(self)


def _callable(function: Any) -> Callable[..., Any]:
    """What is called for a jitted function, a lowered program or a compiled one."""
    from jax import stages

    if isinstance(function, stages.Lowered):
        compiled: Callable[..., Any] = function.compile()
        return compiled
    if isinstance(function, stages.Compiled):
        _find_lowering(function)
        return cast("Callable[..., Any]", function)
    if not hasattr(function, "lower"):
        raise BadInput(
            f"optimize got {function!r}; expected what jax.jit returned, or a lowered or compiled "
            "program: write optimize(jax.jit(f))"
        )
    return function


def _watch_from_now_on(function: Any) -> None:
    """A function that ran before has a fast path, which would pass us by."""
    forget = getattr(function, "_clear_cache", None)
    if forget is not None:
        forget()


def _find_lowering(compiled: Any) -> None:
    """A compiled program can only be compiled anew from what it was lowered to."""
    from jax import stages

    executable = compiled._executable
    if RUNTIME.of_executable(executable.xla_executable) is None:
        for found in gc.get_objects():
            if isinstance(found, stages.Lowered) and _made(found, executable):
                RUNTIME.adopt(executable, found._lowering)
                break
        else:
            raise BadInput(
                "this compiled program can't be compiled anew: what it was lowered to is gone; "
                "give optimize the lowered program: optimize(jax.jit(f).lower(…))"
            )
    # Its C++ call, if it was called before, would pass us by.
    compiled._call = None


def _made(lowered: Any, executable: Any) -> bool:
    return getattr(lowered._lowering, "_executable", None) is executable


def _flags_name(flags: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())


def _moved(plan: Plan, folder: Path) -> Plan:
    from dataclasses import replace

    return replace(plan, folder=folder)

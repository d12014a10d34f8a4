"""`optimize`: a jitted or compiled function that makes itself faster while it is used.

    step = slipstream.optimize(jax.jit(train_step, donate_argnums=0))
    for batch in data:
        state, loss = step(state, batch)      # the first calls are measured, then the best is kept
    print(step.report())

XLA compiles one program for each signature (shapes, types, shardings, static arguments), and each
program has its own loop. Pytrees, donation, shardings and static arguments work as before, and once
a program is settled JAX's own fast path runs it.
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast
from weakref import WeakKeyDictionary

from slipstream.errors import BadInput
from slipstream.experiment.controller import Controller
from slipstream.experiment.plan import ExperimentPlan
from slipstream.experiment.receipt import Receipt, receipt_when_ready, write_receipt_later
from slipstream.experiment.step_timer import Timer
from slipstream.experiment.variants import DEFAULT_VARIANTS, SCHEDULE_VARIANTS, Variant
from slipstream.jaxhooks import private_api, stages
from slipstream.jaxhooks.compat import Feature, JaxChanged, warn_once
from slipstream.jaxhooks.compiled_program import CompiledProgram
from slipstream.jaxhooks.hooks import HOOKS
from slipstream.jaxhooks.jax_types import Arguments, Results, RunCall
from slipstream.remote.paths import any_path, is_remote

MAX_FOREIGN_CALLS = 20
"""calls from elsewhere after which a program of the same name is taken for another function's"""


def optimize(
    function: Any,
    *,
    flags: Iterable[Mapping[str, str]] = (),
    folder: str | Path | None = None,
    start: int = 5,
    steps: int = 3,
    rounds: int = 30,
    policy: str = "typical",
    schedule: bool = False,
) -> Optimized:
    """Profile and recompile a function while it is used, keeping a new program only if faster.

    `function` is what `jax.jit` returned, or a lowered or compiled program (`.lower(…)`,
    `.lower(…).compile()`). After `start` calls, `steps` calls are profiled. The program is then
    compiled with the measured costs, without command buffers, and with each of `flags`, and each
    result is timed against the original in interleaved calls. With `schedule`, an order of our own
    is one more (JAX 0.11 or newer, on GPUs). Profiles, costs and receipts are
    written to `folder`. A function that is optimized already is returned as it is, with a warning.
    """
    if (earlier := _optimized_already(function)) is not None:
        warn_once(
            f"optimize got {earlier.__name__}, which is optimized already: the earlier optimize "
            "goes on with its own settings; to start anew, close() it first"
        )
        return earlier
    more = tuple(Variant(_flags_name(one), dict(one)) for one in flags)
    variants = (*DEFAULT_VARIANTS, *(SCHEDULE_VARIANTS if schedule else ()), *more)
    plan = ExperimentPlan(_folder(folder), start, steps, rounds, variants, policy)
    return Optimized(function, plan)


class Optimized:
    """What `optimize` returns; call it like the original function."""

    def __init__(self, function: Any, plan: ExperimentPlan, timer: Timer | None = None) -> None:
        self.plan = plan
        self._timer = timer
        self._controllers: dict[int, Controller] = {}
        self._foreign_calls: WeakKeyDictionary[CompiledProgram, int] = WeakKeyDictionary()
        self._lock = threading.Lock()
        self._now = threading.local()
        self._is_closed = False
        self._owns: Callable[[CompiledProgram], bool] = lambda program: False
        self._off: str | None = None
        """why nothing is measured"""
        self._shared: str | None = None
        """which program is left to another optimize"""
        self._function = function
        self.__wrapped__ = function
        self.__name__ = getattr(function, "__name__", type(function).__name__)
        self._call = self._watch(function)

    def _watch(self, function: Any) -> Callable[..., Any]:
        """Listen to the function's programs; return what calls it."""
        if stages.is_pmapped(function):
            self._leave_alone(
                f"optimize can't recompile {self.__name__}, which is from jax.pmap; to have it "
                "optimized, write it with jax.jit and jax.shard_map"
            )
            return cast("Callable[..., Any]", function)
        try:
            private_api.require(Feature.RECOMPILING, Feature.ADOPTING)
            HOOKS.add(self)
            call = _callable(function)
            self._owns = _ownership(call)
            stages.forget_fast_path(call)
        except JaxChanged as changed:
            HOOKS.remove(self)
            self._leave_alone(str(changed))
            return _callable(function)
        except BadInput:
            HOOKS.remove(self)
            raise
        return call

    def _leave_alone(self, why: str) -> None:
        self._off = f"{why}; the function runs as it is"
        warn_once(self._off)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        now = self._now
        before = getattr(now, "is_inside", False)
        now.is_inside = True
        try:
            return self._call(*arguments, **named)
        finally:
            now.is_inside = before

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # an attribute that is not set yet would recurse
            raise AttributeError(name)
        return getattr(self._function, name)

    def on_compile(self, program: CompiledProgram) -> None:
        """Nothing to do: programs are measured when they run."""

    def wants(self, program: CompiledProgram) -> bool:
        """Whether a program is the function's own; all others keep their fast path."""
        return self._owns(program) and self._foreign_calls.get(program, 0) < MAX_FOREIGN_CALLS

    def on_call(self, program: CompiledProgram, arguments: Arguments, run: RunCall) -> Results:
        if not getattr(self._now, "is_inside", False):
            # Perhaps another function of the same name, which must not stay slow for long.
            if id(program) not in self._controllers:
                self._foreign_calls[program] = self._foreign_calls.get(program, 0) + 1
            return run()
        controller = self._controller(program)
        if controller is None:
            return run()
        was_done = controller.done.is_set()
        try:
            return controller.on_call(arguments, run)
        finally:
            if controller.done.is_set() and not was_done:
                self._on_settled(controller)

    def _controller(self, program: CompiledProgram) -> Controller | None:
        with self._lock:
            found = self._controllers.get(id(program))
            if found is None and not self._is_closed and not self._is_taken(program):
                folder = self.plan.folder
                if self._controllers:
                    folder = folder / f"signature{len(self._controllers) + 1}"
                found = Controller(program, replace(self.plan, folder=folder), timer=self._timer)
                self._controllers[id(program)] = found
            return found

    def _is_taken(self, program: CompiledProgram) -> bool:
        """Whether another optimize measures the program: JAX shares those of equal functions."""
        others = [one for one in _listening() if one is not self]
        if not any(id(program) in one._controllers for one in others):
            return False
        self._shared = (
            f"another optimize measures {program.name}, which JAX compiled for both; this one "
            "leaves it to that"
        )
        warn_once(self._shared)
        return True

    def _on_settled(self, controller: Controller) -> None:
        # An ahead-of-time compiled program asks for its fast path once, when it is first called.
        if stages.is_compiled(self._call):
            stages.forget_fast_path(self._call)
        if self._is_closed:
            self._stop_listening()
        if controller.consensus.is_leader:
            write_receipt_later(controller)

    @property
    def is_settled(self) -> bool:
        """Whether every signature seen so far has its program, or none will be measured."""
        controllers = list(self._controllers.values())
        is_known = bool(controllers) or self._shared is not None
        is_measured = is_known and all(c.done.is_set() for c in controllers)
        return is_measured or self._off is not None

    def receipts(self) -> list[Receipt]:
        """One receipt for each settled signature."""
        settled = [c for c in list(self._controllers.values()) if c.done.is_set()]
        return [receipt_when_ready(controller) for controller in settled]

    def report(self) -> str:
        """The verdicts, one line for each program."""
        if self._off is not None:
            return self._off
        lines = [receipt.sentence() for receipt in self.receipts()]
        lines += [self._shared] if self._shared is not None else []
        waiting = sum(not c.done.is_set() for c in list(self._controllers.values()))
        if waiting or not lines:
            lines.append(f"{waiting or 'no'} program{'s' if waiting != 1 else ''} still measured")
        return "\n".join(lines)

    def close(self) -> None:
        """Stop measuring; settled programs stay as they are.

        Where several processes are comparing already, measuring ends at their next decision.
        """
        with self._lock:
            self._is_closed = True
        for controller in list(self._controllers.values()):
            if not controller.done.is_set():
                controller.stop("it was closed before the comparison finished")
                if controller.done.is_set():
                    self._on_settled(controller)
        self._stop_listening()

    def _stop_listening(self) -> None:
        if all(controller.done.is_set() for controller in list(self._controllers.values())):
            HOOKS.remove(self)


def _listening() -> list[Optimized]:
    return [one for one in list(HOOKS.listeners) if isinstance(one, Optimized)]


def _optimized_already(function: Any) -> Optimized | None:
    """The optimize that has this function already, unless it was closed."""
    if isinstance(function, Optimized):
        return function
    return next((one for one in _listening() if one._function is function), None)


def _folder(given: str | Path | None) -> Path:
    if is_remote(given):
        raise BadInput(
            f"optimize works in a local folder, and {given} is a URL; give a folder, and copy it "
            f"with: python -m slipstream.remote.mirroring FOLDER {given}"
        )
    if given is not None:
        return any_path(given).absolute()  # the job may change its folder
    try:
        return Path(tempfile.mkdtemp(prefix="slipstream-"))
    except OSError:
        # Writing will fail later, and the loop then leaves the function as it is.
        return Path(tempfile.gettempdir()) / f"slipstream-{os.getpid()}"


def _callable(function: Any) -> Callable[..., Any]:
    """The callable for a jitted function, a lowered program or a compiled one."""
    from jax import stages as public

    if isinstance(function, public.Lowered):
        return cast("Callable[..., Any]", function.compile())
    if not hasattr(function, "lower") and not isinstance(function, public.Compiled):
        raise BadInput(
            f"optimize got {function!r}; expected what jax.jit returned, or a lowered or compiled "
            "program: write optimize(jax.jit(f))"
        )
    return cast("Callable[..., Any]", function)


def _ownership(call: Any) -> Callable[[CompiledProgram], bool]:
    """Tells the function's own programs from those it runs on the side (constants, say)."""
    if stages.is_compiled(call):
        program = stages.program_of(call)
        if program is None:
            raise BadInput(
                "this compiled program can't be recompiled: its lowered program no longer exists; "
                "pass the lowered program instead: optimize(jax.jit(f).lower(…))"
            )
        return lambda other: other is program
    name = getattr(call, "__name__", None)
    if name is None:
        return lambda other: True
    own = _plain(f"jit_{name}")
    return lambda other: _plain(other.name) == own


def _plain(name: str) -> str:
    return re.sub(r"[^\w.-]", "_", name).strip("_")


def _flags_name(flags: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in flags.items())

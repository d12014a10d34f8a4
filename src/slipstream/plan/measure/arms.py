"""Combinations as arms on this machine's devices: compiled and timed in one worker process.

    prepare   compile several at once, then run each for the first time, the smallest first
    visit     put one on the devices and time several steps

A combination that crashes takes the process down; the others are then compiled again in a new one
when they are next timed, most of them from JAX's own cache.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess
from slipstream.errors import BadInput
from slipstream.jaxhooks.jax_types import is_out_of_memory
from slipstream.plan.space.parameters import Value
from slipstream.results.planning import INVALID
from slipstream.results.tuning import CRASH, HANG, NO_FIT, REFUSED
from slipstream.tune.measure.ab_window import ArmFailed

WORKER = "slipstream.bench.combinations"
WARM = 2
"""steps after a combination was put on the devices, before those that count"""
WARM_S = 1.5
"""seconds that they last at least on a GPU. Its clock is high after a pause, while inputs are made,
and falls to what its power cap allows within a second (docs/plan.md)"""
STEPS = 5
"""steps of one visit"""
Keywords = Mapping[str, Value]


@dataclass(frozen=True)
class Here:
    """The devices of this machine, as JAX sees them."""

    platform: str
    devices: int
    kind: str
    """`NVIDIA H200`"""
    memory_bytes: int | None
    """of one device, for JAX's allocator"""
    jaxlib: str


@dataclass(frozen=True)
class Visit:
    """Several steps of one combination in a row."""

    seconds: tuple[float, ...]
    is_finite: bool
    peak_bytes: int | None
    """the most that was allocated on a device, if it is known to be this combination's"""

    @property
    def step_s(self) -> float:
        return median(self.seconds)


@dataclass(frozen=True)
class Prepared:
    """A combination that runs."""

    memory_bytes: int | None
    """what XLA plans with"""
    compile_s: float
    first: Visit

    @property
    def measured_memory_bytes(self) -> int | None:
        """The peak, or XLA's own figure where the backend doesn't count."""
        return self.first.peak_bytes or self.memory_bytes


class Arms(Closing):
    """The combinations of one build function on the devices that are here."""

    def __init__(
        self,
        module: str,
        function: str,
        *,
        use_gpu: bool,
        timeout_s: float,
        cache: Path | None = None,
    ) -> None:
        self._module, self._function = module, function
        self._use_gpu = use_gpu
        self._timeout_s = timeout_s
        self._cache = cache
        self._process: WorkerProcess | None = None
        self._here: Here | None = None
        self._keywords: dict[str, Keywords] = {}
        """of every combination that was ever prepared"""
        self._compiled: dict[str, dict[str, Any]] = {}
        """in the current process: what the compile said"""
        self._visited: set[str] = set()
        """in the current process"""
        self._running: set[str] = set()
        """that ran, in whichever process"""

    @property
    def here(self) -> Here:
        if self._here is None:
            self._ensure_process()
        assert self._here is not None
        return self._here

    def prepare(self, combinations: Mapping[str, Keywords]) -> dict[str, Prepared | ArmFailed]:
        """Compile combinations and run each of them once."""
        found: dict[str, Prepared | ArmFailed] = {}
        compiled: dict[str, dict[str, Any]] = {}
        for name, said in self._compile_all(combinations).items():
            if isinstance(said, ArmFailed):
                found[name] = said
            else:
                compiled[name] = said
        # Allocators count the most that was ever in use: so in the order of what they need.
        for name in sorted(compiled, key=lambda one: compiled[one]["memory_bytes"] or 0):
            said = compiled[name]
            try:
                first = self.visit(name, 1, warm_s=0.0)
                found[name] = Prepared(said["memory_bytes"], said["seconds"], first)
            except ArmFailed as failed:
                found[name] = failed
        return found

    def visit(self, name: str, steps: int = STEPS, warm_s: float = WARM_S) -> Visit:
        """Time some steps; ArmFailed if it can't be run."""
        warm_s = warm_s if self._use_gpu else 0.0
        try:
            return self._visit(name, steps, warm_s)
        except ArmFailed as failed:
            if failed.status != NO_FIT or not self._visited - {name}:
                raise
        # Others may have left the memory in pieces: it counts only in a fresh process.
        self.close()
        return self._visit(name, steps, warm_s)

    def record(self, name: str, folder: Path, steps: int = STEPS) -> None:
        """Profile some steps into a folder."""
        self._ensure_compiled(name)
        self._ask("record", name=name, steps=steps, folder=str(folder.absolute()))

    def begin_anew(self) -> None:
        """Let go of what ran so far: allocators count the most that one process ever used."""
        if self._visited:
            self.close()
        self._running = set()

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
        self._compiled = {}
        self._visited = set()

    def _visit(self, name: str, steps: int, warm_s: float) -> Visit:
        self._ensure_compiled(name)
        self._visited.add(name)
        answer = self._ask("time", name=name, warm=WARM, warm_s=warm_s, steps=steps)
        self._running.add(name)
        return Visit(tuple(answer["seconds"]), answer["is_finite"], answer["peak_bytes"])

    def _ensure_compiled(self, name: str) -> None:
        self._ensure_process()
        if name in self._compiled:
            return
        # After a restart, those that will be visited next are compiled with it, several at once.
        others = self._running - self._compiled.keys() if name in self._running else set()
        outcome = self._compile([name, *sorted(others - {name})])[name]
        if isinstance(outcome, ArmFailed):
            raise outcome

    def _compile_all(
        self, combinations: Mapping[str, Keywords]
    ) -> Mapping[str, dict[str, Any] | ArmFailed]:
        self._ensure_process()
        self._keywords |= combinations
        try:
            return self._compile(list(combinations))
        except ArmFailed:
            # One of them ended the process: one after the other shows which.
            found: dict[str, dict[str, Any] | ArmFailed] = {}
            for name in combinations:
                self._ensure_process()
                try:
                    found |= self._compile([name])
                except ArmFailed as failed:
                    found[name] = failed
            return found

    def _compile(self, names: Sequence[str]) -> dict[str, dict[str, Any] | ArmFailed]:
        combinations = {one: dict(self._keywords[one]) for one in names}
        answer = self._ask("add", patience=len(names), combinations=combinations)
        found: dict[str, dict[str, Any] | ArmFailed] = {}
        for name, said in answer.items():
            if "error" in said:
                found[name] = _refusal(said)
            else:
                found[name] = self._compiled[name] = said
        return found

    def _ensure_process(self) -> None:
        if self._process is not None:
            return
        self._process = WorkerProcess("", use_gpu=self._use_gpu, module=WORKER)
        cache = str(self._cache.absolute()) if self._cache is not None and self._use_gpu else None
        try:
            said = self._ask("start", module=self._module, function=self._function, cache=cache)
        except ArmFailed as failed:
            raise BadInput(
                f"{self._module}:{self._function} can't be run here: {failed.note}"
            ) from None
        self._here = Here(**said)

    def _ask(self, do: str, *, patience: int = 1, **request: Any) -> dict[str, Any]:
        assert self._process is not None
        process, hung = self._process, threading.Event()

        def end() -> None:
            hung.set()
            process.kill()

        alarm = threading.Timer(self._timeout_s * patience, end)
        alarm.daemon = True
        alarm.start()
        try:
            return process.ask(do, **request)[0]
        except WorkerFailed as failed:
            if failed.died:
                self.close()
            raise self._failure(failed, hung.is_set()) from None
        finally:
            alarm.cancel()

    def _failure(self, failed: WorkerFailed, is_hung: bool) -> ArmFailed:
        if is_hung:
            return ArmFailed(HANG, f"it took more than {self._timeout_s:.0f} s")
        if failed.died:
            last = failed.log.strip().splitlines()[-1:] or ["it wrote nothing"]
            code = failed.answer.get("code")
            return ArmFailed(CRASH, f"the process ended with code {code}: {last[0][:200]}")
        text = str(failed.answer.get("line", ""))
        return ArmFailed(NO_FIT if is_out_of_memory(text) else CRASH, _error_line(text))


def _refusal(said: Mapping[str, Any]) -> ArmFailed:
    text = str(said.get("line", ""))
    if is_out_of_memory(text):
        return ArmFailed(NO_FIT, _error_line(text))
    return ArmFailed(INVALID if said.get("stage") == "build" else REFUSED, _error_line(text))


def _error_line(text: str) -> str:
    """The informative line of an error; some contain a whole traceback."""
    lines = text.splitlines() or [""]
    return next(filter(is_out_of_memory, lines), lines[0]).strip()[:300]

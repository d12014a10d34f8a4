"""Candidates timed on this machine's devices: compiled in one worker process, run in turn.

    compile_ahead   several candidates at once
    prepare         compile, run once, compare the result with the baseline's
    time            one step

A candidate that crashes takes the process down; the others are then compiled again in a new one
when they are next timed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from slipstream.compiler.closing import Closing
from slipstream.compiler.options import split_flags
from slipstream.compiler.worker.process import WorkerFailed, WorkerProcess
from slipstream.errors import BadInput
from slipstream.jaxhooks.jax_types import is_out_of_memory
from slipstream.results.tuning import CRASH, DIFFERENT, HANG, REFUSED
from slipstream.tune.apply import as_options
from slipstream.tune.measure.ab_window import (
    BASELINE,
    NULL,
    STEPS,
    ArmFailed,
    LookSchedule,
    status_of,
)

BENCH = "slipstream.bench.bench"
CHECKED = "as the baseline's"


class Backend(Protocol):
    """A way to time candidates; the arms `baseline` and `null` always exist."""

    def compile_ahead(self, candidates: Mapping[str, Mapping[str, str]]) -> None:
        """A hint that these are prepared next; `prepare` reports failures."""
        ...

    def prepare(self, name: str, settings: Mapping[str, str]) -> int | None:
        """Make a candidate ready to be timed; returns its memory. ArmFailed if it fails or its
        results are wrong."""
        ...

    def time(self, name: str) -> float:
        """Seconds of one step."""
        ...

    def results_check(self, name: str) -> str:
        """Whether its results match the baseline's, in words."""
        ...

    @property
    def schedule(self) -> LookSchedule:
        """After how many rounds to compare the arms."""
        ...


class InProcess(Closing):
    """A target's function on this machine's devices, compiled with `compiler_options`."""

    schedule = STEPS

    def __init__(
        self,
        module: str,
        function: str,
        *,
        use_gpu: bool,
        tolerance: float = 0.01,
        timeout_s: float = 600.0,
        patience_s: float | None = None,
        costs: Path | None = None,
    ) -> None:
        """`patience_s`: time after which a candidate counts as hung; default `timeout_s`."""
        self._module, self._function = module, function
        self._use_gpu = use_gpu
        self._tolerance = tolerance
        self._timeout_s = timeout_s
        self._patience_s = min(patience_s or timeout_s, timeout_s)
        self._costs = costs
        self._arms: dict[str, dict[str, str]] = {}
        """options of every arm that was ever prepared"""
        self._compiled: set[str] = set()
        """arms compiled in the current process"""
        self._process: WorkerProcess | None = None
        self._is_finite = True

    def compile_ahead(self, candidates: Mapping[str, Mapping[str, str]]) -> None:
        programs = {}
        for name, settings in candidates.items():
            with suppress(ArmFailed):
                programs[name] = self._options(settings)
        if len(programs) > 1:
            self._ensure_process()
            with suppress(ArmFailed):
                self._ask("ahead", programs=programs)

    def prepare(self, name: str, settings: Mapping[str, str]) -> int | None:
        options = self._options(settings)
        memory = self._compile(name, options)
        self._arms[name] = options
        return memory

    def _options(self, settings: Mapping[str, str]) -> dict[str, str]:
        """The settings as options of one compilation."""
        written = as_options(settings, self._costs)
        flags = {name: value for name, value in written.items() if name.startswith("xla_")}
        divided = split_flags(flags)
        if for_all := [*(written.keys() - flags.keys()), *divided.xla_flags]:
            text = f"{', '.join(for_all)}: can only be set for a whole process"
            raise ArmFailed(REFUSED, text)
        return dict(divided.compiler_options)

    def time(self, name: str) -> float:
        self._ensure_process()
        if name not in self._compiled and name in self._arms:
            self._compile(name, self._arms[name])
        return float(self._ask("time", name=name)["seconds"])

    def results_check(self, name: str) -> str:
        """`prepare` compared every candidate, if the baseline's results are finite."""
        if self._is_finite:
            return CHECKED
        return "not checked: the step returns NaN or infinity for synthetic inputs"

    def close(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None

    def _compile(self, name: str, options: Mapping[str, str]) -> int | None:
        self._ensure_process()
        memory: int | None = self._ask("compile", name=name, options=options)["memory_bytes"]
        difference = float(self._ask("check", name=name)["difference"])
        if not difference <= self._tolerance:
            raise ArmFailed(
                DIFFERENT,
                f"results differ from the baseline's by {difference:.2g} of the largest value; "
                f"{self._tolerance:g} is allowed",
            )
        self._compiled.add(name)
        return memory

    def _ensure_process(self) -> None:
        """Start a process with the baseline and the null arm, if none is running."""
        if self._process is not None:
            return
        self._compiled = set()
        self._process = WorkerProcess("", use_gpu=self._use_gpu, module=BENCH)
        self._ask("start", module=self._module, function=self._function)
        for name in (BASELINE, NULL):
            self._ask("compile", name=name, options={})
        self._is_finite = bool(self._ask("check", name=BASELINE)["is_finite"])

    def _ask(self, do: str, **request: Any) -> dict[str, Any]:
        assert self._process is not None
        process, hung = self._process, threading.Event()
        is_own = do == "start" or request.get("name") in (BASELINE, NULL)

        def end() -> None:
            hung.set()
            process.kill()

        alarm = threading.Timer(self._timeout_s if is_own else self._patience_s, end)
        alarm.start()
        try:
            return process.ask(do, **request)[0]
        except WorkerFailed as failed:
            raise self._failure(failed, do, request, hung.is_set()) from None
        finally:
            alarm.cancel()

    def _failure(
        self, failed: WorkerFailed, do: str, request: Mapping[str, Any], is_hung: bool
    ) -> Exception:
        text = str(failed.answer.get("line", "")) or f"code {failed.answer.get('code')}"
        if failed.died:
            self.close()
            # The arm that killed the process is not compiled again.
            self._arms.pop(str(request.get("name", "")), None)
        if do == "start" or request.get("name") in (BASELINE, NULL):
            last = failed.log.strip().splitlines()[-1:] or [text]
            return BadInput(
                f"{self._module}:{self._function} can't be run here ({text}; {last[0][:200]}); "
                "expected a function of devices that returns a jitted function and its arguments"
            )
        if is_hung:
            return ArmFailed(HANG, f"took more than {self._patience_s:.0f} s")
        if failed.died:
            return ArmFailed(CRASH, f"the process died: {text}")
        return ArmFailed(status_of(text), _error_line(text))


def _error_line(text: str) -> str:
    """The informative line of an error; some contain a whole traceback."""
    lines = text.splitlines() or [""]
    return next(filter(is_out_of_memory, lines), lines[0]).strip()[:300]

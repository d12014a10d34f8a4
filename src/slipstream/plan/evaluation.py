"""One combination without hardware: bounds first, then the real compiler and the simulation.

settings ─► inspect ─► can it fit? can it win? ─► compile ─► fits? ─► seen? ─► simulate ─► Outcome
               │ invalid                            │ refused, crash, hang
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from slipstream.compiler.closing import Closing
from slipstream.compiler.combinations import combinations
from slipstream.compiler.compilation import Compilation
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.inspection import Inspection
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.errors import BadInput, SlipstreamError
from slipstream.machines.machine import Machine
from slipstream.plan.bounds import LowerBounds, lower_bounds
from slipstream.plan.limits import limits_of
from slipstream.plan.objective import Objective
from slipstream.plan.search_space import Settings, combination_of
from slipstream.results.planning import CANNOT_WIN, INVALID
from slipstream.results.tuning import CRASH, HANG, NO_FIT, OK, REFUSED
from slipstream.simulate.prediction import predict
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome
from slipstream.tune.search.fingerprint import fingerprint_of
from slipstream.units import format_bytes

VALUE = "plan"
"""the objective of a plan's study: `Outcome.value`, microseconds for a unit of work"""
TIMEOUT_S = 300.0
"""a combination that takes longer counts as hung"""
_KINDS = {
    "invalid": INVALID, "refused": REFUSED, "memory": NO_FIT, "died": CRASH, "aborted": CRASH,
}  # fmt: skip
Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class EvaluationSpec:
    """What an evaluation needs; picklable, so that a process on another machine can make it."""

    target: Target
    machine: Machine
    objective: Objective
    costs: RecordedCosts | None = None
    timeout_s: float = TIMEOUT_S


@dataclass
class Known:
    """What is known from other combinations; shared by all workers of one process."""

    best: float | None = None
    """the least value of a combination that fits"""
    programs: dict[str, Outcome] = field(default_factory=dict)
    """outcomes by hash of the program"""
    unfit: list[tuple[Settings, Outcome]] = field(default_factory=list)
    facts: dict[Key, _Facts] = field(default_factory=dict)
    """what is known before a compile"""
    failed: dict[Key, Outcome] = field(default_factory=dict)
    """combinations that failed before a compile"""

    def add(self, settings: Settings, outcome: Outcome) -> None:
        value = outcome.score(VALUE)
        if value is not None:
            self.best = value if self.best is None else min(self.best, value)
        if outcome.program:
            self.programs.setdefault(outcome.program, outcome)
        if outcome.status == NO_FIT:
            self.unfit.append((settings, outcome))

    def smaller_unfit(self, settings: Settings, work: float) -> tuple[str, Outcome] | None:
        """One that does not fit, and differs only in a choice that gives it less work."""
        for other, outcome in self.unfit:
            changed = [name for name in settings if other.get(name) != settings[name]]
            if len(changed) == 1 and 0 < _detail(outcome, "work") < work:
                return f"{changed[0]}={other[changed[0]]}", outcome
        return None


class Evaluation(Closing):
    """Evaluates combinations one after the other, in one compiler process."""

    def __init__(self, spec: EvaluationSpec, known: Known | None = None) -> None:
        self._spec = spec
        self._known = known if known is not None else Known()
        self._session = combinations(spec.target, spec.machine)

    @property
    def inputs(self) -> TargetInputs:
        """The files and variables that the target has read so far."""
        return self._session.inputs

    def promise(self, settings: Settings) -> tuple[float, float]:
        """What to sort combinations by: the least time for a unit of work, then the work."""
        hung = threading.Event()
        try:
            with self._alarm(hung):
                facts = self._facts(settings)
        except SlipstreamError as error:
            self._known.failed[_key(settings)] = self._failed(error, hung.is_set())
            return -math.inf, 0.0  # settled at once
        # Bounds that differ by little say nothing; then less work first, which fits sooner.
        least = facts.value(facts.bounds.step_us)
        return round(math.log(least), 1) if least > 0 else -math.inf, facts.work

    def evaluate(self, settings: Settings) -> Outcome:
        """Compile and simulate a combination; failures are outcomes, not errors."""
        hung = threading.Event()
        outcome = self._known.failed.get(_key(settings))
        if outcome is None:
            try:
                with self._alarm(hung):
                    outcome = self._evaluated(settings)
            except SlipstreamError as error:
                outcome = self._failed(error, hung.is_set())
        self._known.add(settings, outcome)
        return outcome

    @contextmanager
    def _alarm(self, hung: threading.Event) -> Iterator[None]:
        """Abort what takes too long, and set `hung`."""

        def end() -> None:
            hung.set()
            self._session.abort()

        alarm = threading.Timer(self._spec.timeout_s, end)
        alarm.daemon = True
        alarm.start()
        try:
            yield
        finally:
            alarm.cancel()

    def _evaluated(self, settings: Settings) -> Outcome:
        facts = self._facts(settings)
        if (outcome := self._bounded(settings, facts)) is not None:
            return outcome
        costs = self._spec.costs
        compiled = self._session.compile(
            combination_of(settings).keywords,
            costs=costs.for_scheduler if costs is not None else None,
        )
        return self._simulated(compiled, facts)

    def _facts(self, settings: Settings) -> _Facts:
        """What is known before a compile; computed once for all workers."""
        key = _key(settings)
        if key not in self._known.facts:
            keywords = combination_of(settings).keywords
            # Without a trace first: arguments that don't fit are found in milliseconds.
            quick = self._session.inspect(keywords, traces=False)
            bounds = lower_bounds(quick, self._spec.machine)
            if bounds.memory_bytes <= self._memory_limit:
                inspected = self._session.inspect(keywords)
                self._known.facts[key] = _Facts.of(keywords, inspected, self._spec)
            else:
                self._known.facts[key] = _Facts(bounds)
        return self._known.facts[key]

    @property
    def _memory_limit(self) -> int:
        return self._spec.objective.memory_limit(self._spec.machine.gpu.memory_bytes)

    def _bounded(self, settings: Settings, facts: _Facts) -> Outcome | None:
        """The outcome, if bounds alone decide it."""
        bounds, limit = facts.bounds, self._memory_limit
        if bounds.memory_bytes > limit:
            note = f"{bounds.memory_text}, {format_bytes(limit)} with the margin"
            return facts.outcome(NO_FIT, memory_bytes=bounds.memory_bytes, note=note)
        smaller = self._known.smaller_unfit(settings, facts.work)
        if smaller is not None and smaller[1].memory_bytes is not None:
            needed = smaller[1].memory_bytes
            note = (
                f"{smaller[0]} does less and needs {format_bytes(needed)} of {format_bytes(limit)}"
            )
            return facts.outcome(NO_FIT, memory_bytes=needed, note=note)
        least = facts.value(bounds.step_us)
        if self._known.best is not None and least > self._known.best:
            note = f"{bounds.step_text}: at least {least / self._known.best - 1:.0%} behind"
            return facts.outcome(CANNOT_WIN, step_us=bounds.step_us, note=note)
        return None

    def _simulated(self, compiled: Compilation, facts: _Facts) -> Outcome:
        program = fingerprint_of(compiled.program).schedule
        if (same := self._known.programs.get(program)) is not None:
            details = {**(same.details or {}), **facts.details}
            return replace(same, compile_s=compiled.seconds, details=details)
        costs = self._spec.costs
        prediction = predict(
            compiled.program,
            self._spec.machine,
            costs.costs if costs is not None else None,
            source=costs.source if costs is not None else None,
            compilation=compiled,
        )
        limits, parts = limits_of(prediction, compiled.program, self._spec.machine)
        memory, limit = compiled.memory.peak_bytes, self._memory_limit
        status, note = OK, ""
        if memory > limit:
            status, note = NO_FIT, f"needs {format_bytes(memory)} of {format_bytes(limit)}"
        return facts.outcome(
            status,
            step_us=prediction.step_us,
            low_us=prediction.low_us,
            high_us=prediction.high_us,
            memory_bytes=memory,
            compile_s=compiled.seconds,
            least_us=prediction.bounds.least_us,
            exposed_us=prediction.exposed_communication_us,
            program=program,
            parts_us=parts,
            clock_hz=prediction.power.clock_hz if prediction.power is not None else None,
            note=note,
            limits=[asdict(one) for one in limits],
        )

    def _failed(self, error: SlipstreamError, is_hung: bool) -> Outcome:
        if is_hung:
            return Outcome(HANG, note=f"it took more than {self._spec.timeout_s:.0f} s")
        if isinstance(error, CompileFailed):
            return Outcome(_KINDS[error.kind], note=str(error))
        return Outcome(INVALID if isinstance(error, BadInput) else CRASH, note=str(error))

    def close(self) -> None:
        """Also ends a compile that another thread is waiting for."""
        self._session.abort()
        self._session.close()


@dataclass(frozen=True)
class _Facts:
    """What is known about a combination before it is compiled."""

    bounds: LowerBounds
    work: float = 0.0
    """of a step; 0 if its arguments alone ruled it out"""
    unit: str = ""
    accumulate: int = 1

    @staticmethod
    def of(keywords: Mapping[str, Any], inspected: Inspection, spec: EvaluationSpec) -> _Facts:
        objective, batch = spec.objective, inspected.work
        seen = batch.tokens if batch.tokens is not None else batch.samples
        work = objective.work_in(keywords, spec.machine, seen)
        unit = "tokens" if batch.tokens is not None else "samples"
        return _Facts(
            lower_bounds(inspected, spec.machine),
            work,
            objective.unit or ("units" if objective.work else unit),
            objective.accumulated(work),
        )

    @property
    def details(self) -> dict[str, Any]:
        return {"work": self.work or None, "unit": self.unit, "accumulate": self.accumulate}

    def value(self, step_us: float) -> float:
        """Microseconds for a unit of work."""
        return step_us / self.work if self.work else 0.0

    def outcome(self, status: str, *, limits: Any = (), **figures: Any) -> Outcome:
        step = figures.get("step_us")
        return Outcome(
            status,
            value=self.value(step) if step is not None else None,
            details={**self.details, "limits": list(limits)},
            **figures,
        )


def _key(settings: Settings) -> Key:
    return tuple(settings.items())


def _detail(outcome: Outcome, name: str) -> float:
    return float((outcome.details or {}).get(name) or 0)

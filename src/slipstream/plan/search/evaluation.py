"""One combination without hardware: bounds first, then the real compiler and the simulation.

settings ─► inspect ─► can it fit? can it win? ─► compile ─► fits? ─► seen? ─► simulate ─► Outcome
               │ invalid                            │ refused, crash, hang
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from slipstream.compiler.closing import Closing
from slipstream.compiler.combinations import Combinations, combinations
from slipstream.compiler.failures import CompileFailed
from slipstream.compiler.source_tracking import TargetInputs
from slipstream.compiler.targets import Target
from slipstream.compiler.time_limit import TimeLimit, on_busy_cores
from slipstream.errors import BadInput, SlipstreamError
from slipstream.plan.search.bounds import lower_bounds
from slipstream.plan.search.facts import EvaluationSpec, Facts
from slipstream.plan.search.launched import JobSession
from slipstream.plan.search.simulated_step import simulated_step
from slipstream.plan.space.search_space import Settings, combination_of
from slipstream.results.planning import CANNOT_WIN, INVALID
from slipstream.results.tuning import CRASH, HANG, NO_FIT, REFUSED
from slipstream.tune.outcome import Outcome
from slipstream.units import format_bytes

VALUE = "plan"
"""the objective of a plan's study: `Outcome.value`, microseconds for a unit of work"""
_KINDS = {
    "invalid": INVALID, "refused": REFUSED, "memory": NO_FIT, "died": CRASH, "aborted": CRASH,
}  # fmt: skip
MANY_TIMES = 10
"""from which on a bound is told as a multiple of the best"""
Key = tuple[tuple[str, str], ...]
Settled = TypeVar("Settled")


@dataclass(frozen=True)
class LoweredTask:
    """A combination that needs no Python of the user's any more; picklable."""

    target: Target
    facts: Facts


@dataclass
class Known:
    """What is known from other combinations; shared by all workers of one process."""

    best: float | None = None
    """the least value of a combination that fits"""
    programs: dict[str, Outcome] = field(default_factory=dict)
    """outcomes by hash of the program"""
    unfit: list[tuple[Settings, Outcome]] = field(default_factory=list)
    facts: dict[Key, Facts] = field(default_factory=dict)
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
        self._session: Combinations | JobSession = (
            JobSession(spec.command, spec.machine)
            if spec.command
            else combinations(spec.target, spec.machine)
        )

    @property
    def inputs(self) -> TargetInputs:
        """The files and variables that the target has read so far."""
        return self._session.inputs

    def promise(self, settings: Settings) -> tuple[float, float]:
        """What to sort combinations by: the least time for a unit of work, then the work."""
        limit = self._time_limit()
        try:
            with limit:
                facts = self._facts(settings)
        except SlipstreamError as error:
            spent_s = self._spec.timeout_s if limit.is_passed else None
            self._known.failed[_key(settings)] = failed_outcome(error, spent_s)
            return -math.inf, 0.0  # settled at once
        # Bounds that differ by little say nothing; then less work first, which fits sooner.
        least = facts.value(facts.bounds.step_us)
        return round(math.log(least), 1) if least > 0 else -math.inf, facts.work

    def evaluate(self, settings: Settings) -> Outcome:
        """Compile and simulate a combination; failures are outcomes, not errors."""
        return self._settled(settings, self._compiled)

    def lowered(self, settings: Settings) -> Outcome | LoweredTask:
        """A combination to compile elsewhere, or its outcome if it needs no compile."""
        return self._settled(settings, self._lowered)

    def _settled(
        self, settings: Settings, then: Callable[[Settings, Facts], Settled]
    ) -> Settled | Outcome:
        limit = self._time_limit()
        outcome = self._known.failed.get(_key(settings))
        if outcome is None:
            try:
                with limit:
                    facts = self._facts(settings)
                    outcome = self._bounded(settings, facts)
                    if outcome is None:
                        return then(settings, facts)
            except SlipstreamError as error:
                outcome = failed_outcome(error, self._spec.timeout_s if limit.is_passed else None)
        self._known.add(settings, outcome)
        return outcome

    def _compiled(self, settings: Settings, facts: Facts) -> Outcome:
        costs = self._spec.costs
        compiled = self._session.compile(
            combination_of(settings).keywords,
            costs=costs.for_scheduler if costs is not None else None,
        )
        outcome = simulated_step(compiled, facts, self._spec, self._known.programs)
        self._known.add(settings, outcome)
        return outcome

    def _lowered(self, settings: Settings, facts: Facts) -> LoweredTask:
        return LoweredTask(self._session.portable_target(combination_of(settings).keywords), facts)

    def _time_limit(self) -> TimeLimit:
        return TimeLimit(self._spec.timeout_s, self._session.abort)

    def _facts(self, settings: Settings) -> Facts:
        """What is known before a compile; computed once for all workers."""
        key = _key(settings)
        if key not in self._known.facts:
            keywords = combination_of(settings).keywords
            # Without a trace first: arguments that don't fit are found in milliseconds.
            quick = self._session.inspect(keywords, traces=False)
            bounds = lower_bounds(quick, self._spec.machine)
            if bounds.memory_bytes <= self._spec.memory_limit:
                inspected = self._session.inspect(keywords)
                self._known.facts[key] = Facts.of(keywords, inspected, self._spec)
            else:
                self._known.facts[key] = Facts(bounds)
        return self._known.facts[key]

    def _bounded(self, settings: Settings, facts: Facts) -> Outcome | None:
        """The outcome, if bounds alone decide it."""
        bounds, limit = facts.bounds, self._spec.memory_limit
        if bounds.memory_bytes > limit:
            note = f"{bounds.memory_text}, {format_bytes(limit)} with the margin"
            return facts.outcome(NO_FIT, memory_bytes=bounds.memory_bytes, note=note)
        smaller = self._known.smaller_unfit(settings, facts.work)
        # With less work in a step there are more steps, whose gradients may need a sum.
        needed = _step_memory(smaller[1]) + facts.accumulator_bytes if smaller is not None else 0
        if smaller is not None and needed > limit:
            note = (
                f"{smaller[0]} does less and needs {format_bytes(needed)} of {format_bytes(limit)}"
            )
            return facts.outcome(NO_FIT, memory_bytes=needed, note=note)
        least = facts.value(bounds.step_us)
        if self._known.best is not None and least > self._known.best:
            note = f"{bounds.step_text}: at least {_behind(least / self._known.best)}"
            return facts.outcome(CANNOT_WIN, step_us=bounds.step_us, note=note)
        return None

    def close(self) -> None:
        """Also ends a compile that another thread is waiting for."""
        self._session.abort()
        self._session.close()


def failed_outcome(error: SlipstreamError, spent_s: float | None) -> Outcome:
    """The outcome of a combination that failed; `spent_s` if it was ended after that time."""
    if spent_s is not None:
        more = error.reason if isinstance(error, CompileFailed) else str(error)
        known = f": {more}" if more != str(error) else on_busy_cores(spent_s)
        return Outcome(HANG, note=f"it took more than {spent_s:.0f} s{known}")
    if isinstance(error, CompileFailed):
        return Outcome(_KINDS[error.kind], note=error.reason)
    return Outcome(INVALID if isinstance(error, BadInput) else CRASH, note=str(error))


def _behind(ratio: float) -> str:
    if ratio >= MANY_TIMES:
        return f"{ratio:,.0f} times the best"
    return f"{ratio - 1:.{0 if ratio >= 1.1 else 1}%} behind"


def _key(settings: Settings) -> Key:
    return tuple(settings.items())


def _step_memory(outcome: Outcome) -> int:
    return (outcome.memory_bytes or 0) - int(_detail(outcome, "accumulator_bytes"))


def _detail(outcome: Outcome, name: str) -> float:
    return float((outcome.details or {}).get(name) or 0)

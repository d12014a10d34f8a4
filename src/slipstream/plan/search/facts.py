"""What is known about a combination before it is compiled, and the outcomes made of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from slipstream.compiler.inspection import Inspection
from slipstream.compiler.targets import Target
from slipstream.machines.machine import Machine
from slipstream.plan.search.bounds import LowerBounds, lower_bounds
from slipstream.plan.search.objective import Objective
from slipstream.simulate.recorded import RecordedCosts
from slipstream.tune.outcome import Outcome

TIMEOUT_S = 300.0
"""a combination that takes longer counts as hung"""


@dataclass(frozen=True)
class EvaluationSpec:
    """What an evaluation needs; picklable, so that a process on another machine can make it."""

    target: Target
    machine: Machine
    objective: Objective
    costs: RecordedCosts | None = None
    timeout_s: float = TIMEOUT_S
    command: tuple[str, ...] = ()
    """of a program that is launched; empty for a build function"""

    @property
    def memory_limit(self) -> int:
        """What a program may use of a device."""
        return self.objective.memory_limit(self.machine.chip.memory_bytes)


@dataclass(frozen=True)
class Facts:
    """What is known about a combination before it is compiled."""

    bounds: LowerBounds
    work: float = 0.0
    """of a step; 0 if its arguments alone ruled it out"""
    unit: str = ""
    accumulate: int = 1
    accumulator_bytes: int = 0
    """of one device: gradients that are added up over several steps"""

    @staticmethod
    def of(keywords: Mapping[str, Any], inspected: Inspection, spec: EvaluationSpec) -> Facts:
        objective, batch = spec.objective, inspected.work
        seen = batch.tokens if batch.tokens is not None else batch.samples
        work = objective.work_in(keywords, spec.machine, seen)
        unit = "tokens" if batch.tokens is not None else "samples"
        accumulate = objective.accumulated(work)
        accumulator = inspected.gradients_bytes if accumulate > 1 else 0
        return Facts(
            lower_bounds(inspected, spec.machine, accumulator),
            work,
            objective.unit or ("units" if objective.work else unit),
            accumulate,
            accumulator,
        )

    @property
    def details(self) -> dict[str, Any]:
        return {
            "work": self.work or None,
            "unit": self.unit,
            "accumulate": self.accumulate,
            "accumulator_bytes": self.accumulator_bytes,
        }

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

"""What an experiment on one program sets out to do, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from slipstream.consensus.consensus import Consensus
from slipstream.consensus.patience import Patience
from slipstream.costs.coverage import Coverage
from slipstream.experiment.phase_times import PhaseTimes
from slipstream.experiment.stats import Comparison
from slipstream.experiment.variants import DEFAULT_VARIANTS, Arm, Variant
from slipstream.jaxhooks.jax_types import ProfilerOptions

LOOKS = (10, 16, 30)
"""round counts after which the times are compared; each look widens the confidence interval"""


@dataclass(frozen=True)
class ExperimentPlan:
    """How the loop of one program goes about it."""

    folder: Path
    start: int = 5
    """calls before the capture"""
    steps: int = 3
    """calls in the capture"""
    rounds: int = LOOKS[-1]
    """most rounds of the comparison"""
    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    policy: str = "typical"
    """how several durations of an instruction become one cost"""
    checks: bool = True
    """whether the best arm is profiled as well, for the receipt"""
    warm_rounds: int = 1
    """rounds that run untimed: a program's first run loads it"""
    patience: Patience = Patience()
    """how long one process waits for another before all keep the original program"""
    is_recorded: bool = False
    """whether an earlier run already has the costs, so that no step needs to be profiled"""
    profiler_options: ProfilerOptions = None


@dataclass
class ExperimentOutcome:
    """What the loop of one program found."""

    program: str
    arms: list[Arm] = field(default_factory=list)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    chosen: str = "original"
    problem: str | None = None
    """why the loop ended early"""
    profiles: dict[str, Path] = field(default_factory=dict)
    """`before` and `after`"""
    captured: tuple[int, int] | None = None
    """the first and the last step in the profile `before`, counted from 0"""
    costs: Path | None = None
    costs_bytes: bytes | None = None
    """what all arms with costs were compiled with"""
    coverage: Coverage | None = None
    costs_problem: str | None = None
    """why there are no costs, where the other variants are compared without"""
    consensus: Consensus = field(default_factory=Consensus)
    """the processes that took part"""
    times: PhaseTimes = field(default_factory=PhaseTimes)
    notes: list[str] = field(default_factory=list)
    """problems that did not end the loop"""

"""What a loop sets out to do, and what it found."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from slipstream.consensus.consensus import PATIENCE_S, Consensus
from slipstream.experiment.stats import Comparison
from slipstream.experiment.variants import DEFAULT_VARIANTS, Arm, Variant

LOOKS = (10, 16, 30)
"""after how many rounds the times are looked at; each look widens the interval"""


@dataclass(frozen=True)
class ExperimentPlan:
    """How the loop goes about it."""

    folder: Path
    start: int = 5
    """calls before the capture"""
    steps: int = 3
    """calls in the capture"""
    rounds: int = LOOKS[-1]
    """most rounds of the comparison"""
    variants: tuple[Variant, ...] = DEFAULT_VARIANTS
    policy: str = "typical"
    checks: bool = True
    """whether the best arm is profiled too, for the receipt"""
    warm_rounds: int = 1
    """rounds that are run and not timed: a program's first run loads it"""
    patience_s: float = PATIENCE_S
    """how long one process waits for another before all stay with the original program"""
    is_recorded: bool = False
    """whether there are costs from an earlier run, so that no step is recorded for them"""
    profiler_options: Any = None
    """JAX's `ProfileOptions`, where the defaults won't do"""


@dataclass
class ExperimentOutcome:
    """What one loop found, as it stands when the program is settled."""

    program: str
    arms: list[Arm] = field(default_factory=list)
    comparisons: dict[str, Comparison] = field(default_factory=dict)
    chosen: str = "original"
    problem: str | None = None
    """why the loop ended before its end"""
    profiles: dict[str, Path] = field(default_factory=dict)
    """`before` and `after`"""
    costs: Path | None = None
    costs_bytes: bytes | None = None
    """what all arms with costs were compiled with"""
    coverage: Any = None
    consensus: Consensus = field(default_factory=Consensus)
    """the processes that took part"""
    notes: list[str] = field(default_factory=list)
    """what went wrong without ending the loop"""

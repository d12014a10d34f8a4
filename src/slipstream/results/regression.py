"""A prediction next to that of an earlier program: what changed, and whether that is allowed.

`simulate.regression` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SAME_PROGRAM, SLOWER, FASTER, NOT_TOLD = "same program", "slower", "faster", "can't tell"
"""verdicts on the step"""


@dataclass(frozen=True)
class Baseline:
    """What is compared of a prediction; times are of one step, as in `Prediction`."""

    machine: str
    program: str
    fingerprint: str | None
    """None in files of versions that did not write it"""
    step_us: float
    compute_us: float
    exposed_communication_us: float
    exposed_copy_us: float
    idle_us: float
    memory_bytes: int | None
    memory_capacity_bytes: int
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Regression:
    """The change from a baseline to a prediction for the same machine."""

    before: Baseline
    after: Baseline
    verdict: str
    step_change: float
    """relative; positive is slower"""
    tells: float
    """the least change of the step that two predictions can tell from none, at 95%"""
    memory_change: float | None
    limit: float | None
    """of `step_change`; None without a gate"""
    memory_limit: float | None
    passed: bool | None
    """None without a gate"""
    failures: tuple[str, ...]
    notes: tuple[str, ...]

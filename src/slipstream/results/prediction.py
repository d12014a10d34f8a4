"""A prediction: what a step would take on a machine, and where it would wait.

`simulate.prediction.predict` makes it; it is here so that outputs can show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.analyses.bounds import Bounds
from slipstream.profile.profile import Profile


@dataclass(frozen=True)
class Notice:
    """Something that XLA said while compiling, or that the simulation had to assume."""

    code: str
    text: str
    severity: str
    """`info`, `warning` or `error`"""
    instruction: str | None = None


@dataclass(frozen=True)
class WorstWait:
    """One place where the step waits."""

    instruction: str
    kind: str
    """`all-gather`, `host copy`, …"""
    us: float
    """in one step, over all its executions"""
    times: int
    bytes: int | None
    """of one execution, where it is communication"""
    source: str
    """`model.py:24`, or empty where the program doesn't say"""
    why: str
    """what keeps it from being hidden"""
    description: str = ""
    """what it moves, for people"""


@dataclass(frozen=True)
class Prediction:
    """One step of one program on one machine; times are of one device."""

    machine: str
    devices: int
    program: str
    step_us: float
    compute_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float
    idle_us: float
    memory_bytes: int | None
    """peak of one device; None for a program that was not compiled here"""
    memory_capacity_bytes: int
    mfu: float | None
    """floating-point operations of the program, recomputed ones too, over the device's peak"""
    bounds: Bounds
    basis: Mapping[str, float]
    """the share of the time that is measured, calibrated, modelled, or a default"""
    waits: tuple[WorstWait, ...]
    messages: tuple[Notice, ...] = ()
    timeline: Profile | None = field(default=None, repr=False, compare=False)

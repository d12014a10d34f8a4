"""The result of `schedule`: XLA's order, XLA's with costs, ours, and the least any order takes.

`slipstream.scheduling` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.inline import Inline

PASS, COSTS = "pass", "costs"


@dataclass(frozen=True)
class ScheduledStep:
    """One step of the program, simulated."""

    step_us: float
    exposed_communication_us: float
    exposed_copy_us: float
    memory_bytes: int | None


@dataclass(frozen=True)
class MovedOperation:
    """An asynchronous operation that begins elsewhere than in XLA's order."""

    instruction: str
    description: str
    source: str
    computation: str
    times: int
    """per step"""
    kernels_earlier: int
    """how many more kernels are launched between its start and its done"""
    exposed_us: tuple[float, float]
    """what the step waits for it, in XLA's order and in ours"""


@dataclass(frozen=True)
class LayerEvent:
    """What runs in one run of a computation."""

    name: str
    description: str
    lane: str
    """`compute`, or the stream of an asynchronous operation"""
    start_us: float
    end_us: float
    is_communication: bool


@dataclass(frozen=True)
class LayerTimelines:
    """One run of the computation that gained most, in XLA's order and in ours."""

    computation: str
    what: str
    times: int
    """per step"""
    xla: tuple[LayerEvent, ...]
    ours: tuple[LayerEvent, ...]


@dataclass(frozen=True)
class TriedBase:
    """A program that XLA makes with other flags, searched too."""

    name: str
    flags: Mapping[str, str]
    xla_us: float | None = None
    """its step in XLA's own order"""
    step_us: float | None = None
    """in ours"""
    bound_us: float | None = None
    note: str = ""
    """why it was left out, or failed"""


@dataclass(frozen=True)
class Scheduling(Inline):
    """A better order than XLA's, and how much better."""

    machine: str
    program: str
    fingerprint: str | None
    xla: ScheduledStep
    pgle: ScheduledStep
    ours: ScheduledStep
    bound_us: float
    """the least that any order takes of any of the programs that were searched"""
    how: str
    """`pass`: XLA was given the order; `costs`: costs that bring its own scheduler near it"""
    is_obeyed: bool
    """whether what XLA compiled runs in our order"""
    base: str
    """the program that our order is of, in words"""
    flags: Mapping[str, str]
    """that make XLA compile that program"""
    moved: tuple[MovedOperation, ...] = ()
    layer: LayerTimelines | None = None
    bases: tuple[TriedBase, ...] = ()
    seconds: float = 0.0
    """of the search, without compiles"""
    notes: tuple[str, ...] = ()
    nearness: float | None = None
    """with `costs`: the share of pairs of operations that run in the order asked for"""
    asked_us: float | None = None
    """with `costs`: the step of the order asked for"""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def gap_us(self) -> float:
        """Between XLA's best order, with costs, and the bound."""
        return max(self.pgle.step_us - self.bound_us, 0.0)

    @property
    def closed(self) -> float | None:
        """The share of that gap that our order closes; None if there is none."""
        return (self.pgle.step_us - self.ours.step_us) / self.gap_us if self.gap_us else None

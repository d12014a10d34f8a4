"""A prediction: how long a step would take on a machine, and where it would wait.

`simulate.prediction.predict` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.analyses.bounds import Bounds
from slipstream.inline import Inline
from slipstream.machines.power import Power
from slipstream.profile.profile import Profile
from slipstream.results.what_if import NetworkWhatIf


@dataclass(frozen=True)
class Notice:
    """A message from XLA's compiler, or an assumption of the simulation."""

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
    """per step, summed over its executions"""
    times: int
    bytes: int | None
    """of one execution, if it is communication"""
    source: str
    """such as `model.py:24`; empty if unknown"""
    why: str
    """why it is not hidden"""
    description: str = ""
    """what it moves"""


@dataclass(frozen=True)
class UnknownKernel:
    """A kernel that no model knows: its time is its bytes at memory bandwidth, a lower bound."""

    name: str
    """the target of the custom call, or the name of the Pallas kernel"""
    times: int
    """executions in a step"""
    us: float
    """in a step, summed over its executions"""
    share: float
    """of the step's compute"""


@dataclass(frozen=True)
class Prediction(Inline):
    """One step of one program on one machine; times are of one device, the slowest."""

    machine: str
    devices: int
    program: str
    step_us: float
    low_us: float
    high_us: float
    """the step's 90% band: `machines/jitter.py`"""
    compute_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float
    idle_us: float
    memory_bytes: int | None
    """peak of one device; None for a program whose compile is not known"""
    memory_capacity_bytes: int
    mfu: float | None
    """model FLOP utilisation, as in `Roofline`: without recomputation"""
    bounds: Bounds
    basis: Mapping[str, float]
    """the share of the time by what it rests on (`machines.machine.BASES`), the best first"""
    waits: tuple[WorstWait, ...]
    """all of them, the longest first"""
    messages: tuple[Notice, ...] = ()
    unknown: tuple[UnknownKernel, ...] = ()
    """kernels whose basis is `default`, the longest first"""
    power: Power | None = None
    """clock and watts; None with measured costs, which contain the clock of their recording, and
    for a GPU whose power cap is unknown"""
    what_if: NetworkWhatIf | None = None
    """the step with other networks; None if that was not asked for, or if the machine has none"""
    fingerprint: str | None = None
    """hash of the compiled program without names and source lines; None if not asked for"""
    versions: Mapping[str, str] = field(default_factory=dict)
    """of Slipstream, Python, jax, jaxlib and the plugin that compiled it"""
    timeline: Profile | None = field(default=None, repr=False, compare=False)

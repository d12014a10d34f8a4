"""What a step would be with another network between slices or hosts.

`simulate.what_if.network_what_if` computes it; it is defined here so that outputs can import it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NetworkTransfer:
    """One collective that crosses the network, as it is on the machine's own network."""

    instruction: str
    """its start: the send of a transfer between slices"""
    kind: str
    """`all-reduce`, `all-gather`, …"""
    description: str
    source: str
    times: int
    """executions in a step"""
    bytes: float
    """that one device sends over the network in one execution"""
    slack_us: float
    """what one execution may take without a wait; the mean of its executions"""
    needs_gbps: float | None
    """of a host, one direction: from there on it takes no longer than its slack, if it has the
    network to itself; None if latency or another link takes longer than that"""
    us: float
    """of one execution, with what shares the network; the mean of its executions"""
    wait_us: float
    """per step"""


@dataclass(frozen=True)
class NetworkCase:
    """The step with one network."""

    gbps: float
    """gigabits per second of a host, one direction"""
    latency_us: float
    step_us: float
    wait_us: float
    """for all transfers, per step"""
    waits: Mapping[str, float]
    """of it, by the transfer's instruction; without those that are hidden"""


@dataclass(frozen=True)
class NetworkWhatIf:
    """One program with several networks."""

    between: str
    """`slices` of TPUs or `hosts` of GPUs"""
    now: NetworkCase
    """the machine's own network"""
    transfers: tuple[NetworkTransfer, ...]
    """the longest wait first, then by what they need"""
    cases: tuple[NetworkCase, ...]
    """in the order in which they were asked for"""
    hidden_from_gbps: float | None
    """the least bandwidth of a host at which waits are below 1% of the step, at the machine's
    latency; None if no bandwidth is enough"""
    hidden_to_latency_us: float | None
    """the longest latency at which they are, at the machine's bandwidth; None if none is short
    enough"""

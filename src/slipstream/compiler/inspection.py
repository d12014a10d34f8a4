"""What a combination needs at least, as far as its arguments and its trace tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class StepWork:
    """The work of a step, by the arguments that are its batch."""

    samples: int | None = None
    """the leading dimension of the batch"""
    tokens: int | None = None
    """elements of an integer array of two dimensions"""
    text: str = ""
    """what was recognised: `argument 1, int32[128,8193]`; otherwise why nothing was"""


@dataclass(frozen=True)
class Inspection:
    """Facts about a step before it is lowered; lower bounds unless stated otherwise."""

    devices: int
    """that the step runs on"""
    arguments_bytes: int
    """of one device; exact where arguments have shardings"""
    is_traced: bool
    """whether the fields below are known"""
    donated_bytes: int = 0
    """the part of the arguments whose memory outputs may take"""
    outputs_bytes: int = 0
    """of one device"""
    flops: Mapping[str, int] = field(default_factory=dict)
    """of products, over all devices, by the narrowest type of their operands"""
    stacked_bytes: int = 0
    """over all devices: what a loop keeps of its iterations, such as for the backward pass"""
    reusable_bytes: int = 0
    """of one device: donated arguments that may be gone by then"""
    moved_bytes: int = 0
    """of one device: arguments that are read completely, and outputs that are written"""
    received_bytes: int = 0
    """of one device: what arrays that it has in pieces lack where they are stated to be whole"""
    network_bytes: int = 0
    """of one link domain, over the network: the same for its devices together"""
    gradients_bytes: int = 0
    """of one device, an estimate: an array like each weight of the state"""
    work: StepWork = field(default_factory=StepWork)
    seconds: float = 0.0
    """that the inspection took in the worker"""

    @property
    def lasting_bytes(self) -> int:
        """Arguments and outputs of one device."""
        return self.arguments_bytes + max(self.outputs_bytes - self.donated_bytes, 0)

    @property
    def memory_bytes(self) -> int:
        """What one device needs for the step."""
        while_stacked = self.arguments_bytes - self.reusable_bytes
        return max(self.lasting_bytes, while_stacked + self.stacked_bytes // self.devices)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Inspection:
        """From an answer, which may hold more."""
        known = {name: data[name] for name in Inspection.__dataclass_fields__ if name in data}
        return Inspection(**{**known, "work": StepWork(**known.get("work", {}))})

"""A knob: one setting that may affect a program, and the values worth trying."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

SeenBy = Literal["program", "simulation", "measurement"]

COSTS = "costs"
"""the knob that is not a flag: whether XLA's scheduler gets measured costs (PGLE)"""


def _size(value: str) -> float:
    """Numeric order; unset values come first."""
    try:
        return float(value)
    except ValueError:
        return -math.inf


@dataclass(frozen=True)
class Knob:
    """A flag or variable and its values; the first is the default."""

    name: str
    values: tuple[str, ...]
    why: str
    """one sentence: what it affects in this program"""
    seen_by: SeenBy = "program"
    """what distinguishes its values: the compiled program, its simulation (how it is launched), or
    only a measurement"""
    is_ordered: bool = False

    @property
    def default(self) -> str:
        return self.values[0]

    @property
    def is_flag(self) -> bool:
        return self.name.startswith("xla_")

    @property
    def is_variable(self) -> bool:
        return not self.is_flag and self.name != COSTS

    @property
    def ordered_values(self) -> tuple[str, ...]:
        """The values in search order: ordered knobs by size."""
        if not self.is_ordered:
            return self.values
        return tuple(sorted(self.values, key=_size))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "values": list(self.values),
            "why": self.why,
            "seen_by": self.seen_by,
            "is_ordered": self.is_ordered,
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Knob:
        return Knob(
            data["name"], tuple(data["values"]), data["why"], data["seen_by"], data["is_ordered"]
        )

"""A cost table: microseconds per instruction, by program, and where they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from slipstream.errors import BadInput
from slipstream.inline import Inline

MOST_US = 86_400_000_000
"""the longest cost that is believed: a day"""
SEPARATOR = "::"
"""between fingerprint and name, in files with several programs"""


@dataclass(frozen=True)
class Cost:
    """The cost of one execution of an instruction."""

    name: str
    """the name under which XLA's scheduler looks it up"""
    us: float
    executions: int | None = None
    """number of executions behind the figure; None if unknown"""
    is_communication: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.us <= MOST_US:  # not a number, too
            raise BadInput(
                f"the cost of {self.name} is {self.us:g} µs; expected 0 to {MOST_US:,} µs (a day)"
            )


@dataclass(frozen=True)
class ProgramCosts:
    """The costs of one program's instructions, by name."""

    fingerprint: str | None
    """XLA's `fingerprint_before_lhs`; None for costs that apply to any program"""
    program: str
    costs: Mapping[str, Cost]
    is_bound: bool = False
    """whether XLA uses them for this fingerprint only: prefixed names, or a file in a folder"""
    looked_up: frozenset[str] | None = None
    """the names that the scheduler looks up, if the program is known"""

    @property
    def total_us(self) -> float:
        return sum(cost.us for cost in self.costs.values())


@dataclass(frozen=True)
class CostTable(Inline):
    """Costs of one or more programs, with the facts that decide whether they still fit."""

    programs: tuple[ProgramCosts, ...]
    policy: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)
    """versions, device, flags, sources and date of the recordings, as in the manifest"""

    def __len__(self) -> int:
        return sum(len(program.costs) for program in self.programs)

    @property
    def is_useful(self) -> bool:
        """Whether XLA would find any of the costs, as far as the programs are known."""
        programs = self.programs
        return any(p.looked_up is None or p.looked_up & p.costs.keys() for p in programs)

    def of(self, fingerprint: str | None) -> Mapping[str, Cost]:
        """The costs that XLA would use for a program: its own, and unbound ones."""
        found: dict[str, Cost] = {}
        for program in self.programs:
            if not program.is_bound or program.fingerprint == fingerprint:
                found |= program.costs
        return found

    def write(self, path: str | os.PathLike[str]) -> list[str]:
        """Write a `.pb`, a `.pbtxt`, or a folder of `<fingerprint>.pb`, with manifests.

        Returns the written files. A table without costs is never written.
        """
        from slipstream.costs.files import write_costs

        return [str(file) for file in write_costs(self, path)]

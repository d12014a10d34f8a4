"""Differences between two cost tables, name by name."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.costs.table import CostTable


@dataclass(frozen=True)
class CostChange:
    """One instruction's cost in two tables; None if missing."""

    program: str
    name: str
    before_us: float | None
    after_us: float | None

    @property
    def change_us(self) -> float:
        return (self.after_us or 0.0) - (self.before_us or 0.0)


@dataclass(frozen=True)
class CostDiff:
    """Changes, the largest first."""

    changes: tuple[CostChange, ...]
    same: int
    """names whose costs are equal, within one part in a million"""


def diff_costs(before: CostTable, after: CostTable) -> CostDiff:
    """Compare two tables; programs are paired by fingerprint."""
    changes, same = [], 0
    for program, one, other in _pairs(before, after):
        for name in dict.fromkeys((*one, *other)):
            old, new = one.get(name), other.get(name)
            if old is not None and new is not None and abs(new - old) <= 1e-6 * max(old, new):
                same += 1
            else:
                changes.append(CostChange(program, name, old, new))
    return CostDiff(tuple(sorted(changes, key=lambda c: (-abs(c.change_us), c.name))), same)


Costs = dict[str, float]


def _pairs(before: CostTable, after: CostTable) -> list[tuple[str, Costs, Costs]]:
    """(program, costs before, costs after); without fingerprints, one pair of all costs."""
    if len(before.programs) == len(after.programs) == 1:
        name = after.programs[0].program
        return [(name, _costs(before, None), _costs(after, None))]
    keys = dict.fromkeys(p.fingerprint for p in (*before.programs, *after.programs))
    if None in keys:
        return [("any program", _costs(before, None), _costs(after, None))]
    return [(str(key), _costs(before, key), _costs(after, key)) for key in keys]


def _costs(table: CostTable, fingerprint: str | None) -> Costs:
    return {
        cost.name: cost.us
        for program in table.programs
        if fingerprint is None or program.fingerprint == fingerprint
        for cost in program.costs.values()
    }

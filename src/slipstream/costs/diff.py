"""Two cost tables compared, name by name."""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.costs.table import CostTable


@dataclass(frozen=True)
class CostChange:
    """One instruction's cost in two tables; None where a table has none."""

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
    """names whose cost is within a part in a million"""


def diff_costs(before: CostTable, after: CostTable) -> CostDiff:
    """What changed from one table to another; programs are paired by fingerprint."""
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
    """(program, costs before, costs after); costs of no certain program are compared with all."""
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

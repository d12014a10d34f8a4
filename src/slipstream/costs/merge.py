"""Several cost tables merged into one: more runs, or more hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput


def merge_costs(tables: Sequence[CostTable]) -> CostTable:
    """Merge the costs of several recordings of the same programs.

    Programs are paired by fingerprint. The tables' policy decides how costs are combined: hosts
    wait for each other in collectives, so `typical` takes the minimum there.
    """
    policies = sorted({table.policy for table in tables})
    if len(policies) > 1:
        raise BadInput(
            f"these costs were extracted with different policies ({', '.join(policies)}) and can't "
            "be merged; extract them again with the same --policy"
        )
    grouped: dict[str, list[ProgramCosts]] = {}
    for table in tables:
        for program in table.programs:
            grouped.setdefault(program.fingerprint or program.program, []).append(program)
    _refuse_unrelated(tables, grouped)
    programs = [_merged(parts, policies[0]) for parts in grouped.values()]
    bound = len(programs) > 1
    programs = [replace(p, is_bound=bound and p.fingerprint is not None) for p in programs]
    return CostTable(tuple(programs), policies[0], _facts(tables))


def _refuse_unrelated(tables: Sequence[CostTable], grouped: dict[str, list[ProgramCosts]]) -> None:
    """BadInput if the tables have no program and no instruction in common."""
    if len(tables) < 2 or any(len(parts) > 1 for parts in grouped.values()):
        return
    names = [set().union(*(p.costs for p in table.programs)) for table in tables]
    if not set.intersection(*names):
        raise BadInput(
            "these costs have no program and no instruction in common: "
            + ", ".join(sorted(grouped))
            + "; merge costs of the same program, or write each to one folder"
        )


def _merged(parts: Sequence[ProgramCosts], policy: str) -> ProgramCosts:
    names = dict.fromkeys(name for part in parts for name in part.costs)
    costs = {n: _joined([p.costs[n] for p in parts if n in p.costs], policy) for n in names}
    looked_up = next((part.looked_up for part in parts if part.looked_up is not None), None)
    return ProgramCosts(parts[0].fingerprint, parts[0].program, costs, looked_up=looked_up)


def _joined(costs: Sequence[Cost], policy: str) -> Cost:
    values = np.array([cost.us for cost in costs])
    weights = np.array([cost.executions or 1 for cost in costs])
    communicates = any(cost.is_communication for cost in costs)
    if policy == "jax":
        us = float(np.average(values, weights=weights))
    elif policy == "max-communication":
        us = float(values.max() if communicates else values.min())
    elif communicates and policy == "typical":
        us = float(values.min())
    else:
        us = float(np.median(values))
    counted = [cost.executions for cost in costs if cost.executions is not None]
    return Cost(costs[0].name, us, sum(counted) if counted else None, communicates)


def _facts(tables: Sequence[CostTable]) -> dict[str, object]:
    """The first table's facts, with the sources of all; conflicting facts become None."""
    facts = dict(tables[0].facts)
    for table in tables[1:]:
        for key in list(facts):
            if key not in ("sources", "date", "topology") and table.facts.get(key) != facts[key]:
                facts[key] = None
    sources: list[object] = []
    for table in tables:
        stated = table.facts.get("sources")
        sources += stated if isinstance(stated, list) else []
    return facts | {"sources": sources}

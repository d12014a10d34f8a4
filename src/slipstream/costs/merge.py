"""Several cost tables merged into one: more runs, or more hosts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput

Numbers = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class CostColumns:
    """The costs of one program as columns: there may be many ranks times many instructions."""

    names: Sequence[str]
    us: Numbers
    executions: Numbers
    """NaN if unknown"""
    is_communication: Flags

    @staticmethod
    def of(part: ProgramCosts) -> CostColumns:
        costs = part.costs.values()
        executions = [np.nan if cost.executions is None else cost.executions for cost in costs]
        return CostColumns(
            tuple(part.costs),
            np.array([cost.us for cost in costs], np.float64),
            np.array(executions, np.float64),
            np.array([cost.is_communication for cost in costs], np.bool_),
        )

    def costs(self) -> dict[str, Cost]:
        columns = (self.us, self.executions, self.is_communication)
        rows = zip(self.names, *(column.tolist() for column in columns), strict=True)
        return {
            name: Cost(
                name, us, None if executions != executions else int(executions), is_communication
            )
            for name, us, executions, is_communication in rows
        }


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
    return CostTable(tuple(programs), policies[0], merge_facts([table.facts for table in tables]))


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
    merged = merge_columns([CostColumns.of(part) for part in parts], policy)
    looked_up = next((part.looked_up for part in parts if part.looked_up is not None), None)
    return ProgramCosts(parts[0].fingerprint, parts[0].program, merged.costs(), looked_up=looked_up)


def merge_columns(parts: Sequence[CostColumns], policy: str) -> CostColumns:
    """Merge the costs of one program from several recordings."""
    names = list(dict.fromkeys(name for part in parts for name in part.names))
    index = {name: column for column, name in enumerate(names)}
    # A row for each part; NaN where it has no cost of that name, or no count of executions.
    us = np.full((len(parts), len(names)), np.nan)
    executions = us.copy()
    is_communication = np.zeros(len(names), np.bool_)
    for row, part in enumerate(parts):
        columns = [index[name] for name in part.names]
        us[row, columns] = part.us
        executions[row, columns] = part.executions
        is_communication[columns] |= part.is_communication
    is_counted = ~np.isnan(executions).all(axis=0)
    counts = np.where(is_counted, np.nansum(executions, axis=0), np.nan)
    joined = _joined(us, executions, is_communication, policy)
    return CostColumns(names, joined, counts, is_communication)


def _joined(us: Numbers, executions: Numbers, communicates: Flags, policy: str) -> Numbers:
    """The cost of each column, by the policy."""
    if policy == "jax":
        # A cost without a count is one execution.
        weights = np.where(executions > 0, executions, 1.0) * ~np.isnan(us)
        means: Numbers = (np.nan_to_num(us) * weights).sum(axis=0) / weights.sum(axis=0)
        return means
    least: Numbers = np.nanmin(us, axis=0)
    if policy == "max-communication":
        return np.where(communicates, np.nanmax(us, axis=0), least)
    # `nanmedian` takes twenty times as long.
    middle: Numbers = np.nanmedian(us, axis=0) if np.isnan(us).any() else np.median(us, axis=0)
    return np.where(communicates, least, middle) if policy == "typical" else middle


def merge_facts(facts: Sequence[Mapping[str, object]]) -> dict[str, object]:
    """The first table's facts, with the sources of all; conflicting facts become None."""
    merged = dict(facts[0])
    for others in facts[1:]:
        for key in list(merged):
            if key not in ("sources", "date", "topology") and others.get(key) != merged[key]:
                merged[key] = None
    sources: list[object] = []
    for each in facts:
        stated = each.get("sources")
        sources += stated if isinstance(stated, list) else []
    return merged | {"sources": sources}

"""Costs extracted from a profile."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from slipstream.costs.measure import measure
from slipstream.costs.policies import policy_named
from slipstream.costs.scheduler_names import is_clone, looked_up, lookup_name, never_run
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.remote.paths import any_path


@dataclass(frozen=True)
class Figure:
    """One instruction's cost, as measured."""

    program: str
    name: str
    """under which XLA's scheduler looks it up"""
    us: float
    executions: int
    is_communication: bool
    is_clone: bool
    """whether it is a rematerialised clone of the instruction with that name"""


@dataclass(frozen=True)
class ProgramFacts:
    """What a cost table says about a program."""

    fingerprint: str | None
    never_run: tuple[str, ...]
    """names that are looked up although they run nothing"""
    looked_up: frozenset[str]


def extract_costs(profile: Profile, policy: str = "typical") -> CostTable:
    """The cost of each instruction, by program: the sum of its kernels, reduced by the policy.

    See `costs.policies` for the policies.
    """
    labels = label_times(profile) if policy == "jax" else None
    figures = _figures(profile, policy) if policy != "jax" else ()
    facts = cost_facts(profile)
    return cost_table(figures, program_facts(profile), policy, facts, labels, _why(profile))


def cost_table(
    figures: Iterable[Figure],
    programs: Mapping[str, ProgramFacts],
    policy: str,
    facts: Mapping[str, object],
    labels: Mapping[str, tuple[int, float]] | None = None,
    why_empty: str = "",
) -> CostTable:
    """A table of measured figures; with the policy `jax`, of labels: (events, time in µs)."""
    found = _as_jax(labels or {}, programs) if policy == "jax" else _by_program(figures, programs)
    table = CostTable(tuple(found), policy, facts)
    if not len(table):
        raise BadInput(
            "the profile has no events that belong to an instruction, so it contains no costs"
            f"{why_empty}"
        )
    return table


def _figures(profile: Profile, policy: str) -> Iterator[Figure]:
    statistic = policy_named(policy)
    for measured in measure(profile):
        program = profile.programs.get(measured.program)
        name = measured.instruction
        yield Figure(
            measured.program,
            lookup_name(program, name) if program is not None else name,
            statistic(measured),
            measured.us.size,
            measured.is_communication,
            is_clone(name),
        )


def _by_program(figures: Iterable[Figure], about: Mapping[str, ProgramFacts]) -> list[ProgramCosts]:
    found: dict[str, dict[str, Cost]] = {}
    for one in figures:
        costs = found.setdefault(one.program, {})
        cost = Cost(one.name, one.us, one.executions, one.is_communication)
        costs[one.name] = _joined(costs.get(one.name), cost, one.is_clone)
    programs = []
    for name, costs in found.items():
        facts = about.get(name)
        for asked_as in facts.never_run if facts else ():
            costs.setdefault(asked_as, Cost(asked_as, 0.0, 0))
        fingerprint = facts.fingerprint if facts else None
        bound = len(found) > 1 and fingerprint is not None
        looked_up = facts.looked_up if facts else None
        programs.append(ProgramCosts(fingerprint, name, costs, bound, looked_up))
    return sorted(programs, key=lambda program: -program.total_us)


def program_facts(profile: Profile) -> dict[str, ProgramFacts]:
    """What tables say about the programs that ran, of those that the profile holds."""
    return {
        name: _program_facts(profile.programs[name])
        for name in sorted(_used_programs(profile))
        if name in profile.programs
    }


def _program_facts(program: Program) -> ProgramFacts:
    names = tuple(one.scheduling_name or one.name for one in never_run(program))
    return ProgramFacts(program.fingerprint, names, _asked(program))


def _joined(before: Cost | None, cost: Cost, is_another_execution: bool) -> Cost:
    """The combined cost of instructions that share a name.

    A rematerialised clone is another execution, so costs are averaged; other instructions with the
    same name are parts that later passes split it into, so costs are added.
    """
    if before is None:
        return cost
    if not is_another_execution:
        return replace(cost, us=before.us + cost.us)
    counts = (before.executions or 1, cost.executions or 1)
    mean = (before.us * counts[0] + cost.us * counts[1]) / sum(counts)
    return replace(cost, us=mean, executions=sum(counts))


def label_times(profile: Profile) -> dict[str, tuple[int, float]]:
    """Events and their time in µs, over all programs, by label."""
    events = profile.events
    rows = np.flatnonzero((events["op"] != 0) & (events["program"] != 0))
    counts = np.bincount(events["op"][rows])
    sums = np.bincount(events["op"][rows], events["duration_ps"][rows])
    return {
        events.texts[index]: (int(counts[index]), float(sums[index]) / 1e6)
        for index in np.flatnonzero(counts).tolist()
    }


def _as_jax(
    labels: Mapping[str, tuple[int, float]], about: Mapping[str, ProgramFacts]
) -> list[ProgramCosts]:
    """As JAX does it: the mean over all kernels with a label, across programs."""
    costs = {name: Cost(name, us / count, count) for name, (count, us) in labels.items()}
    known = [facts.looked_up for facts in about.values()]
    everything = frozenset[str]().union(*known) if known else None
    return [ProgramCosts(None, "all programs", costs, looked_up=everything)] if costs else []


def _asked(program: Program) -> frozenset[str]:
    """The names that the scheduler looks up, with wrapped operations."""
    names = set()
    for instruction in looked_up(program):
        names |= {instruction.name, instruction.scheduling_name or instruction.name}
        wrapped = program.wrapped(instruction.name) if instruction.is_start else None
        names |= {wrapped.name} if wrapped else set()
    return frozenset(names)


def cost_facts(profile: Profile) -> dict[str, object]:
    """Where the costs come from, and what decides whether they still fit."""
    versions = {k: v for host in profile.hosts for k, v in host.versions.items()}
    models = sorted({device.model for device in profile.devices})
    flags: dict[str, str] = {}
    for name in profile.programs:
        if name in _used_programs(profile):
            flags |= profile.programs[name].flags
    return {
        "jax_version": versions.get("jax_version"),
        "jaxlib_version": versions.get("jaxlib_version"),
        "device": ", ".join(models),
        "topology": {"hosts": len(profile.hosts), "devices": len(profile.devices)},
        "flags": flags,
        "steps": profile.steps.count,
        "step_rule": profile.steps.rule,
        "sources": [_source(host.source) for host in profile.hosts],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _used_programs(profile: Profile) -> set[str]:
    return {profile.events.texts[i] for i in np.unique(profile.runs.program).tolist()}


def _source(path: str) -> dict[str, str]:
    file = any_path(path)
    if not file.is_file():
        return {"name": file.name}
    with open(file, "rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {"name": file.name, "sha256": digest}


def _why(profile: Profile) -> str:
    """The profile's warnings, which usually explain why it is empty."""
    return "".join(f"; {warning.message}" for warning in profile.warnings)

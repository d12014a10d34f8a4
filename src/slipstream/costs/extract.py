"""Costs extracted from a profile."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from slipstream.costs.measure import measure
from slipstream.costs.policies import policy_named
from slipstream.costs.scheduler_names import is_clone, looked_up, lookup_name, never_run
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program


def extract_costs(profile: Profile, policy: str = "typical") -> CostTable:
    """The cost of each instruction, by program: the sum of its kernels, reduced by the policy.

    See `costs.policies` for the policies.
    """
    programs = _as_jax(profile) if policy == "jax" else _by_program(profile, policy)
    table = CostTable(tuple(programs), policy, _facts(profile))
    if not len(table):
        raise BadInput(
            "the profile has no events that belong to an instruction, so it contains no costs"
            f"{_why(profile)}"
        )
    return table


def _by_program(profile: Profile, policy: str) -> list[ProgramCosts]:
    statistic = policy_named(policy)
    found: dict[str, dict[str, Cost]] = {}
    for measured in measure(profile):
        program = profile.programs.get(measured.program)
        name = measured.instruction
        if program is not None:
            name = lookup_name(program, name)
        costs = found.setdefault(measured.program, {})
        cost = Cost(name, statistic(measured), measured.us.size, measured.is_communication)
        costs[name] = _joined(costs.get(name), cost, is_clone(measured.instruction))
    programs = []
    for name, costs in found.items():
        program = profile.programs.get(name)
        fingerprint = program.fingerprint if program else None
        for instruction in never_run(program) if program else ():
            asked_as = instruction.scheduling_name or instruction.name
            costs.setdefault(asked_as, Cost(asked_as, 0.0, 0))
        bound = len(found) > 1 and fingerprint is not None
        programs.append(ProgramCosts(fingerprint, name, costs, bound, _asked(program)))
    return sorted(programs, key=lambda program: -program.total_us)


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


def _as_jax(profile: Profile) -> list[ProgramCosts]:
    """As JAX does it: the mean over all kernels with a label, across programs."""
    events = profile.events
    rows = np.flatnonzero((events["op"] != 0) & (events["program"] != 0))
    counts = np.bincount(events["op"][rows])
    sums = np.bincount(events["op"][rows], events["duration_ps"][rows])
    costs = {}
    for index in np.flatnonzero(counts).tolist():
        name = events.texts[index]
        costs[name] = Cost(name, float(sums[index]) / counts[index] / 1e6, int(counts[index]))
    names = [_asked(profile.programs.get(name)) for name in _used_programs(profile)]
    known = [some for some in names if some is not None]
    everything = frozenset[str]().union(*known) if known else None
    return [ProgramCosts(None, "all programs", costs, looked_up=everything)] if costs else []


def _asked(program: Program | None) -> frozenset[str] | None:
    """The names that the scheduler looks up, with wrapped operations; None without a program."""
    if program is None:
        return None
    names = set()
    for instruction in looked_up(program):
        names |= {instruction.name, instruction.scheduling_name or instruction.name}
        wrapped = program.wrapped(instruction.name) if instruction.is_start else None
        names |= {wrapped.name} if wrapped else set()
    return frozenset(names)


def _facts(profile: Profile) -> dict[str, object]:
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
    file = Path(path)
    if not file.is_file():
        return {"name": file.name}
    with file.open("rb") as opened:
        digest = hashlib.file_digest(opened, "sha256").hexdigest()
    return {"name": file.name, "sha256": digest}


def _why(profile: Profile) -> str:
    """The profile's warnings, which usually explain why it is empty."""
    return "".join(f"; {warning.message}" for warning in profile.warnings)

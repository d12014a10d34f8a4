"""Costs from a cost file or a recording, which also has the program."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from slipstream.costs.extract import extract_costs
from slipstream.costs.files import ENDINGS, read_costs
from slipstream.costs.measure import measure
from slipstream.costs.policies import policy_named
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.remote.paths import any_path


@dataclass(frozen=True)
class RecordedCosts:
    """Costs, and the program that they were measured on, if known."""

    for_scheduler: CostTable
    """under the names that XLA's scheduler looks up"""
    costs: CostTable
    """under the names of instructions, for the simulation"""
    source: Program | None = None


def recorded_costs(path: str, load: Callable[[str], Profile]) -> RecordedCosts:
    """The costs at a path; `load` reads recordings."""
    if is_cost_file(path):
        table = read_costs(path)
        return RecordedCosts(table, table)
    return costs_of(load(path))


def costs_of(profile: Profile, policy: str = "percentile:50") -> RecordedCosts:
    """The costs of a profile's hottest program.

    The scheduler needs a collective's time without late peers; the simulation needs its actual
    time, so it uses the median, including waits for peers.
    """
    name = hottest_name(profile)
    table = extract_costs(profile)
    if name is None:
        return RecordedCosts(table, table)
    return RecordedCosts(table, own_costs(profile, name, policy), profile.programs[name])


def own_costs(profile: Profile, name: str, policy: str = "percentile:50") -> CostTable:
    """The costs of one program's instructions, by instruction."""
    program, statistic = profile.programs[name], policy_named(policy)
    costs = {}
    for measured in measure(profile):
        if measured.program == name and measured.instruction in program:
            start = program.starter(measured.instruction)
            key = start.name if start is not None else measured.instruction
            cost = Cost(key, statistic(measured), measured.us.size, measured.is_communication)
            costs[key] = cost
    return CostTable((ProgramCosts(program.fingerprint, name, costs),), policy)


def hottest_program(profile: Profile) -> Program | None:
    """The program with the most device time, if the profile has it."""
    name = hottest_name(profile)
    return profile.programs[name] if name is not None else None


def hottest_name(profile: Profile) -> str | None:
    """The name of the hottest program, as in the events."""
    runs = profile.runs
    times = np.bincount(runs.program, runs.busy_ps, 1)
    for index in np.argsort(-times).tolist():
        name: str = profile.events.texts[index]
        if name in profile.programs and times[index]:
            return name
    return None


def is_cost_file(path: str) -> bool:
    """Whether a path is a cost file, or a folder of cost files, as XLA reads them."""
    file = any_path(path)
    if file.is_dir():
        names = [entry.name for entry in file.iterdir() if entry.suffix in ENDINGS]
        return bool(names) and not any(name.endswith(".xplane.pb") for name in names)
    return file.suffix in ENDINGS and not file.name.endswith(".xplane.pb")

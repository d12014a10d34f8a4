"""Costs from wherever they are: a cost file, or a recording, which also has the program.

From a recording the simulation takes less than XLA's scheduler does.  Where the next kernel of a
stream is launched before the one before it ends (programmatic dependent launch), both are on the
device for a while, and the time counts once:

kernel 1  ██████████
kernel 2        ░░░░████████      costs what it adds
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from slipstream.costs.extract import extract_costs
from slipstream.costs.files import ENDINGS, read_costs
from slipstream.costs.measure import measure
from slipstream.costs.policies import policy_named
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program


@dataclass(frozen=True)
class RecordedCosts:
    """Costs, and the program that they were measured on where it is known."""

    for_scheduler: CostTable
    """by the names that XLA's scheduler looks up"""
    costs: CostTable
    """by the names of instructions: what the simulation takes"""
    source: Program | None = None


def recorded_costs(path: str, load: Callable[[str], Profile]) -> RecordedCosts:
    """The costs at a path; `load` reads it where it is a recording."""
    if is_cost_file(path):
        table = read_costs(path)
        return RecordedCosts(table, table)
    return costs_of(load(path))


def costs_of(profile: Profile, policy: str = "percentile:50") -> RecordedCosts:
    """The costs of a profile's hottest program.

    The scheduler wants what a collective takes if nobody is late; a step takes what it took, so
    the simulation goes by the median, waits for peers included.
    """
    program = hottest_program(profile)
    table = extract_costs(profile)
    if program is None:
        return RecordedCosts(table, table)
    return RecordedCosts(table, _own_costs(profile, program, policy), program)


def _own_costs(profile: Profile, program: Program, policy: str) -> CostTable:
    name, statistic = f"{program.name}({program.program_id})", policy_named(policy)
    costs = {}
    for measured in measure(without_overlap(profile)):
        if measured.program == name and measured.instruction in program:
            start = program.starter(measured.instruction)
            key = start.name if start is not None else measured.instruction
            cost = Cost(key, statistic(measured), measured.us.size, measured.is_communication)
            costs[key] = cost
    return CostTable((ProgramCosts(program.fingerprint, name, costs),), policy)


def without_overlap(profile: Profile) -> Profile:
    """Events of a stream one after the other: each from where the one before it ends."""
    events = profile.events
    start, duration = events["start_ps"].copy(), events["duration_ps"].copy()
    for lane, about in enumerate(profile.lanes):
        rows = np.flatnonzero(events["lane"] == lane)
        if about.role != "stream" or not len(rows):
            continue
        rows = rows[np.argsort(start[rows], kind="stable")]
        end = start[rows] + duration[rows]
        begin = start[rows].copy()
        begin[1:] = np.maximum(begin[1:], np.maximum.accumulate(end)[:-1])
        start[rows] = np.minimum(begin, np.maximum.accumulate(end))
        duration[rows] = np.maximum(end - begin, 0)
    return profile.with_events(events.replace(start_ps=start, duration_ps=duration))


def hottest_program(profile: Profile) -> Program | None:
    """The program that took the most device time, where the profile has it."""
    runs = profile.runs
    times = np.bincount(runs.program, runs.busy_ps, 1)
    for index in np.argsort(-times).tolist():
        program = profile.programs.get(profile.events.texts[index])
        if program is not None and times[index]:
            return program
    return None


def is_cost_file(path: str) -> bool:
    """Whether a path names costs as XLA reads them: by its ending, or by what a folder holds."""
    file = Path(path)
    if file.is_dir():
        names = [entry.name for entry in file.iterdir() if entry.suffix in ENDINGS]
        return bool(names) and not any(name.endswith(".xplane.pb") for name in names)
    return file.suffix in ENDINGS and not file.name.endswith(".xplane.pb")

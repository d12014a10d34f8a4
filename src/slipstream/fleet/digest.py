"""A digest: what a fleet needs of one recording, small enough to keep for each of hundreds.

    recording ──► Profile (millions of events) ──► Digest
                                                     steps, and how each was spent
                                                     ops and programs, summed
                                                     collectives: when each began and ended
                                                     costs: durations by instruction

Step times, ops and collectives are exact. A digest keeps all collectives of a host up to
`MOST_COLLECTIVES`; of a longer recording those of every 2nd, 4th, 8th … step, by step number, so
that all hosts keep the same ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from slipstream.analyses.ops import Ops, ops
from slipstream.analyses.skew import candidates
from slipstream.analyses.summary import (
    DeviceSummary,
    ProgramSummary,
    device_summaries,
    programs,
    step_splits,
)
from slipstream.costs.host_costs import HostCosts, host_costs
from slipstream.profile.events import (
    EVENT_COLUMNS,
    HOST_COLUMNS,
    Array,
    Table,
    Texts,
    distinct,
    median,
)
from slipstream.profile.one_run import Recorded
from slipstream.profile.profile import Profile, Programs
from slipstream.profile.timeline.kinds import COMMUNICATION, kinds
from slipstream.profile.timeline.runs import Runs
from slipstream.profile.timeline.steps import Steps, averaged_over

MOST_COLLECTIVES = 8_192
"""events of collectives that are kept of one recording"""
_KEPT = ("start_ps", "duration_ps", "lane", "program", "instruction", "name", "execution")
"""columns of these events"""


@dataclass(frozen=True)
class HostSums:
    """What is added up over hosts."""

    ops: Ops
    programs: tuple[ProgramSummary, ...]
    averaged_over: int
    """steps of devices, of which per-step figures are means"""
    costs: HostCosts | None
    """None if not asked for"""


@dataclass(frozen=True, eq=False)
class Digest:
    """One recording, reduced."""

    profile: Profile
    """its hosts, devices and collectives; without programs and other events"""
    rows: Array
    """where those collectives are in the whole recording"""
    comparable: Array
    """which of them can be matched with other devices"""
    notes: tuple[str, ...]
    """sentences: what can't be matched, and why"""
    recorded: Recorded
    steps: Steps
    runs: Runs
    """with indices of texts of `profile.events`"""
    splits: Array
    """of each step, as `step_splits` returns them"""
    devices: tuple[DeviceSummary, ...]
    hashes: dict[str, str]
    """content of each program that ran; empty where the recording has no copy"""
    sums: HostSums | None
    """None once they are part of the run's"""

    @property
    def has_steps(self) -> bool:
        return self.steps.basis != "recording"

    @property
    def step_us(self) -> float:
        """The median step of its devices."""
        return float(median(self.splits[:, 0])) / 1e6 if len(self.splits) else 0.0

    @property
    def source(self) -> str:
        return self.recorded.source


def digest(profile: Profile, with_costs: bool = False) -> Digest:
    """Reduce the profile of one recording."""
    matching, notes = candidates(profile)
    rows = np.flatnonzero(kinds(profile) == COMMUNICATION)
    rows, kept_steps = _thinned(profile, rows)
    if kept_steps:
        notes.append(kept_steps)
    events, runs = _slim(profile, rows)
    slim = replace(
        profile,
        events=events,
        host_events=Table.empty(HOST_COLUMNS),
        transfers=_one_transfer(profile),
        programs=Programs(),
    )
    return Digest(
        slim,
        rows.astype(np.int32),
        np.isin(rows, matching),
        tuple(notes),
        Recorded.of(profile),
        profile.steps,
        runs,
        step_splits(profile),
        device_summaries(profile),
        _hashes(profile),
        HostSums(
            ops(profile),
            programs(profile),
            averaged_over(profile, profile.steps.basis == "recording"),
            host_costs(profile) if with_costs else None,
        ),
    )


def _thinned(profile: Profile, rows: Array) -> tuple[Array, str]:
    """Rows of every 2nd, 4th, … step if there are too many, and a sentence that says so."""
    if len(rows) <= MOST_COLLECTIVES:
        return rows, ""
    steps, every = profile.steps, 2
    while len(rows) > every * MOST_COLLECTIVES:
        every *= 2
    why = f"there are more than {MOST_COLLECTIVES:,} in a recording"
    if every > steps.count:
        order = np.argsort(profile.events.cells("start_ps", rows), kind="stable")
        first = np.sort(rows[order[:MOST_COLLECTIVES]])
        return first, f"only the first {MOST_COLLECTIVES:,} collectives were compared: {why}"
    numbers = np.append(steps.number, -1)[steps.of_events(profile)[rows]]
    return (
        rows[numbers % every == 0],
        f"collectives were compared in one of {every} steps: {why}",
    )


def _slim(profile: Profile, rows: Array) -> tuple[Table, Runs]:
    """The events in these rows and all executions, with only the texts that they use."""
    table, runs = profile.events, profile.runs
    texts = Texts()
    columns = tuple(column for column in EVENT_COLUMNS if column.name in _KEPT)
    arrays = {}
    for column in columns:
        values = table.cells(column.name, rows)
        arrays[column.name] = _interned(table, values, texts) if column.text else values
    runs = replace(runs, program=_interned(table, runs.program, texts))
    return Table(columns, arrays, texts.values), runs


def _interned(table: Table, values: Array, texts: Texts) -> Array:
    used = distinct(values)
    index = texts.map([table.texts[i] for i in used.tolist()])
    return index[np.searchsorted(used, values)] if len(used) else values


def _one_transfer(profile: Profile) -> Table:
    """A transfer that shows the slice of the host, if Megascale recorded one."""
    transfers = profile.transfers
    known = np.flatnonzero(transfers["has_ids"])
    if not len(known):
        return Table.empty(transfers.columns)
    slices = transfers["destination_slice"][known]
    row = known[slices == np.bincount(slices).argmax()][:1]
    found = transfers.take(row)
    texts = Texts()
    named = {c.name: _interned(found, found[c.name], texts) for c in transfers.columns if c.text}
    return found.replace(texts.values, **named)


def _hashes(profile: Profile) -> dict[str, str]:
    used = (profile.events.texts[i] for i in distinct(profile.runs.program).tolist())
    found = {}
    for name in used:
        program = profile.programs.get(name)
        found[name] = program.content_hash if program is not None else ""
    return found

"""Costs of a run whose hosts are read one after the other.

    host 0 ── measure ── HostCosts ─┐
    host 1 ── measure ── HostCosts ─┼─► FleetCosts ── policy ──► CostTable
    host 2 ── measure ── HostCosts ─┘

The table is that of `extract_costs` on one profile of all hosts, within the rounding of
`Durations`. Where hosts recorded different numbers of runs, a collective's participants are
matched by their starts within a host, and then between hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from slipstream.costs.durations import Durations
from slipstream.costs.extract import (
    Figure,
    ProgramFacts,
    cost_facts,
    cost_table,
    label_times,
    program_facts,
)
from slipstream.costs.measure import Measured, measure
from slipstream.costs.policies import fastest_participants, index_of_percentile, policy_named
from slipstream.costs.scheduler_names import is_clone, lookup_name
from slipstream.costs.table import CostTable
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile


@dataclass
class Fastest:
    """A collective's executions on the participant that waited least."""

    start_ps: Array
    """start of each run"""
    us: Array
    """one row per run, one column per execution within the run"""

    def merged(self, other: Fastest) -> Fastest:
        """The shorter time of each execution; runs are paired by number, or else by start."""
        if other.us.shape == self.us.shape:
            return Fastest(self.start_ps, np.minimum(self.us, other.us))
        if not len(other.us) or other.us.shape[1:] != self.us.shape[1:]:
            return self
        least = self.us.copy()
        apart = np.abs(self.start_ps[None, :] - other.start_ps[:, None])
        np.minimum.at(least, apart.argmin(axis=1), other.us)
        return Fastest(self.start_ps, least)


@dataclass
class InstructionTimes:
    """The executions of one instruction."""

    name: str
    """under which XLA's scheduler looks it up"""
    is_clone: bool
    is_communication: bool
    durations: Durations
    fastest: Fastest | None = None

    def figure(self, program: str, policy: str) -> Figure:
        count = len(self.durations)
        return Figure(
            program, self.name, self._us(policy), count, self.is_communication, self.is_clone
        )

    def _us(self, policy: str) -> float:
        if policy == "max-communication":
            return self.durations.most if self.is_communication else self.durations.least
        if policy == "typical":
            if self.fastest is not None:
                return float(np.median(self.fastest.us))
            return self.durations.median
        number = int(policy.partition(":")[2])
        return self.durations.at(index_of_percentile(number, len(self.durations)))


Key = tuple[str, str]
"""program, instruction"""


@dataclass(frozen=True)
class HostCosts:
    """What the costs of a run need of one host."""

    times: Mapping[Key, InstructionTimes]
    labels: Mapping[str, tuple[int, float]]
    """events and their time in µs by label, as JAX's own extractor sees them"""
    programs: Mapping[str, ProgramFacts]
    facts: Mapping[str, object]


def host_costs(profile: Profile) -> HostCosts:
    """The durations of every instruction of a host."""
    times = {}
    for measured in measure(profile):
        times[measured.program, measured.instruction] = _times(profile, measured)
    return HostCosts(times, label_times(profile), program_facts(profile), cost_facts(profile))


def _times(profile: Profile, measured: Measured) -> InstructionTimes:
    program, name = profile.programs.get(measured.program), measured.instruction
    fastest = None
    if measured.is_communication:
        first = measured.device == measured.device.min()
        fastest = Fastest(measured.start_ps[first], fastest_participants(measured))
    return InstructionTimes(
        lookup_name(program, name) if program is not None else name,
        is_clone(name),
        measured.is_communication,
        Durations(measured.us),
        fastest,
    )


ProgramKey = tuple[str, str]
"""name and content of a program"""
FleetKey = tuple[ProgramKey, str]
"""program, instruction"""


@dataclass
class FleetCosts:
    """Costs of all hosts, in memory that does not grow with their number."""

    times: dict[FleetKey, InstructionTimes] = field(default_factory=dict)
    labels: dict[str, tuple[int, float]] = field(default_factory=dict)
    programs: dict[ProgramKey, ProgramFacts] = field(default_factory=dict)
    facts: dict[int, Mapping[str, object]] = field(default_factory=dict)
    """by the host's place in the run"""
    _by_shape: dict[FleetKey, dict[tuple[int, ...], tuple[int, Fastest]]] = field(
        default_factory=dict
    )
    """hosts with the same number of runs are merged at once, with the first one's starts; the
    others at the end"""

    def add(
        self, place: int, host: HostCosts, keys: Mapping[str, ProgramKey], shift_ps: int = 0
    ) -> None:
        """Add a host: its place in the run, its programs by name, and how far to move its clock."""
        for (program, instruction), one in host.times.items():
            self._add((keys[program], instruction), one, place, shift_ps)
        for label, (count, us) in host.labels.items():
            before = self.labels.get(label, (0, 0.0))
            self.labels[label] = (before[0] + count, before[1] + us)
        for name, facts in host.programs.items():
            self.programs.setdefault(keys[name], facts)
        self.facts[place] = host.facts

    def _add(self, key: FleetKey, one: InstructionTimes, place: int, shift_ps: int) -> None:
        if one.fastest is not None:
            self._meet(key, place, replace(one.fastest, start_ps=one.fastest.start_ps + shift_ps))
        if key not in self.times:
            self.times[key] = replace(one, fastest=None)
            return
        known = self.times[key]
        known.durations.add(one.durations)
        known.is_communication |= one.is_communication

    def _meet(self, key: FleetKey, place: int, own: Fastest) -> None:
        shapes = self._by_shape.setdefault(key, {})
        first, before = shapes.get(own.us.shape, (place, own))
        if place < first:
            first, own, before = place, before, own
        shapes[own.us.shape] = (first, before.merged(own))

    def table(
        self, policy: str, names: Mapping[ProgramKey, str], facts: Mapping[str, object]
    ) -> CostTable:
        """The costs by a policy, with programs under their names in the run, and its facts."""
        about = {names[key]: one for key, one in self.programs.items()}
        if policy == "jax":
            return cost_table((), about, policy, facts, self.labels)
        policy_named(policy)  # refuses unknown ones
        figures = [self._complete(key).figure(names[key[0]], policy) for key in self._ordered()]
        return cost_table(figures, about, policy, facts)

    def _ordered(self) -> list[FleetKey]:
        """Clones after what they are clones of, whichever host came first."""
        return sorted(self.times, key=lambda key: (key[0], self.times[key].is_clone, key[1]))

    def _complete(self, key: FleetKey) -> InstructionTimes:
        met = sorted(self._by_shape.get(key, {}).values(), key=lambda found: found[0])
        fastest = met[0][1] if met else None
        for _, other in met[1:]:
            fastest = fastest.merged(other) if fastest is not None else None
        return replace(self.times[key], fastest=fastest)

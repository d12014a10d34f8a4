"""Which communication and copies are exposed, and which compute hides the others.

compute       ████████      ████
all-gather.1      ██████████            hidden by the two kernels, exposed between them
exposed               ░░░░░░

A collective is exposed while nothing computes; a copy, while nothing computes or communicates.
Where two collectives run at once, the time counts for each of them, but only once for the step.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from slipstream.analyses.exposures import Exposures, exposures, serialized_compute
from slipstream.analyses.labels import Label, bytes_of, found_instruction, label
from slipstream.analyses.op_groups import grouped, layer_key
from slipstream.analyses.summary import StepTimes, median_times, step_splits
from slipstream.inline import Inline
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.semantics.layers import rolled_description, rolled_scope
from slipstream.profile.semantics.names import PHASES
from slipstream.profile.timeline.concurrency import TOP, Grouped, longest_overlaps
from slipstream.profile.timeline.kinds import COMMUNICATION, COPY
from slipstream.profile.timeline.steps import averaged_over
from slipstream.profile.timeline.windows import attending

KINDS = {COMMUNICATION: "communication", COPY: "copy"}


@dataclass(frozen=True)
class Hider:
    """Compute that hid a part of a collective or copy."""

    instruction: str
    per_step_us: float
    """time in which both ran, mean per step"""
    source: str = ""
    description: str = ""


@dataclass(frozen=True)
class Overlapped:
    """One collective or copy."""

    program: str
    instruction: str
    kind: str
    """`communication` or `copy`"""
    count: int
    """events, over all steps and devices"""
    bytes: int | None
    """of one execution"""
    per_step_us: float
    """device time, mean over steps and devices; so are the next two"""
    exposed_us: float
    hidden_us: float
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""
    hidden_by: tuple[Hider, ...] = ()
    per_step_count: float = 0.0
    """`count`, mean over steps and devices"""

    @property
    def hidden_share(self) -> float:
        return self.hidden_us / self.per_step_us if self.per_step_us else 0.0


@dataclass(frozen=True)
class OverlappedGroup(Overlapped):
    """Equal collectives or copies of unrolled layers: of the same size, phase and source line.

    `instruction` is the most exposed of them; times and counts are sums. `hidden_by` has equal
    kernels as one, too, each the sum over those that hid one of the members longest.
    """

    instructions: tuple[str, ...] = ()
    """all of them, the most exposed first"""


@dataclass(frozen=True)
class StepOverlap:
    """One step of one device."""

    device: str
    host: str
    number: int
    wall_us: float
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float


@dataclass(frozen=True)
class PhaseOverlap:
    """One phase of a step: mean per step, summed over its instructions."""

    phase: str
    communication_us: float
    exposed_communication_us: float
    copy_us: float
    exposed_copy_us: float


@dataclass(frozen=True)
class Overlap(Inline):
    """Exposed and hidden communication and copies."""

    steps: int
    """number of steps the times cover; 0 if the whole recording was counted"""
    per_step: StepTimes
    """the median step, as in the summary"""
    by_step: tuple[StepOverlap, ...]
    phases: tuple[PhaseOverlap, ...]
    ops: tuple[Overlapped, ...]
    """collectives and copies, the most exposed first"""

    @cached_property
    def groups(self) -> tuple[OverlappedGroup, ...]:
        """The ops with equal ones as one, the most exposed first."""
        return tuple(sorted(map(_merged, grouped(self.ops, _equality)), key=_rank))

    @property
    def collectives(self) -> tuple[Overlapped, ...]:
        return tuple(op for op in self.ops if op.kind == "communication")

    @property
    def copies(self) -> tuple[Overlapped, ...]:
        return tuple(op for op in self.ops if op.kind == "copy")


def overlap(profile: Profile, whole: bool = False) -> Overlap:
    """Exposed and hidden time of every collective and copy, in the steps or the whole recording."""
    whole = whole or profile.steps.basis == "recording"
    exposed = exposures(profile, whole)
    exposed = exposed.take(~attending(profile)[exposed.row])
    ops = _ops(profile, exposed, averaged_over(profile, whole))
    splits = step_splits(profile)
    return Overlap(
        0 if whole else profile.steps.count,
        median_times(splits),
        _by_step(profile, splits),
        _phases(ops),
        ops,
    )


# By instruction.


def _ops(profile: Profile, segments: Exposures, steps: int) -> tuple[Overlapped, ...]:
    from slipstream.profile.grouping import group_counts, group_labels, group_sums

    groups, firsts = group_labels(profile.events, segments.row)
    hidden_by = _hiders(profile, segments, groups, steps)
    count = group_counts(groups, len(firsts))
    total = group_sums(groups, segments.duration_ps, len(firsts)) / 1e6 / steps
    exposed = group_sums(groups, segments.exposed_ps, len(firsts)) / 1e6 / steps
    found = []
    for group, first in enumerate(firsts.tolist()):
        named = label(profile, int(segments.row[first]))
        found.append(
            Overlapped(
                program=named.program,
                instruction=named.instruction,
                kind=KINDS[int(segments.kind[first])],
                count=int(count[group]),
                bytes=_bytes(profile, named),
                per_step_us=float(total[group]),
                exposed_us=float(exposed[group]),
                hidden_us=float(total[group] - exposed[group]),
                phase=named.phase,
                category=named.category,
                scope=named.scope,
                source=named.source,
                description=named.description,
                hidden_by=hidden_by.get(group, ()),
                per_step_count=int(count[group]) / steps,
            )
        )
    return tuple(sorted(found, key=_rank))


def _rank(op: Overlapped) -> tuple[float, float, str]:
    return (-op.exposed_us, -op.per_step_us, op.instruction)


def _bytes(profile: Profile, named: Label) -> int | None:
    found = found_instruction(profile, named.program, named.instruction)
    return bytes_of(*found) if found is not None else None


def _hiders(
    profile: Profile, segments: Exposures, groups: Array, steps: int
) -> dict[int, tuple[Hider, ...]]:
    """The kernels that hid each group longest, longest first."""
    compute, heads = serialized_compute(profile)
    devices = profile.event_devices[segments.row]
    ends = segments.start_ps + segments.duration_ps
    best, times = longest_overlaps(Grouped(segments.start_ps, ends, devices, groups), compute)
    names: dict[int, Label] = {}
    found: dict[int, tuple[Hider, ...]] = {}
    for group, (kernels, taken) in enumerate(zip(best.tolist(), times.tolist(), strict=True)):
        listed = []
        for kernel, ps in zip(kernels, taken, strict=True):
            if kernel >= 0:
                named = names.setdefault(kernel, label(profile, int(heads[kernel])))
                us = ps / 1e6 / steps
                listed.append(Hider(named.instruction, us, named.source, named.description))
        found[group] = tuple(listed)
    return found


# Equal ops of unrolled layers.


def _equality(op: Overlapped) -> Hashable:
    if not op.description:
        return (op.program, op.instruction)  # nothing tells what else it equals
    return (*layer_key(op), op.kind, op.category, op.bytes)


def _merged(ops: Sequence[Overlapped]) -> OverlappedGroup:
    """Equal ops as one; they are in order of their ranks."""
    values = {one.name: getattr(ops[0], one.name) for one in fields(Overlapped)}
    values["hidden_by"] = _merged_hiders([one for op in ops for one in op.hidden_by])
    if len(ops) > 1:
        for name in ("count", "per_step_count", "per_step_us", "exposed_us", "hidden_us"):
            values[name] = sum(getattr(op, name) for op in ops)
        values["scope"] = rolled_scope(values["scope"])
        values["description"] = rolled_description(values["description"])
    return OverlappedGroup(**values, instructions=tuple(op.instruction for op in ops))


def _merged_hiders(hiders: Sequence[Hider]) -> tuple[Hider, ...]:
    """Equal kernels as one, the longest first; as many as one op has."""
    found = []
    for same in grouped(hiders, _hider_equality):
        longest = max(same, key=lambda one: one.per_step_us)
        total = sum(one.per_step_us for one in same)
        text = rolled_description(longest.description) if len(same) > 1 else longest.description
        found.append(replace(longest, per_step_us=total, description=text))
    found.sort(key=lambda one: -one.per_step_us)
    return tuple(found[:TOP])


def _hider_equality(hider: Hider) -> Hashable:
    if not hider.description:
        return hider.instruction
    return (hider.source, rolled_description(hider.description))


# By step and by phase.


def _by_step(profile: Profile, splits: Array) -> tuple[StepOverlap, ...]:
    steps = profile.steps
    found = []
    for row, split in enumerate(splits.tolist()):
        device = profile.devices[int(steps.device[row])]
        times = StepTimes(*(ps / 1e6 for ps in split))
        found.append(
            StepOverlap(
                device.name,
                profile.hosts[device.host].name,
                int(steps.number[row]),
                times.wall_us,
                times.communication_us,
                times.exposed_communication_us,
                times.copy_us,
                times.exposed_copy_us,
            )
        )
    return tuple(found)


def _phases(ops: tuple[Overlapped, ...]) -> tuple[PhaseOverlap, ...]:
    found = []
    for phase in PHASES:
        own = [op for op in ops if (op.phase or "other") == phase]
        if own:
            sums = (
                sum(getattr(op, time) for op in own if op.kind == kind)
                for kind in ("communication", "copy")
                for time in ("per_step_us", "exposed_us")
            )
            found.append(PhaseOverlap(phase, *(float(one) for one in sums)))
    return tuple(found)

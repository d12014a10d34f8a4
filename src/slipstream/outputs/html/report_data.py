"""Every result that a report shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from slipstream.analyses.collectives import Collectives, collectives
from slipstream.analyses.diff.diff import Diff, diff
from slipstream.analyses.gaps import Gaps, gaps
from slipstream.analyses.hosts import FleetContext, Hosts, hosts
from slipstream.analyses.layers import LayerExposure, exposed_by_layer
from slipstream.analyses.memory import Memory, memory
from slipstream.analyses.network.network import Network, network
from slipstream.analyses.ops import Ops, ops
from slipstream.analyses.overlap import Overlap, overlap
from slipstream.analyses.roofline import Roofline, roofline
from slipstream.analyses.slack import Slack, slack
from slipstream.analyses.summary import StepTimes, Summary, step_splits, summary
from slipstream.profile.profile import Profile
from slipstream.profile.simulated import is_simulated
from slipstream.results.diagnosis import Diagnosis
from slipstream.results.prediction import Prediction

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Results:
    """The results of every analysis of one profile."""

    profile: Profile
    name: str
    """the file or folder the profile was read from"""
    summary: Summary
    steps: tuple[StepTimes, ...]
    """each step of each device, in the order of `overlap.by_step`"""
    ops: Ops
    overlap: Overlap
    collectives: Collectives
    slack: Slack
    gaps: Gaps
    roofline: Roofline
    network: Network
    memory: Memory
    hosts: Hosts
    layers: tuple[LayerExposure, ...] = ()
    """exposed time of each layer"""
    diagnosis: Diagnosis | None = None
    diff: Diff | None = None
    """from `against` to this profile"""
    against: Summary | None = None
    against_name: str = ""
    predictions: tuple[Prediction, ...] = field(default=())
    detail: str = ""
    """of a fleet: which host everything but summary and hosts is about"""

    @cached_property
    def events(self) -> int:
        """Device events, of all hosts."""
        return sum(device.events for device in self.summary.devices)

    @cached_property
    def is_predicted(self) -> bool:
        return is_simulated(self.profile)


def results(
    profile: Profile,
    name: str = "",
    against: Profile | None = None,
    against_name: str = "",
    diagnosis: Diagnosis | None = None,
    predictions: tuple[Prediction, ...] = (),
    fleet: FleetContext | None = None,
    progress: Progress = lambda stage: None,
) -> Results:
    """Run every analysis of a profile, and compare it with another if given.

    `fleet` is what is known of all hosts, if the profile is of one of them.
    """

    def stage(what: str) -> Profile:
        progress(what)
        return profile

    found = Results(
        profile=profile,
        name=name,
        summary=summary(stage("steps")) if fleet is None else fleet.summary,
        steps=tuple(StepTimes(*(ps / 1e6 for ps in row)) for row in step_splits(profile).tolist()),
        ops=ops(stage("ops")),
        overlap=overlap(stage("overlap")),
        collectives=collectives(stage("collectives"), fleet.met if fleet is not None else None),
        slack=slack(stage("slack")),
        gaps=gaps(stage("idle time")),
        roofline=roofline(stage("roofline")),
        network=network(stage("network")),
        memory=memory(stage("memory")),
        hosts=hosts(stage("hosts")) if fleet is None else fleet.hosts,
        layers=exposed_by_layer(profile),
        diagnosis=diagnosis,
        diff=diff(against, stage("differences")) if against is not None else None,
        against=summary(against) if against is not None else None,
        against_name=against_name,
        predictions=predictions,
        detail=fleet.detail if fleet is not None else "",
    )
    progress("page")
    return found

"""A Profile: what happened on the devices of one run, whatever tool recorded it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from slipstream.inline import Inline
from slipstream.profile.events import EVENT_COLUMNS, HOST_COLUMNS, TRANSFER_COLUMNS, Array, Table

if TYPE_CHECKING:
    from slipstream.profile.program import Program
    from slipstream.profile.timeline.runs import Runs
    from slipstream.profile.timeline.segments import Segments
    from slipstream.profile.timeline.steps import Steps


@dataclass(frozen=True)
class Host:
    """One profiled process: its file, and the software versions it reported."""

    name: str
    source: str
    versions: Mapping[str, str] = field(default_factory=dict)
    start_ns: int | None = None
    """wall-clock time at which profiling began, if recorded"""


@dataclass(frozen=True)
class Device:
    """One GPU, TPU core or XLA:CPU client."""

    name: str
    host: int
    ordinal: int
    kind: str
    """`gpu`, `tpu` or `cpu`"""
    model: str = ""
    properties: Mapping[str, int | float | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Lane:
    """A device stream or a host thread; events on a lane run one after another."""

    name: str
    host: int
    device: int | None
    """index into the profile's devices; None for a host thread"""
    role: str = "stream"
    """`stream`, `ops` (nested operations), `async`, `windows`, `modules`, `steps` or `thread`

    A TPU records asynchronous operations as `windows`: from their start to the end of their done,
    however early they ended in between. A simulation has their own times, on `async` lanes.
    """

    @property
    def is_beside(self) -> bool:
        """Whether it shows asynchronous operations of a TPU, which its cores don't run."""
        return self.role in ("async", "windows")


@dataclass(frozen=True)
class ProfileWarning:
    """A problem with the recording that affects how far its numbers can be trusted."""

    code: str
    message: str


class Programs(Mapping[str, "Program"]):
    """The programs of a profile by `name(id)`; each is read on first access."""

    def __init__(self, readers: Mapping[str, Callable[[], Program]] | None = None) -> None:
        self._readers = dict(readers or {})
        self._read: dict[str, Program] = {}

    def __getitem__(self, name: str) -> Program:
        if name not in self._read:
            self._read[name] = self._readers[name]()
        return self._read[name]

    def __contains__(self, name: object) -> bool:
        return name in self._readers

    def __iter__(self) -> Iterator[str]:
        return iter(self._readers)

    def __len__(self) -> int:
        return len(self._readers)

    def with_others(self, others: Programs) -> Programs:
        return Programs({**self._readers, **others._readers})

    @property
    def readers(self) -> Mapping[str, Callable[[], Program]]:
        return self._readers


@dataclass(frozen=True)
class Profile(Inline):
    """What happened: device events, host events, programs, and warnings about the recording."""

    hosts: tuple[Host, ...]
    devices: tuple[Device, ...]
    lanes: tuple[Lane, ...]
    events: Table = field(default_factory=lambda: Table.empty(EVENT_COLUMNS))
    host_events: Table = field(default_factory=lambda: Table.empty(HOST_COLUMNS))
    transfers: Table = field(default_factory=lambda: Table.empty(TRANSFER_COLUMNS))
    programs: Programs = field(default_factory=Programs)
    warnings: tuple[ProfileWarning, ...] = ()

    def with_events(self, events: Table) -> Profile:
        return replace(self, events=events)

    def with_warnings(self, *warnings: ProfileWarning) -> Profile:
        changed = replace(self, warnings=self.warnings + warnings)
        # Warnings don't change the events, so everything derived from them stays valid.
        for name in (
            "device_of_lane",
            "event_devices",
            "event_kinds",
            "runs",
            "steps",
            "segments",
        ):
            if name in self.__dict__:
                changed.__dict__[name] = self.__dict__[name]
        return changed

    @cached_property
    def device_of_lane(self) -> Array:
        """Device index of each lane; host threads get the number of devices, which is no index."""
        none = len(self.devices)
        return np.array(
            [none if lane.device is None else lane.device for lane in self.lanes], dtype=np.int32
        )

    @cached_property
    def event_devices(self) -> Array:
        """Device index of each event."""
        if len(self.devices) == 1:
            return np.zeros(len(self.events), np.int32)
        events = self.events
        if events.tags is not None and events.is_tagged("lane"):
            return np.take(self.device_of_lane[events.tagged("lane")], events.tags.of)
        devices = self.device_of_lane[events["lane"]] if len(events) else np.empty(0)
        return devices.astype(np.int32, copy=False)

    @cached_property
    def event_kinds(self) -> Array:
        """Kind of each event (see `kinds`)."""
        from slipstream.profile.timeline.kinds import find_kinds

        return find_kinds(self)

    @cached_property
    def segments(self) -> Segments:
        """What the devices did, segment by segment, in time order."""
        from slipstream.profile.timeline.segments import find_segments

        return find_segments(self)

    @cached_property
    def runs(self) -> Runs:
        """Every execution of every program on every device."""
        from slipstream.profile.timeline.runs import find_runs

        return find_runs(self)

    @cached_property
    def steps(self) -> Steps:
        """The steps of this profile, and the rule that found them."""
        from slipstream.profile.timeline.steps import find_steps

        return find_steps(self)

"""Whether recordings belong to one run: those that can't are refused, the doubtful get a warning.

host a  GPU:0   ██████            host a  GPU:0   ██████             host a  GPU:0   ██████
host b  GPU:0    ██████           host a  GPU:0            ██████    host a  GPU:0    ██████
one run                           two runs: refused                  one process per GPU, maybe
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import distinct
from slipstream.profile.profile import Profile, ProfileWarning

APART_NS = 60 * 10**9
"""hosts of one run record at the same time; if none does for this long, there may be two runs"""


@dataclass(frozen=True)
class Recorded:
    """What of a recording tells its run."""

    source: str
    devices: frozenset[tuple[str, str]]
    """(machine, device)"""
    start_ns: int | None
    """wall-clock time of the first event; None if not recorded"""
    end_ns: int
    events: int
    hottest: str
    """name of the program with the most device time, without its id; empty if unknown"""
    programs: frozenset[str]

    @classmethod
    def of(cls, profile: Profile) -> Recorded:
        host, events = profile.hosts[0], profile.events
        begin = end = 0
        if len(events):
            begin = int(events["start_ps"].min()) // 1000
            end = int((events["start_ps"] + events["duration_ps"]).max()) // 1000
        # Nsight Systems appends the process to the machine's name.
        devices = frozenset(
            (profile.hosts[device.host].name.partition("/")[0], device.name)
            for device in profile.devices
        )
        times = np.bincount(events["program"], events["duration_ps"], len(events.texts) or 1)
        names = {_base(events.texts[i]) for i in distinct(events["program"]).tolist()}
        return cls(
            host.source,
            devices,
            None if host.start_ns is None else host.start_ns + begin,
            (host.start_ns or 0) + end,
            len(events),
            _base(events.texts[int(times.argmax())]) if len(events) else "",
            frozenset(names - {""}),
        )

    def runs_others(self, other: Recorded) -> bool:
        """Whether neither ran the other's main program."""
        if not self.hottest or not other.hottest:
            return False
        return self.hottest not in other.programs and other.hottest not in self.programs

    @property
    def file(self) -> str:
        return Path(self.source).name


def _base(program: str) -> str:
    return program.partition("(")[0]


def check_one_run(recorded: Sequence[Recorded]) -> tuple[ProfileWarning, ...]:
    """BadInput if recordings can't be of one run; warnings where that is doubtful."""
    return (*_same_device(recorded), *_other_programs(recorded))


def apart_ns(recorded: Sequence[Recorded]) -> int:
    """The longest time between recordings in which none of them recorded."""
    known = [one for one in recorded if one.start_ns is not None]
    longest, reach = 0, None
    for one in sorted(known, key=lambda one: one.start_ns or 0):
        start = one.start_ns or 0
        longest = max(longest, start - reach) if reach is not None else 0
        reach = max(one.end_ns, reach or one.end_ns)
    return longest


def _same_device(recorded: Sequence[Recorded]) -> Iterator[ProfileWarning]:
    """Recordings of a device that another recording has, too."""
    by_device: dict[tuple[str, str], list[Recorded]] = {}
    for one in recorded:
        for place in one.devices:
            by_device.setdefault(place, []).append(one)
    said = set()
    for (machine, device), several in sorted(by_device.items()):
        several.sort(key=lambda one: (one.start_ns or 0, one.source))
        for one, other in pairwise(several):
            if (one.source, other.source) in said or one.source == other.source:
                continue
            said.add((one.source, other.source))
            both = f"{one.file} and {other.file} both recorded {device} of {machine}"
            problem = _why_two_runs(one, other)
            if problem:
                raise BadInput(f"{both}, {problem}: they are not one run; {_to_do(one, other)}")
            yield ProfileWarning(
                "same-device",
                f"{both} at the same time, so it counts as two devices; that is right for one "
                f"process per GPU, of which each sees only its own. If not: {_to_do(one, other)}",
            )


def _why_two_runs(one: Recorded, other: Recorded) -> str:
    """Why two recordings of one device are not of one run; empty if they may be."""
    if None not in (one.start_ns, other.start_ns):
        if (one.start_ns, one.end_ns, one.events) == (other.start_ns, other.end_ns, other.events):
            return "with the same events"
        if (other.start_ns or 0) >= one.end_ns:
            return "one after the other"
    if one.runs_others(other):
        return f"and ran different programs ({one.hottest} and {other.hottest})"
    return ""


def _other_programs(recorded: Sequence[Recorded]) -> Iterator[ProfileWarning]:
    """Recordings that share no program with the first."""
    first = recorded[0]
    others = [one for one in recorded[1:] if first.runs_others(one)]
    if not others:
        return
    other = others[0]
    more = f" (and {len(others) - 1} more)" if len(others) > 1 else ""
    seen = f"{first.file} ran {first.hottest}, and {other.file}{more} ran {other.hottest}"
    if apart_ns(recorded) > APART_NS:
        raise BadInput(f"{seen}, at other times: they are not one run; {_to_do(first, other)}")
    yield ProfileWarning(
        "different-programs",
        f"{seen}: that is right for a pipeline whose hosts run different programs. If they are not "
        f"of one run: {_to_do(first, other)}",
    )


def _to_do(one: Recorded, other: Recorded) -> str:
    return (
        f"read one of them (slipstream summary {one.source}), compare them (slipstream diff "
        f"{one.source} {other.source}), or keep each run in its own folder and choose with --run"
    )

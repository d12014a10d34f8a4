"""A fleet: the hosts of a run, merged as their digests come.

    digest of host 7 ─┐                 ┌─ summary   steps, ops and programs of all hosts
    digest of host 2 ─┼─► Fleet ────────┼─ hosts     clocks, stragglers, slow devices
    digest of host 5 ─┘                 ├─ costs     one table
                                        └─ typical, slowest: hosts to look at in detail

Results are those of one profile of all hosts, where that fits into memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property

from slipstream.analyses.collectives import Meetings, meetings
from slipstream.analyses.hosts import Hosts, compared
from slipstream.analyses.op_groups import op_groups
from slipstream.analyses.summary import TOP, Summary, median_times, phase_times, software_versions
from slipstream.costs.merge import merge_facts
from slipstream.costs.table import CostTable
from slipstream.errors import BadInput
from slipstream.fleet.digest import Digest
from slipstream.fleet.one_clock import OneClock
from slipstream.fleet.totals import Totals
from slipstream.profile.profile import ProfileWarning

NAMED = 3
"""hosts or recordings that a sentence names"""


@dataclass(frozen=True)
class Unread:
    """A recording that could not be read."""

    source: str
    reason: str


class FleetBuilder:
    """Takes digests in any order."""

    def __init__(self, notes: Sequence[str] = ()) -> None:
        self._notes = tuple(notes)
        self._digests: dict[int, Digest] = {}
        self._unread: dict[int, Unread] = {}
        self._totals = {True: Totals(), False: Totals()}
        """of hosts with steps, and of those without"""
        self._base_ns: int | None = None

    def add(self, place: int, found: Digest | Unread) -> None:
        """Add the recording at a place in the run."""
        if isinstance(found, Unread):
            self._unread[place] = found
            return
        sums = found.sums
        assert sums is not None
        self._totals[found.has_steps].add(place, found, sums, self._shift_ps(found))
        self._digests[place] = replace(found, sums=None)

    def _shift_ps(self, found: Digest) -> int:
        """How far to move a host's clock; the first that comes keeps its own."""
        start_ns = found.profile.hosts[0].start_ns
        if start_ns is None:
            return 0
        self._base_ns = start_ns if self._base_ns is None else self._base_ns
        return (start_ns - self._base_ns) * 1000

    def build(self) -> Fleet:
        digests = tuple(self._digests[place] for place in sorted(self._digests))
        unread = tuple(self._unread[place] for place in sorted(self._unread))
        if not digests:
            raise BadInput(_none_read(unread))
        has_steps = any(one.has_steps for one in digests)
        return Fleet(digests, self._totals[has_steps], unread, self._notes)


class Fleet:
    """The hosts of a run."""

    def __init__(
        self,
        digests: Sequence[Digest],
        totals: Totals,
        unread: Sequence[Unread] = (),
        notes: Sequence[str] = (),
    ) -> None:
        self.digests = tuple(digests)
        """in the order of their files"""
        self.unread = tuple(unread)
        self._totals = totals
        self._notes = tuple(notes)
        """what else the folder holds, in sentences"""

    # Hosts to look at.

    @cached_property
    def typical(self) -> Digest:
        """The recording whose median step is nearest to that of the whole run."""
        middle = self.summary.step_median_us
        return min(self._with_steps, key=lambda one: abs(one.step_us - middle))

    @cached_property
    def slowest(self) -> Digest:
        """The recording of the device that others wait for most; or the one with longest steps."""
        late = self.met.stragglers[:1]
        for one in self.digests if late and late[0].caused_us else ():
            names = ((one.profile.hosts[d.host].name, d.name) for d in one.profile.devices)
            if (late[0].host, late[0].device) in names:
                return one
        return max(self._with_steps, key=lambda one: one.step_us)

    @property
    def _with_steps(self) -> tuple[Digest, ...]:
        return tuple(one for one in self.digests if one.has_steps) or self.digests

    def recording(self, host: str = "typical") -> Digest:
        """A recording: `typical`, `slowest`, or the one of a host."""
        if host in ("typical", "slowest"):
            return self.typical if host == "typical" else self.slowest
        for one in self.digests:
            if host in (found.name for found in one.profile.hosts):
                return one
        from slipstream.did_you_mean import did_you_mean

        names = [found.name for one in self.digests for found in one.profile.hosts]
        guess = did_you_mean(host, names, most=3, cutoff=0.6)
        raise BadInput(
            f"no host {host!r} among the {len(names)} of this run; expected typical, slowest or a "
            f"name{'; ' + guess if guess else ''}; to list them: slipstream hosts PATH"
        )

    # Results.

    @cached_property
    def summary(self) -> Summary:
        steps = self.clock.steps
        times = median_times(self.clock.splits)
        by_op = self._totals.ops(self.clock.names)
        return Summary(
            hosts=tuple(host.name for one in self.digests for host in one.profile.hosts),
            versions=software_versions(h for one in self.digests for h in one.profile.hosts),
            devices=tuple(device for one in self.digests for device in one.devices),
            programs=tuple(self._totals.programs(self.clock.names)),
            step_count=steps.count if steps.basis != "recording" else 0,
            step_median_us=times.wall_us,
            step_basis=steps.basis,
            step_rule=steps.rule,
            per_step=times,
            phases_us=phase_times(by_op),
            top=tuple(by_op[:TOP]),
            warnings=self.warnings,
            top_groups=op_groups(by_op)[:TOP],
        )

    def _repr_html_(self) -> str | None:
        """In notebooks: the summary of all hosts."""
        return self.summary._repr_html_()

    @cached_property
    def hosts(self) -> Hosts:
        """All devices compared."""
        found = compared(self.clock.matched, self.clock.splits)
        unread = [_unread_text(self)] if self.unread else []
        return replace(found, notes=(*unread, *found.notes))

    @cached_property
    def met(self) -> Meetings:
        """The collectives of all hosts, matched."""
        return meetings(self.clock.matched)

    def met_by(self, one: Digest) -> Meetings:
        """The collectives of one recording, matched with those of all hosts."""
        place = self.digests.index(one)
        devices = [len(each.profile.devices) for each in self.digests]
        first = sum(devices[:place])
        found = meetings(self.clock.matched, slice(first, first + devices[place]))
        before = sum(len(each.rows) for each in self.digests[:place])
        return replace(found, rows=one.rows[found.rows - before])

    def costs(self, policy: str = "typical") -> CostTable:
        """The costs of all hosts as one table, if digests were made with costs."""
        return self._totals.costs.table(policy, self.clock.names, self._facts())

    def _facts(self) -> dict[str, object]:
        stated = [facts for _, facts in sorted(self._totals.costs.facts.items())]
        flags: dict[str, object] = {}
        for facts in stated:
            own = facts["flags"]
            flags |= own if isinstance(own, dict) else {}
        found = self.summary
        return merge_facts(stated) | {
            "device": ", ".join(sorted({device.model for device in found.devices})),
            "topology": {"hosts": len(found.hosts), "devices": len(found.devices)},
            "flags": flags,
            "steps": self.clock.steps.count,
            "step_rule": found.step_rule,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
        }

    @cached_property
    def warnings(self) -> tuple[ProfileWarning, ...]:
        """Doubts about recordings, those of several hosts as one; and about the whole run."""
        left = tuple(ProfileWarning("not-read", text) for text in self._notes)
        unread = (ProfileWarning("unread-hosts", _unread_text(self)),) if self.unread else ()
        return (*left, *unread, *_shared_warnings(self.digests), *self.clock.profile.warnings)

    @cached_property
    def clock(self) -> OneClock:
        return OneClock(self.digests)


def _shared_warnings(digests: Sequence[Digest]) -> list[ProfileWarning]:
    """One warning of each code, with the hosts that have it unless all do."""
    by_code: dict[str, list[tuple[str, str]]] = {}
    for one in digests:
        name = one.profile.hosts[0].name
        for warning in {each.code: each for each in one.profile.warnings}.values():
            by_code.setdefault(warning.code, []).append((name, warning.message))
    found = []
    for code, said in by_code.items():
        message = Counter(text for _, text in said).most_common(1)[0][0]
        if len(said) < len(digests):
            hosts = ", ".join(name for name, _ in said[:NAMED])
            more = f" and {len(said) - NAMED} more" if len(said) > NAMED else ""
            message = f"on {hosts}{more}: {message}"
        elif len({text for _, text in said}) > 1:
            message = f"on all hosts, in similar words: {message}"
        found.append(ProfileWarning(code, message))
    return found


def _unread_text(fleet: Fleet) -> str:
    unread, total = fleet.unread, len(fleet.unread) + len(fleet.digests)
    named = "; ".join(one.reason for one in unread[:NAMED])
    more = f"; and {len(unread) - NAMED} more" if len(unread) > NAMED else ""
    what = "recording" if total == 1 else "recordings"
    return f"{len(unread)} of {total} {what} could not be read, and are left out: {named}{more}"


def _none_read(unread: Sequence[Unread]) -> str:
    if len(unread) == 1:
        return unread[0].reason
    first = f"; the first: {unread[0].reason}" if unread else ""
    return f"none of the {len(unread)} recordings could be read{first}"

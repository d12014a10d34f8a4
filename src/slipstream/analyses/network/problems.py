"""Known problems between slices: how each shows in a profile, and what the guide advises.

The guide is https://openxla.org/xla/megascale/performance. Each rule looks for one problem of it;
without enough evidence (the network's rate, enough transfers) it reports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.network.latency import Arrivals
from slipstream.analyses.network.slack import Senders, SliceCollective
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.units import format_time

GUIDE = "https://openxla.org/xla/megascale/performance"
SLACK_GUIDE = "https://openxla.org/xprof/megascale_stats"
PREMAP = "--megascale_grpc_premap_memory_bytes"

WAIT_SHARE = 0.02
"""share of the step from which waits for receives are reported"""
SATURATED = 0.8
"""share of its rate from which a network counts as saturated"""
SPORADIC = 5.0
"""a transfer this many times slower than the median of its collective is an outlier"""
SPORADIC_SHARE = 0.005
FEWEST_TRANSFERS = 20
SLOW = 5.0
"""transfers are slow if they take this many times as long as their bytes need"""
ROUND_TRIP_US = 1000.0
"""what a transfer may take in addition before it counts as slow"""


@dataclass(frozen=True)
class NetworkProblem:
    """A problem that the guide describes, seen in this profile."""

    code: str
    """`map-dma-buffer`, `memory-copies`, `recv-done`, `small-slack`, `bandwidth` or `latency`"""
    title: str
    evidence: str
    per_step_us: float
    """time that it affects, per step"""
    remedy: str
    flag: str
    """the flag to change, if there is one"""
    source: str
    """where the advice comes from"""


@dataclass(frozen=True)
class NetworkEvidence:
    """Everything that the rules look at."""

    profile: Profile
    start_ps: float
    end_ps: float
    steps: int
    step_us: float
    collectives: Sequence[SliceCollective]
    arrivals: Arrivals
    capacity: float | None
    """bytes per second that a host's network carries, in one direction"""
    saturated: Sequence[tuple[float, float]]
    """intervals in which the network was saturated"""
    senders: Senders = Senders()
    is_simulated: bool = False

    @property
    def waits_us(self) -> float:
        """Wait for receives, per step and device."""
        rows = max(len(self.profile.steps), 1)
        return sum(one.recv_done_us * one.occurrences for one in self.collectives) / rows

    @property
    def is_waiting(self) -> bool:
        return bool(self.step_us) and self.waits_us >= WAIT_SHARE * self.step_us


def network_problems(evidence: NetworkEvidence) -> tuple[NetworkProblem, ...]:
    """The problems of a Megascale profile, by the time they affect, longest first."""
    rules: tuple[Callable[[NetworkEvidence], NetworkProblem | None], ...] = (
        _map_dma_buffer,
        _memory_copies,
        _small_slack,
        _bandwidth,
        _latency,
        _recv_done,
    )
    found = [problem for rule in rules if (problem := rule(evidence)) is not None]
    return tuple(sorted(found, key=lambda problem: -problem.per_step_us))


def _map_dma_buffer(found: NetworkEvidence) -> NetworkProblem | None:
    """Memory should be registered at start-up; registration during steps means it ran out."""
    durations = memory_registrations(found.profile, found.start_ps, found.end_ps)
    count, us = len(durations), float(durations.sum()) / 1e6
    if not count:
        return None
    return NetworkProblem(
        "map-dma-buffer",
        "memory is registered for DMA while the steps run",
        f"{count} MapDmaBuffer calls in {found.steps} steps, {format_time(us * 1e6)} in total",
        us / max(found.steps, 1),
        f"registered memory ran out: raise {PREMAP}, restart the job, and look again",
        PREMAP,
        GUIDE,
    )


def memory_registrations(profile: Profile, start_ps: float, end_ps: float) -> Array:
    """Picoseconds of each MapDmaBuffer call that begins in a stretch of time."""
    found = []
    for table in (profile.host_events, profile.transfers):
        wanted = [i for i, text in enumerate(table.texts) if "MapDmaBuffer" in text]
        rows = np.flatnonzero(np.isin(table["name"], wanted))
        start = table["start_ps"][rows]
        found.append(table["duration_ps"][rows[(start >= start_ps) & (start < end_ps)]])
    return np.concatenate(found)


def _memory_copies(found: NetworkEvidence) -> NetworkProblem | None:
    """Transfers are zero-copy; a copy inside one means that its memory was not registered."""
    table = found.profile.transfers
    copies = _rows(table.texts, table["name"], "Memory Copy")
    start, length = table["start_ps"][copies], table["duration_ps"][copies]
    hosts = np.array([lane.host for lane in found.profile.lanes], np.int32)
    inside = (start >= found.start_ps) & (start < found.end_ps)
    count, us = 0, 0.0
    moving = _rows(table.texts, table["name"], "Communication Transport")
    for host in range(len(found.profile.hosts)):
        own = moving[hosts[table["lane"][moving]] == host]
        union = IntervalUnion.of(table["start_ps"][own], table["duration_ps"][own])
        mine = inside & (hosts[table["lane"][copies]] == host)
        covered = union.covered(start[mine], start[mine] + length[mine])
        count += int((covered > 0).sum())
        us += float(covered.sum()) / 1e6
    if not count:
        return None
    return NetworkProblem(
        "memory-copies",
        "memory is copied during transfers",
        f"{count} copies inside transfers in {found.steps} steps, {format_time(us * 1e6)} in total;"
        " transfers should be zero-copy",
        us / max(found.steps, 1),
        f"registered memory ran out: raise {PREMAP}, restart the job, and look again",
        PREMAP,
        GUIDE,
    )


def _rows(texts: Sequence[str], names: Array, words: str) -> Array:
    return np.flatnonzero(np.isin(names, [i for i, text in enumerate(texts) if words in text]))


def _small_slack(found: NetworkEvidence) -> NetworkProblem | None:
    """Collectives that are awaited before their bytes could have arrived."""
    if not found.is_waiting:
        return None
    short = [one for one in found.collectives if _is_short(one, found)]
    if not short:
        return None
    worst = short[0]
    steps = max(len(found.profile.steps), 1)
    return NetworkProblem(
        "small-slack",
        "collectives are awaited too soon after they start",
        f"{len(short)} of {len(found.collectives)} collectives have less slack than they need: "
        f"{worst.title} has {format_time(worst.slack_us * 1e6)} and then waits "
        f"{format_time(worst.recv_done_us * 1e6)} in {worst.recv_done}",
        sum(one.recv_done_us * one.occurrences for one in short) / steps,
        "increase overlap: move independent compute between the send and the recv-done, or choose "
        "a sharding that sends earlier or less",
        "",
        SLACK_GUIDE,
    )


def _is_short(one: SliceCollective, found: NetworkEvidence) -> bool:
    """Whether it waits and its slack is shorter than its bytes need, or than its wait."""
    if not is_awaited(one, found):
        return False
    if found.capacity and one.bytes is not None:
        return one.needs_gbps is None or one.needs_gbps * 1e9 / 8 > found.capacity
    return one.slack_us < one.recv_done_us


def is_awaited(one: SliceCollective, found: NetworkEvidence) -> bool:
    """Whether a good part of the waits is its own."""
    waited = one.recv_done_us * one.occurrences
    return waited > 0 and waited >= 0.1 * found.waits_us * len(found.profile.steps)


def _bandwidth(found: NetworkEvidence) -> NetworkProblem | None:
    """The network is saturated while the TPU waits for it."""
    if not found.saturated or not found.is_waiting:
        return None
    waits = _recv_done_union(found)
    starts = np.array([a for a, _ in found.saturated])
    ends = np.array([b for _, b in found.saturated])
    waited = float(waits.covered(starts, ends).sum()) / 1e6
    if not waited or found.capacity is None:
        return None
    total = float((ends - starts).sum())
    share = total / (found.end_ps - found.start_ps)
    return NetworkProblem(
        "bandwidth",
        "the network between slices is saturated while the TPU waits for it",
        f"{share:.0%} of the time it carries at least {SATURATED:.0%} of its "
        f"{found.capacity * 8 / 1e9:.0f} Gbit/s",
        waited / max(found.steps, 1),
        "send fewer bytes, or give them more time: increase overlap (see slack), change the "
        "sharding, or with data parallelism use a larger batch per replica; also check the "
        "network's settings",
        "",
        GUIDE,
    )


def _recv_done_union(found: NetworkEvidence) -> IntervalUnion:
    events = found.profile.events
    names = {one.recv_done for one in found.collectives}
    wanted = [i for i, text in enumerate(events.texts) if text in names]
    rows = np.flatnonzero(np.isin(events["instruction"], wanted))
    return IntervalUnion.of(events["start_ps"][rows], events["duration_ps"][rows])


def _latency(found: NetworkEvidence) -> NetworkProblem | None:
    """Transfers are slow although the network is not saturated."""
    arrived = found.arrivals
    if len(arrived) < FEWEST_TRANSFERS:
        return None
    free = ~_mostly_in(arrived.start_ps, arrived.start_ps + arrived.duration_ps, found.saturated)
    usual = _usual(arrived)
    late = free & (arrived.duration_ps > SPORADIC * usual)
    if late.sum() >= max(SPORADIC_SHARE * len(arrived), 2):
        lost = float((arrived.duration_ps - usual)[late].sum()) / 1e6
        worst = float(arrived.duration_ps[late].max())
        text = (
            f"{int(late.sum())} of {len(arrived)} transfers took more than {SPORADIC:.0f} times "
            f"their collective's median, up to {format_time(worst)}, with the network not saturated"
        )
        return _slow("sometimes", text, lost / max(found.steps, 1))
    if found.capacity is None or not found.is_waiting:
        return None
    needed = arrived.bytes / found.capacity * 1e12
    slow = free & (arrived.duration_ps > SLOW * needed + ROUND_TRIP_US * 1e6)
    if 2 * slow.sum() < len(arrived):
        return None
    middle = float(np.median(arrived.duration_ps))
    text = (
        f"the median transfer takes {format_time(middle)}, but its bytes only need "
        f"{format_time(float(np.median(needed)))} at the network's rate"
    )
    return _slow("always", text, found.waits_us)


def _slow(when: str, evidence: str, per_step_us: float) -> NetworkProblem:
    return NetworkProblem(
        "latency",
        f"transfers are {when} slow although the network is not saturated",
        evidence,
        per_step_us,
        "check the TCP settings inside the container (buffer sizes, congestion control), the usual "
        "cause of slow RPCs in a cloud",
        "",
        GUIDE,
    )


def _usual(arrived: Arrivals) -> Array:
    """The median duration of all transfers of each transfer's collective."""
    usual = np.empty(len(arrived), np.float64)
    for label in np.unique(arrived.label).tolist():
        own = arrived.label == label
        usual[own] = np.median(arrived.duration_ps[own])
    return usual


def _mostly_in(start: Array, end: Array, intervals: Sequence[tuple[float, float]]) -> Array:
    """Whether most of each transfer lies in the intervals."""
    starts = np.array([a for a, _ in intervals], np.int64)
    lengths = np.array([b - a for a, b in intervals], np.int64)
    covered = IntervalUnion.of(starts, lengths).covered(start, end)
    return np.asarray(2 * covered > end - start)


def _recv_done(found: NetworkEvidence) -> NetworkProblem | None:
    """The wait itself, whatever its cause."""
    if not found.is_waiting or not found.collectives:
        return None
    worst = max(found.collectives, key=lambda one: one.recv_done_us * one.occurrences)
    return NetworkProblem(
        "recv-done",
        "the TPU waits for data from other slices",
        f"{format_time(found.waits_us * 1e6)} of the step, {found.waits_us / found.step_us:.0%}, "
        f"in recv-done; most in {worst.recv_done}, of {worst.title}",
        found.waits_us,
        "if other problems are listed, they name the cause; otherwise increase overlap, or use a "
        "larger batch per replica",
        "",
        GUIDE,
    )

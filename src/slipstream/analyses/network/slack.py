"""Collectives between slices, as Megascale runs them: their stalls and their slack.

    send ▌      send-done ▌       recv ▌          recv-done ████      TPU
         ├──────────────────────────────────────▶│                    slack: time between, without
              t1           t2           t3                             the operations themselves

The definitions are XProf's (https://openxla.org/xprof/megascale_stats): slack is the time that a
collective has to transmit its data without stalling the TPU; the stall is the time that its four
operations take.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import RENDEZVOUS, TRANSFER_TYPE, sent_bytes, transfer_of
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.dataflow import producer
from slipstream.profile.semantics.descriptions import moved_names
from slipstream.profile.semantics.names import scope, source
from slipstream.profile.timeline.intervals import IntervalUnion

PARTS = ("send", "send-done", "recv", "recv-done")
_LABEL = re.compile(r"(send|recv)(-done)?(\.\d+)*$")


@dataclass(frozen=True)
class SliceCollective:
    """One collective between slices; times are means over its occurrences."""

    name: str
    """its rendezvous; its send, if the program doesn't name one"""
    transfer_type: str
    """`ALL_REDUCE`, `ONE_TO_ONE`, …; empty if not recorded"""
    send: str
    recv_done: str
    occurrences: int
    """over all devices and steps"""
    slack_us: float
    observed_us: float
    """from its send to the end of its recv-done"""
    send_us: float
    send_done_us: float
    recv_us: float
    recv_done_us: float
    per_step_us: float
    """stall per step and device"""
    bytes: float | None
    """bytes that one device sends; None if the buffer is unknown"""
    required_gbps: float | None
    """of one device, to transmit it within its slack, as in XProf: without latency and what else
    it passes; None if it has no slack"""
    needs_gbps: float | None
    """of a host, in one direction: from there on it takes no longer than its slack, if it has the
    network to itself; None if latency or the host's link take longer, or its bytes are unknown"""
    hidden_to_latency_us: float | None
    """of a prediction: up to which it takes no longer than its slack, with the network to itself;
    None if it takes longer even without latency, or if the machine or its bytes are unknown"""
    moves: str = ""
    """whose gradient (`∂w1`) or which argument it moves; otherwise the operation that computed its
    values; empty if unknown"""
    source: str = ""

    @property
    def title(self) -> str:
        """`all-reduce.13_0 (∂w1)`."""
        return f"{self.name} ({self.moves})" if self.moves else self.name

    @property
    def stall_us(self) -> float:
        """Total time of its four operations."""
        return self.send_us + self.send_done_us + self.recv_us + self.recv_done_us


@dataclass(frozen=True)
class _Named:
    program: Program
    send: Instruction
    parts: dict[str, str]
    """instruction of each of PARTS"""


@dataclass(frozen=True)
class _Operations:
    """All sends, receives and their dones in the steps, in time order."""

    device: Array
    instruction: Array
    start_ps: Array
    duration_ps: Array
    steps: int
    """steps, summed over devices"""

    @classmethod
    def of(cls, profile: Profile, collectives: Sequence[tuple[str, _Named]]) -> _Operations:
        events, steps = profile.events, profile.steps
        known = {name for _, named in collectives for name in named.parts.values()}
        names = [i for i, x in enumerate(events.texts) if x in known or _LABEL.match(x)]
        rows = np.flatnonzero(np.isin(events["instruction"], names))
        rows = rows[steps.of_events(profile)[rows] < len(steps)]
        # A simulation also shows how long a transfer takes, beside the operations.
        beside = np.array([lane.is_beside for lane in profile.lanes], bool)
        rows = rows[~beside[events.cells("lane", rows)]]
        rows = rows[np.argsort(events["start_ps"][rows], kind="stable")]
        columns = (events.cells(c, rows) for c in ("instruction", "start_ps", "duration_ps"))
        instruction, start, duration = columns
        device = profile.event_devices[rows]
        return cls(device, instruction, start, duration, max(len(steps), 1))


@dataclass(frozen=True)
class Senders:
    """What carries the transfers of a host."""

    devices: int = 1
    """of a host: they send at once"""
    machine: Machine | None = None
    """None if latency and the host's link are unknown"""
    slower: float = 1.0
    """how much longer its transfers take than modelled"""
    is_predicted: bool = False
    """whether the machine's latency is that of the transfers"""


def slice_collectives(
    profile: Profile, slices: int | None, senders: Senders | None = None
) -> tuple[SliceCollective, ...]:
    """Every collective between slices, longest stall first."""
    found = []
    collectives = _collectives(profile)
    operations = _Operations.of(profile, collectives)
    index = {text: number for number, text in enumerate(profile.events.texts)}
    for name, named in collectives:
        times = _Occurrences(operations, named, index)
        if times.count:
            found.append(times.result(name, slices, senders or Senders()))
    return tuple(sorted(found, key=lambda one: -one.per_step_us))


def _collectives(profile: Profile) -> list[tuple[str, _Named]]:
    """Sends and receives of every program, matched by their rendezvous."""
    found = []
    texts, seen = profile.events.texts, distinct(profile.events["program"]).tolist()
    for name in (texts[i] for i in seen if texts[i] in profile.programs):
        program = profile.programs[name]
        receives = {_rendezvous(i): i for i in program.scheduled if i.opcode == "recv"}
        for send in program.scheduled:
            recv = receives.get(_rendezvous(send)) if send.opcode == "send" else None
            if recv is None:
                continue
            dones = [program.partner(one.name) for one in (send, recv)]
            if dones[0] is not None and dones[1] is not None:
                names = (send.name, dones[0].name, recv.name, dones[1].name)
                parts = dict(zip(PARTS, names, strict=True))
                found.append((_rendezvous(send), _Named(program, send, parts)))
    return found


def _rendezvous(instruction: Instruction) -> str:
    """What a send and its receive have in common: their rendezvous, or else their number."""
    stated = instruction.attributes.get(RENDEZVOUS)
    number = _LABEL.match(instruction.name)
    return str(stated) if stated else (number[3] or "0") if number else instruction.name


def _moves(program: Program, send: Instruction) -> str:
    if named := moved_names(program, send):
        return named
    made = producer(program, send)
    if made is None:
        return ""
    return scope(made.op_name) or made.op_name.rpartition("/")[2]


class _Occurrences:
    """The times at which one collective ran, by device and time."""

    def __init__(self, operations: _Operations, named: _Named, index: dict[str, int]) -> None:
        self.operations, self.named = operations, named
        self.starts: dict[str, list[Array]] = {part: [] for part in PARTS}
        self.lengths: dict[str, list[Array]] = {part: [] for part in PARTS}
        self.slack: list[Array] = []
        for device in distinct(operations.device).tolist():
            own = operations.device == device
            rows = {
                part: np.flatnonzero(own & (operations.instruction == index.get(name, -1)))
                for part, name in named.parts.items()
            }
            count = min(len(found) for found in rows.values())
            if not count:
                continue
            for part, found in rows.items():
                self.starts[part].append(operations.start_ps[found[:count]])
                self.lengths[part].append(operations.duration_ps[found[:count]])
            self.slack.append(self._slack(own))

    @property
    def count(self) -> int:
        return sum(len(part) for part in self.slack)

    def _slack(self, own: Array) -> Array:
        """Time from send to recv-done, without the sends, receives and dones in between."""
        first, last = self.starts["send"][-1], self.starts["recv-done"][-1]
        operations = self.operations
        union = IntervalUnion.of(operations.start_ps[own], operations.duration_ps[own])
        return np.asarray(last - first - union.covered(first, np.maximum(last, first)))

    def result(self, name: str, slices: int | None, senders: Senders) -> SliceCollective:
        starts = {part: np.concatenate(found) for part, found in self.starts.items()}
        mean = {part: float(np.concatenate(x).mean()) / 1e6 for part, x in self.lengths.items()}
        last = starts["recv-done"] + np.concatenate(self.lengths["recv-done"])
        slack = float(np.concatenate(self.slack).mean()) / 1e6
        kind = str(self.named.send.attributes.get(TRANSFER_TYPE, ""))
        size = sent_bytes(self.named.program, self.named.send, slices)
        stall = sum(mean.values())
        needs, latest = _limits(size, max(slack, 0.0), senders)
        return SliceCollective(
            name=name,
            transfer_type=kind,
            send=self.named.parts["send"],
            recv_done=self.named.parts["recv-done"],
            occurrences=self.count,
            slack_us=slack,
            observed_us=float((last - starts["send"]).mean()) / 1e6,
            send_us=mean["send"],
            send_done_us=mean["send-done"],
            recv_us=mean["recv"],
            recv_done_us=mean["recv-done"],
            per_step_us=stall * self.count / self.operations.steps,
            bytes=size,
            required_gbps=size * 8 / slack / 1e3 if size is not None and slack > 0 else None,
            needs_gbps=needs,
            hidden_to_latency_us=latest,
            moves=_moves(self.named.program, self.named.send),
            source=source(self.named.program, self.named.send),
        )


def _limits(
    size: float | None, slack_us: float, senders: Senders
) -> tuple[float | None, float | None]:
    """The least bandwidth and the longest latency that hide a transfer."""
    if size is None:
        return None, None
    sent = transfer_of(size, senders.machine)
    needs = sent.needs_gbps(slack_us, senders.devices, senders.slower)
    if not senders.is_predicted:
        return needs, None
    return needs, sent.longest_latency_us(slack_us, senders.slower)

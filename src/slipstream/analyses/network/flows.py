"""Flows: the bytes of each collective and copy by link, direction and time.

all-gather  ████████        bytes are spread evenly over the duration
copy           ██████
rate        ▂▂▂▆▆▆▆▆▃       the sum at every moment
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.analyses.collectives import bus_factor, known_gpu
from slipstream.analyses.labels import collective_of, found_instruction, label
from slipstream.errors import BadInput
from slipstream.machines.collectives import groups_of
from slipstream.machines.gpus import usual_network
from slipstream.machines.machine import Machine
from slipstream.machines.topology import machine
from slipstream.machines.tpu.slices import is_slice_transfer, sent_bytes
from slipstream.profile.attribution.kernels import SAME_SIDE, TO_HOST, classify, copy_bytes
from slipstream.profile.attribution.launch_sequence import launch_of
from slipstream.profile.events import Array, distinct
from slipstream.profile.profile import Profile
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.signatures import COPY_STARTS, copied_shape
from slipstream.profile.simulated import simulated_machine
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, kinds
from slipstream.profile.timeline.windows import attending

LINK, NETWORK, HOST, DCN, ICI = "link", "network", "host", "dcn", "ici"
"""to the GPUs of the host, to other hosts, to host memory, between TPU slices, between the chips of
a slice"""
EACH_WAY, TO_DEVICE_WORDS, TO_HOST_WORDS = "each way", "to device", "to host"
IN, OUT = "in", "out"
_EXCHANGES = ("all-to-all", "ragged-all-to-all", "collective-permute", "send", "recv")


@dataclass(frozen=True)
class Flow:
    """What one instruction (or kind of transfer) sends over one kind of link in one direction."""

    link: str
    direction: str
    name: str
    description: str
    source: str
    owner: Array
    """device of each event, or host of each transfer"""
    start_ps: Array
    duration_ps: Array
    bytes: Array

    def take(self, rows: Array) -> Flow:
        columns = (self.owner, self.start_ps, self.duration_ps, self.bytes)
        owner, start, duration, size = (column[rows] for column in columns)
        return replace(self, owner=owner, start_ps=start, duration_ps=duration, bytes=size)


@dataclass(frozen=True)
class Rates:
    """The rate of flow over time, as a step function."""

    times: Array
    rates: Array
    """bytes per picosecond after each time"""
    before: Array
    """bytes that have flowed by each time"""

    @classmethod
    def of(cls, flows: Sequence[Flow]) -> Rates:
        if not flows:
            return cls(np.zeros(1), np.zeros(1), np.zeros(1))
        start = np.concatenate([flow.start_ps for flow in flows]).astype(np.float64)
        length = np.maximum(np.concatenate([flow.duration_ps for flow in flows]), 1)
        rate = np.concatenate([flow.bytes for flow in flows]) / length
        # If one flow ends when the next begins, its end comes first: there is no peak between.
        times = np.concatenate((start + length, start))
        steps = np.concatenate((-rate, rate))
        order = np.argsort(times, kind="stable")
        times, rates = times[order], _settled(np.cumsum(steps[order]))
        moved = np.concatenate(([0.0], np.cumsum(rates[:-1] * np.diff(times))))
        return cls(times, rates, moved)

    def moved(self, edges: Array) -> Array:
        """Bytes between each edge and the next."""
        return np.diff(np.interp(edges, self.times, self.before))

    def between(self, starts: Array, ends: Array) -> Array:
        """Bytes in each of several intervals."""
        until: Array = np.interp(np.concatenate((starts, ends)), self.times, self.before)
        return until[len(starts) :] - until[: len(starts)]

    def above(self, rate: float) -> Array:
        """The intervals (start, end) in which the rate is at least this high."""
        high = self.rates >= rate
        edges = np.flatnonzero(np.diff(np.concatenate(([False], high, [False])).astype(np.int8)))
        bounds: Array = self.times[np.minimum(edges.reshape(-1, 2), len(self.times) - 1)]
        return bounds


def _settled(rates: Array) -> Array:
    """Set rates to zero that are only rounding errors of the sums."""
    least = 1e-9 * float(np.abs(rates).max(initial=0.0))
    return np.where(rates > least, rates, 0.0)


def device_flows(profile: Profile, machine: Machine | None) -> list[Flow]:
    """The flows of the collectives and host copies that devices recorded."""
    from slipstream.profile.grouping import group_labels

    kind = kinds(profile)
    rows = np.flatnonzero((kind != COMPUTE) & ~attending(profile))
    groups, firsts = group_labels(profile.events, rows)
    order = np.argsort(groups, kind="stable")
    parts = np.split(order, np.searchsorted(groups[order], np.arange(1, len(firsts))))
    found = []
    for part in parts:
        if len(part):
            is_exchange = kind[rows[part[0]]] == COMMUNICATION
            make = _exchanged if is_exchange else _copied
            found += list(make(profile, machine, rows[part]))
    return found


def _flow(profile: Profile, rows: Array, link: str, direction: str, size: Array) -> Flow:
    events = profile.events
    named = label(profile, int(rows[0]))
    start, duration = (events.cells(c, rows) for c in ("start_ps", "duration_ps"))
    what = named.description or named.category
    owner = profile.event_devices[rows]
    return Flow(
        link=link,
        direction=direction,
        name=named.instruction,
        description=what,
        source=named.source,
        owner=owner,
        start_ps=start,
        duration_ps=duration,
        bytes=size,
    )


def _exchanged(profile: Profile, machine: Machine | None, rows: Array) -> Iterator[Flow]:
    events = profile.events
    names = (events.text(c, int(rows[0])) for c in ("program", "instruction"))
    found = found_instruction(profile, *names)
    collective = collective_of(*found) if found is not None else None
    if found is None or collective is None or not collective.bytes:
        return
    program, instruction = found
    if instruction.is_done:
        return  # only waits for the bytes that its start moves
    start = program.starter(instruction.name) or instruction
    if is_slice_transfer(start):
        yield from _sent_to_slices(profile, program, machine, start, rows)
        return
    times = program.executions(start.name)
    runs = _runs(profile, rows)
    size = collective.group_size or (machine.devices if machine else 2)
    each = collective.bytes * bus_factor(collective.kind, max(size, 2))
    # The kernels of one execution share its bytes.
    total = each * runs * times if times else each * len(rows)
    off = _off_host(machine, collective) if machine is not None else 0.0
    inside = ICI if profile.devices[0].kind == "tpu" else LINK
    for link, share in ((NETWORK, off), (inside, 1 - off)):
        if share > 0:
            part = np.full(len(rows), total / len(rows) * share)
            yield _flow(profile, rows, link, EACH_WAY, part)


def _sent_to_slices(
    profile: Profile, program: Program, machine: Machine | None, send: Instruction, rows: Array
) -> Iterator[Flow]:
    """A simulated transfer between slices; recordings have them as host events (`transfers`).

    The devices of a host do the same, and share its network.
    """
    beside = np.array([lane.role == "async" for lane in profile.lanes], bool)
    rows = rows[beside[profile.events.cells("lane", rows)]]
    if not len(rows):
        return
    slices, devices = (machine.slices, machine.gpus_per_host) if machine is not None else (2, 1)
    sent = (sent_bytes(program, send, slices) or 0.0) * devices
    flow = _flow(profile, rows, DCN, OUT, np.full(len(rows), sent))
    hosts = np.array([device.host for device in profile.devices], np.int32)
    yield replace(flow, owner=hosts[flow.owner])


def _runs(profile: Profile, rows: Array) -> int:
    """Number of program executions that an instruction's events belong to, over all devices."""
    device = profile.event_devices[rows].astype(np.int64)
    return len(distinct(device << 32 | profile.events.cells("execution", rows)))


def _off_host(machine: Machine, collective: Collective) -> float:
    """The share of what a GPU sends that leaves its host; the maximum over the groups.

    A ring visits all GPUs of a host before it leaves it, so only one of them sends to the next
    host; in an all-to-all, every GPU sends to every other.
    """
    shares = [0.0]
    for group in groups_of(machine, collective, machine.devices):
        if group.domains > 1:
            is_exchange = collective.kind in _EXCHANGES
            elsewhere = (group.size - group.local) / max(group.size - 1, 1)
            shares.append(elsewhere if is_exchange else 1 / group.local)
    return max(shares)


def _copied(profile: Profile, machine: Machine | None, rows: Array) -> Iterator[Flow]:
    del machine
    events = profile.events
    row = int(rows[0])
    direction, size = classify(events.text("name", row)).direction, 0
    names = (events.text(c, row) for c in ("program", "instruction"))
    found = found_instruction(profile, *names)
    if found is not None:
        program, instruction = found
        start = program.starter(instruction.name) or instruction
        launch = launch_of(program, start)
        if direction == SAME_SIDE:
            direction = launch.direction
        # The shape of a start lists both the source and the destination.
        is_start = start.opcode in COPY_STARTS
        size = copied_shape(program, start).bytes if is_start else launch.bytes
    sizes = _sizes(profile, rows, size)
    if direction == SAME_SIDE or not sizes.any():
        return
    words = TO_HOST_WORDS if direction == TO_HOST else TO_DEVICE_WORDS
    yield _flow(profile, rows, HOST, words, sizes)


def _sizes(profile: Profile, rows: Array, otherwise: int) -> Array:
    """Bytes in each copy's details; `otherwise` where they have none."""
    texts, details = profile.events.texts, profile.events.cells("details", rows)
    values, places = np.unique(details, return_inverse=True)
    stated = [copy_bytes(texts[i]) for i in values.tolist()]
    sizes: Array = np.array([otherwise if one is None else one for one in stated], np.float64)
    return sizes[places]


def machine_of(profile: Profile) -> Machine | None:
    """The machine that a profile was simulated for, or that it seems to be from.

    A recording names its GPU, and its collectives how many.
    """
    if (stated := predicted_machine(profile)) is not None:
        return stated
    model = next((device.model for device in profile.devices if device.model), "")
    gpu = known_gpu(model)
    if gpu is None:
        return None
    count = max(_participants(profile), len(profile.devices))
    per_host = min(count, gpu.gpus_per_host)
    hosts = -(-count // per_host)
    network = usual_network(gpu.name)
    return Machine(f"{hosts}x{per_host}x{gpu.name}", gpu, network, 1, hosts, per_host)


def predicted_machine(profile: Profile) -> Machine | None:
    """The machine that a profile was simulated for; None for a recording, or if it is unknown."""
    spec = simulated_machine(profile)
    try:
        return machine(spec) if spec is not None else None
    except BadInput:
        return None  # a machine file that is elsewhere


def _participants(profile: Profile) -> int:
    """Number of devices that take part in the programs' collectives."""
    most = 1
    for name in {profile.events.texts[i] for i in np.unique(profile.events["program"]).tolist()}:
        program = profile.programs.get(name)
        for one in program.scheduled if program is not None else ():
            if one.collective is not None:
                members = [m for group in one.collective.replica_groups for m in group]
                pairs = [m for pair in one.collective.source_target_pairs for m in pair]
                most = max(most, one.collective.group_size or 1, *(m + 1 for m in members + pairs))
    return most


def transfer_flows(profile: Profile) -> list[Flow]:
    """The flows between slices that Megascale's host events report."""
    table = profile.transfers
    found = []
    hosts = np.array([lane.host for lane in profile.lanes], np.int32)
    for words, direction in (("Transport Receive", IN), ("Transport Send", OUT)):
        wanted = [index for index, text in enumerate(table.texts) if words in text]
        rows = np.flatnonzero(np.isin(table["name"], wanted) & (table["bytes"] > 0))
        if len(rows):
            start, duration = (table[c][rows] for c in ("start_ps", "duration_ps"))
            owner, size = hosts[table["lane"][rows]], table["bytes"][rows].astype(np.float64)
            what = "transfers between slices"
            found.append(
                Flow(
                    link=DCN,
                    direction=direction,
                    name="MegaScale",
                    description=what,
                    source="",
                    owner=owner,
                    start_ps=start,
                    duration_ps=duration,
                    bytes=size,
                )
            )
    return found

"""Transfers between slices of TPUs, by Megascale: device → host → network → host → device.

    send ──► host memory ═══ data-centre network ═══► host memory ──► recv-done
             PCIe            one device's part         PCIe

The three stages work on chunks at once, so the slowest decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Instruction, Program
from slipstream.profile.shapes import Shape
from slipstream.units import format_bytes

RENDEZVOUS = "_xla_host_transfer_rendezvous"
TRANSFER_TYPE = "_xla_megascale_transfer_type"
TARGET = "_xla_megascale_target"
_CROSSED = re.compile(r"\{([\d,:]+)\}x")
_GROUP = re.compile(r"\{(\d[^{}]*)\}")
_OF_SLICE = 100_000
"""Megascale numbers devices so: this times the slice, from 1 on, plus the device in it"""


@dataclass(frozen=True)
class SliceTransfer:
    """What one device sends to other slices, and how long each stage takes."""

    bytes: float
    host_us: float
    network_us: float
    latency_us: float

    @property
    def us(self) -> float:
        return max(self.host_us, self.network_us) + self.latency_us

    def needs_gbps(self, slack_us: float, devices: int, slower: float = 1.0) -> float | None:
        """The bandwidth of a host from which on it takes no longer than its slack.

        In one direction, with the network to itself; the host's `devices` all send at once.
        `slower` is how much longer it takes than modelled. None if latency or the host's link
        take longer than the slack, at any bandwidth.
        """
        left_us = slack_us / slower - self.latency_us
        if left_us <= 0 or self.host_us > left_us:
            return None
        return self.bytes * devices * 8 / left_us / 1e3

    def longest_latency_us(self, slack_us: float, slower: float = 1.0) -> float | None:
        """The latency up to which it takes no longer than its slack, with the network to itself.

        None if it takes longer even without latency.
        """
        found = slack_us - slower * self.us + self.latency_us
        return found if found >= 0 else None


def is_slice_transfer(instruction: Instruction) -> bool:
    """Whether it is a send or receive of Megascale, or the end of one."""
    return RENDEZVOUS in instruction.attributes


def receive_of(program: Program, send: Instruction) -> Instruction | None:
    """The receive that a send meets."""
    rendezvous = send.attributes.get(RENDEZVOUS)
    for other in program.computations[send.computation].instructions:
        if other.opcode == "recv" and other.attributes.get(RENDEZVOUS) == rendezvous:
            return other
    return None


def slice_transfer(machine: Machine, program: Program, send: Instruction) -> SliceTransfer:
    """The transfer that a send begins."""
    return transfer_of(sent_bytes(program, send, machine.slices) or 0.0, machine)


def sent_bytes(program: Program, send: Instruction, slices: int | None) -> float | None:
    """What one device sends, from the buffer that it receives.

    `slices` counts if the send doesn't say which slices exchange values; None if nobody says it.
    """
    group = group_slices(send) or slices
    size = buffer_bytes((receive_of(program, send) or send).shape)
    kind = str(send.attributes.get(TRANSFER_TYPE, ""))
    return size * sent_share(kind, group) if size and group else None


def transfer_of(sent: float, machine: Machine | None) -> SliceTransfer:
    """The transfer of so many bytes; without a machine, its links and latency take no time."""
    if machine is None:
        return SliceTransfer(sent, 0.0, 0.0, 0.0)
    return SliceTransfer(
        bytes=sent,
        host_us=1e6 * sent / machine.tpu.host_bandwidth,
        network_us=1e6 * sent / machine.network.bandwidth,
        latency_us=machine.network.latency_us,
    )


def slice_estimate(machine: Machine, program: Program, instruction: Instruction) -> Estimate:
    """The time of a transfer, at its send; its receive has none of its own."""
    if instruction.opcode != "send":
        return Estimate(0.0, "modelled", "collective", "arrives with its send")
    found = slice_transfer(machine, program, instruction)
    over = "the host's link" if found.host_us > found.network_us else machine.network.name
    why = f"{format_bytes(found.bytes)} to other slices, over {over}"
    return Estimate(found.us, "modelled", "collective", why)


def slices_of(instruction: Instruction) -> int | None:
    """How many slices a transfer is between, in all its groups; None if it doesn't say."""
    return len(frozenset().union(*_groups(instruction))) or None


def group_slices(instruction: Instruction) -> int | None:
    """How many slices exchange values with each other; None if it doesn't say."""
    return max(map(len, _groups(instruction)), default=None)


def _groups(instruction: Instruction) -> list[frozenset[int]]:
    """The slices of each group of devices that exchange values.

    {1,2}x{0:15}                       each device of slice 1 with its own of slice 2
    {{100000,200000},{300000,400000}}  device 0 of slices 1 and 2, and of 3 and 4
    {{100000->200000}}                 from slice 1 to 2
    """
    stated = str(instruction.attributes.get(TARGET, ""))
    crossed = _CROSSED.match(stated)
    if crossed is None:
        members = (re.findall(r"\d+", group[1]) for group in _GROUP.finditer(stated))
        return [frozenset(int(one) // _OF_SLICE for one in each) for each in members]
    found: set[int] = set()
    for part in crossed[1].split(","):
        first, _, last = part.partition(":")
        if not first:
            return []
        found.update(range(int(first), int(last or first) + 1))
    return [frozenset(found)]


def buffer_bytes(shape: Shape) -> int:
    """Of a send or receive: (buffer, context, token)."""
    return max((leaf.bytes for leaf in shape.leaves()), default=0)


def sent_share(kind: str, group: int) -> float:
    """Bytes that one device sends per byte of its recv-done's buffer, as XProf counts them.

    `group` is the number of slices that exchange values.
    """
    shares = {
        "ALL_GATHER": (group - 1) / group,
        "ALL_REDUCE": 2 * (group - 1) / group,
        "ALL_TO_ALL": (group - 1) / group,
        "REDUCE_SCATTER": float(group - 1),
    }
    return shares.get(kind, 1.0)

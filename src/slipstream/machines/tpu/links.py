"""What instructions move over the links of a TPU: ICI by axis, the network, the host's link."""

from __future__ import annotations

from slipstream.machines.machine import Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slice_transfer
from slipstream.machines.tpu.torus import link_rate, torus_time
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.signatures import copied_shape, result_shape

ICI_X, ICI_Y, ICI_Z, NETWORK, HOST_OUT, HOST_IN = range(6)
TPU_LINKS = ("ICI x", "ICI y", "ICI z", "network", "host link out", "host link in")
"""names, by number; there are as many as a GPU has"""


def tpu_loads(
    machine: Machine, program: Program, instruction: Instruction
) -> list[tuple[int, float, float]]:
    """(link, bytes, microseconds) of one execution; of a pair, pass the start."""
    if is_slice_transfer(instruction):
        return _between_slices(machine, program, instruction)
    collective = program.collective_of(instruction)
    if collective is not None:
        found = torus_time(machine, collective, instruction, program.device_ids)
        both_ways = 2 * link_rate(machine) / 1e6
        return [(axis, us * both_ways, us) for axis, us in found.busy_us]
    return _host_copy(machine, program, instruction)


def tpu_capacity(machine: Machine, link: int) -> float:
    """Bytes per second of a link, as published; of an axis of ICI, both directions."""
    if link in (ICI_X, ICI_Y, ICI_Z):
        return 2 * machine.tpu.ici_bandwidth / machine.tpu.devices_per_chip
    return machine.network.bandwidth if link == NETWORK else machine.tpu.host_bandwidth


def _between_slices(
    machine: Machine, program: Program, instruction: Instruction
) -> list[tuple[int, float, float]]:
    if instruction.opcode != "send":
        return []
    found = slice_transfer(machine, program, instruction)
    return [
        (NETWORK, found.bytes, found.network_us),
        (HOST_OUT, found.bytes, found.host_us),
        (HOST_IN, found.bytes, found.host_us),
    ]


def _host_copy(
    machine: Machine, program: Program, instruction: Instruction
) -> list[tuple[int, float, float]]:
    if not instruction.is_start:
        return []
    is_out = result_shape(instruction).on_host
    if not is_out and not any(one.shape.on_host for one in program.operands(instruction)):
        return []
    size = copied_shape(program, instruction).bytes
    us = 1e6 * size / machine.tpu.host_bandwidth
    return [(HOST_OUT if is_out else HOST_IN, float(size), us)]

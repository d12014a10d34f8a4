"""What a collective or a host copy moves over each link of a GPU.

                 ┌─────┐  NVLink out, in     ┌──────────┐
                 │ GPU │ ◄─────────────────► │ NVSwitch │ ◄──► the other GPUs of the host (or rack)
                 └──┬──┘                     └──────────┘
                    │ host link out, in      PCIe, or NVLink-C2C on Grace
              ┌─────┴───────┐
              │ PCIe switch │ ◄──► host memory
              └─────┬───────┘
                    │ network out, in        one network card per GPU: rail-optimised
                 ┌──┴──┐
                 │ NIC │ ◄──► the same GPU of other hosts
                 └─────┘

Each GPU has its own links in both directions. Data for the network crosses the GPU's host link too,
as in NVIDIA's DGX and HGX systems (GPUDirect RDMA). GPUs without NVLink reach each other over their
host links. Not modelled: the links between switches, and between PCIe switches and processors.

A load has the bytes that the algorithm (`nccl`) moves, and the time that they take at the rate it
reaches: two loads on one link take the sum of their times, however they overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.machines.collectives import chosen, slowest_group
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import parameters
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.nccl import Wire, channels
from slipstream.machines.tpu.links import TPU_LINKS, tpu_capacity, tpu_loads
from slipstream.profile.program import Collective, Instruction, Program
from slipstream.profile.semantics.signatures import result_shape

LINK_OUT, LINK_IN, NETWORK_OUT, NETWORK_IN, HOST_OUT, HOST_IN = range(6)
LINKS = ("NVLink out", "NVLink in", "network out", "network in", "host link out", "host link in")
"""names, by number"""


def link_names(machine: Machine) -> tuple[str, ...]:
    """The links of a device, by number."""
    return TPU_LINKS if machine.kind == "tpu" else LINKS


@dataclass(frozen=True)
class Load:
    """What one execution moves over one link."""

    link: int
    """index of LINKS"""
    bytes: float
    us: float
    """the time at the rate that its algorithm reaches"""


def capacity(machine: Machine, link: int) -> float:
    """Bytes per second of one link of a device, as published."""
    if machine.kind == "tpu":
        return tpu_capacity(machine, link)
    if link in (LINK_OUT, LINK_IN):
        return machine.gpu.link_bandwidth
    return machine.network.bandwidth if link in (NETWORK_OUT, NETWORK_IN) else _host(machine)


def loads(machine: Machine, program: Program, instruction: Instruction) -> tuple[Load, ...]:
    """The loads of one execution of an instruction; of a pair, pass the start."""
    if machine.kind == "tpu":
        return tuple(Load(*load) for load in tpu_loads(machine, program, instruction))
    collective = program.collective_of(instruction)
    if collective is not None:
        return collective_loads(machine, collective)
    return _copy_loads(machine, program, instruction)


def collective_loads(machine: Machine, collective: Collective) -> tuple[Load, ...]:
    """The loads of a GPU in the slowest group."""
    found = slowest_group(machine, collective)
    if found is None or found[0].size == 1:
        return ()
    group, estimate = found
    choice = chosen(machine, collective, group)
    # A calibrated time is that of links which are faster or slower than the model says.
    factor = estimate.us / choice.us
    times = _directed(choice.network, NETWORK_OUT, NETWORK_IN, factor)
    for load in times[:]:
        side = HOST_OUT if load.link == NETWORK_OUT else HOST_IN
        times.append(Load(side, load.bytes, _host_us(machine, load.bytes)))
    sides = (HOST_OUT, HOST_IN) if machine.gpu.link == "pcie" else (LINK_OUT, LINK_IN)
    return _summed([*_directed(choice.link, *sides, factor), *times])


def collective_channels(machine: Machine, collective: Collective) -> int:
    """The streaming multiprocessors that a collective occupies."""
    found = slowest_group(machine, collective)
    if found is None or found[0].size == 1:
        return 0
    choice = chosen(machine, collective, found[0])
    return channels(choice, collective.bytes, found[0])


def within(loads: tuple[Load, ...], us: float) -> tuple[Load, ...]:
    """Loads that fit into an execution's time, which may have been measured.

    An execution that is faster than the model of its links fills them, and no more.
    """
    return tuple(
        load if load.us <= us else Load(load.link, load.bytes * us / load.us, us)
        for load in loads
        if load.us and us > 0
    )


def program_loads(
    machine: Machine, program: Program, estimates: Mapping[str, Estimate]
) -> dict[str, tuple[Load, ...]]:
    """The loads of every instruction that has any, by name; they fit into its estimate."""
    found = {}
    for instruction in program.scheduled:
        estimate = estimates.get(instruction.name)
        # Kernels that the models know are kernels move nothing over links.
        if estimate is not None and estimate.kind in ("", "collective", "copy"):
            fitting = within(loads(machine, program, instruction), estimate.us)
            if fitting:
                found[instruction.name] = fitting
    return found


def _copy_loads(machine: Machine, program: Program, instruction: Instruction) -> tuple[Load, ...]:
    """A copy between the GPU and host memory."""
    is_out = result_shape(instruction).on_host
    if not is_out and not any(one.shape.on_host for one in program.operands(instruction)):
        return ()
    features = kernel_features(program, instruction)
    if features.kind != "host copy":
        return ()
    link = HOST_OUT if is_out else HOST_IN
    return (Load(link, features.bytes, _host_us(machine, features.bytes)),)


def _directed(wire: Wire, out: int, into: int, factor: float) -> list[Load]:
    """Both directions of what an algorithm moves; the busier one takes the wire's time."""
    most = max(wire.out_bytes, wire.in_bytes)
    return [
        Load(link, moved, factor * wire.us * moved / most)
        for link, moved in ((out, wire.out_bytes), (into, wire.in_bytes))
        if moved
    ]


def _summed(loads: list[Load]) -> tuple[Load, ...]:
    """One load for each link."""
    links = dict.fromkeys(load.link for load in loads)
    return tuple(
        Load(
            link,
            sum(load.bytes for load in loads if load.link == link),
            sum(load.us for load in loads if load.link == link),
        )
        for link in links
    )


def _host(machine: Machine) -> float:
    """A network that is faster than the host's link must reach the GPU in another way."""
    return max(machine.gpu.host_bandwidth, machine.network.bandwidth)


def _host_us(machine: Machine, moved: float) -> float:
    """At the rate of copies between GPU and host."""
    return float(1e6 * moved / (_host(machine) * parameters()["host_copy"]["share"]))

"""How much kernels and collectives slow each other when they run at the same time.

A collective of NCCL runs on as many streaming multiprocessors (SMs) as it has channels, and reads
and writes memory. It slows the kernels beside it, and they slow it:

    SMs  0 ─┬─────────────┐
            │  kernel     │   blocks of a kernel with many blocks use the SMs that are left;
            │             │   a kernel of one block per SM starts its last blocks late, when the
        107 ┼─────────────┤   collective or its own first blocks have ended
            │  NCCL       │
        131 ┴─────────────┘

All of this is for modelled times; measured ones contain it. Where the figures come from, and how
sure they are:

- `LATE`: Nsight recordings of FSDP on four A100 (`nsysjax_pax_fsdp4_a100`, github.com/NVIDIA/
  JAX-Toolbox) have 39 cuBLAS and Triton products of 0.1 to 0.3 ms beside all-gathers: in the median
  of each shape they take 1.72 to 2.06 times as long as alone. An H100 with 24 of 132 SMs taken
  slows a product of 132 blocks from 80% to 47% of its peak, 1.70 times (forums.developer.nvidia.com
  topic 337991). On an H200 (tests/data), all of cuBLAS's products and cuDNN's attention have 132
  blocks with 200 KB of shared memory, which leave no room beside them. Against it: products of 5 ms
  on A3 Mega (H100, 2024; the costs that MaxText published) vary by no more than 10%. So 1.1 to 2.1.
- Other kernels lose the SMs that the collective takes, if memory doesn't limit them. In the A100
  recordings, beside all-gathers that wait for their peers (24 of 108 SMs taken, no traffic):
  reductions at 0.5 of the memory's rate +26 to +28%, elementwise kernels at 0.67 +13 to +17%,
  reductions at 0.77 +3 to +18%. `1 - u²` of the SMs, with u the share of the memory's rate, gives
  +20%, +14% and +10%.
- Products and attention lose two thirds of that: they run at the power cap (an H200 at 1.5 to
  1.6 GHz of 1.98), where SMs that are left to the collective save power, and power is about the
  cube of the clock. The costs on A3 Mega show products 1 to 6% slower than modelled ones alone,
  with 12% of the SMs taken; two thirds give 9%. This was chosen with those costs in view.
- With traffic, the last of these lose 8 to 10% more of their speed, beside all-gathers that read
  what they send and write what they receive, 13% of the memory's rate. `u` times that share gives
  10%.
- `BESIDE_KERNELS`: in the same recordings, an all-gather of 77 MB takes 375 µs with little compute
  beside it and 415 µs hidden (+11%); reduce-scatters hardly differ. So 0 to 15%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.machines.links import (
    HOST_IN,
    HOST_OUT,
    LINK_IN,
    LINK_OUT,
    Load,
    collective_channels,
)
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.traffic import bytes_accessed

DENSE = ("gemm", "attention", "convolution")
"""kinds of kernels that tensor cores run"""
LATE = 1 - 1 / 1.75
"""the share of speed that a kernel with one block per SM loses beside a collective"""
BESIDE_KERNELS = 0.1
"""the share of speed that a collective loses beside kernels"""
AT_POWER_CAP = 2 / 3
"""the share of lost SMs that slows a kernel whose clock the power cap decides"""
REACHED = 0.92
"""the share of its memory's bandwidth that a GPU reaches (`kernels.json`)"""


@dataclass(frozen=True)
class Contention:
    """What an instruction takes from others, and what it loses beside them, as shares."""

    cores: float = 0.0
    """SMs that a collective takes"""
    memory: float = 0.0
    """of the memory's rate that a collective takes"""
    loses: float = 0.0
    """of its speed, beside any work of the other sort"""
    loses_by_cores: float = 0.0
    """of its speed, for each share of SMs that collectives take"""
    loses_by_memory: float = 0.0
    """of its speed, for each share of the memory's rate that collectives take"""


NONE = Contention()


def contention(
    program: Program,
    machine: Machine,
    instruction: Instruction,
    estimate: Estimate,
    loads: tuple[Load, ...] = (),
) -> Contention:
    """The contention of one instruction; of a pair, pass the start."""
    is_modelled = estimate.basis != "measured"
    collective = program.collective_of(instruction)
    rate = machine.gpu.memory_bandwidth * REACHED * max(estimate.us, 1e-9) / 1e6
    if collective is not None:
        return Contention(
            cores=collective_channels(machine, collective) / machine.gpu.cores,
            memory=min(1.0, _moved(loads) / rate),
            loses=BESIDE_KERNELS * is_modelled,
        )
    if not is_modelled:
        return NONE
    if _has_one_block_per_sm(program, instruction, estimate):
        return Contention(loses=LATE)
    used = min(1.0, bytes_accessed(program, instruction) / rate)
    by_cores = (1 - used**2) * (AT_POWER_CAP if estimate.kind in DENSE else 1.0)
    return Contention(loses_by_cores=by_cores, loses_by_memory=used)


def contentions(
    program: Program,
    machine: Machine,
    estimates: Mapping[str, Estimate],
    loads: Mapping[str, tuple[Load, ...]],
) -> dict[str, Contention]:
    """Of every instruction that has an estimate, by name; empty if nothing communicates."""
    known = [(i, estimates[i.name]) for i in program.scheduled if i.name in estimates]
    if all(program.collective_of(instruction) is None for instruction, _ in known):
        return {}
    return {
        instruction.name: contention(
            program, machine, instruction, estimate, loads.get(instruction.name, ())
        )
        for instruction, estimate in known
    }


def _moved(loads: tuple[Load, ...]) -> float:
    """Bytes that a collective reads and writes: what it sends and receives.

    What goes over the network also goes over the host link, which is counted instead.
    """
    sides = (LINK_OUT, LINK_IN, HOST_OUT, HOST_IN)
    return sum(load.bytes for load in loads if load.link in sides)


def _has_one_block_per_sm(program: Program, instruction: Instruction, estimate: Estimate) -> bool:
    """Whether a library runs it: products of cuBLAS, attention and convolutions of cuDNN."""
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    opcode = (inner or instruction).opcode
    return opcode == "custom-call" and estimate.kind in DENSE

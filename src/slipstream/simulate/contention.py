"""How much kernels and collectives slow each other when they run at the same time.

A collective of NCCL runs on as many streaming multiprocessors (SMs) as it has channels, and reads
and writes memory. It slows the kernels beside it, and they slow it:

    SMs  0 ─┬───────────┬──────────┬────┐
            │  tiles    │  tiles   │late│   the tiles of a product run in waves on the SMs that are
            │           │          │wave│   left, and some of them start after all others
        107 ┼───────────┴──────────┴────┤
            │  NCCL                     │
        131 ┴───────────────────────────┘

All of this is for modelled times; measured ones contain it. NCCL's blocks leave no room for other
blocks on their SMs: 640 threads with 96 registers each are 94% of the registers (as recorded on an
H200, tests/data/nccl2_lhs_r0). Where the figures come from, and how sure they are:

- Kernels that their SMs limit lose the share of SMs that is taken, `cores`; kernels that memory
  limits lose the share of the memory's rate, `memory`. Between the two, for a kernel that alone
  uses the share u of the memory's rate, `1 - u³` and `u³` of them count (`STEEPNESS`).
- Products lose part of a wave besides (`LATE_WAVE`). Products and attention on an H200, beside a
  kernel that held 1 to 32 of 132 SMs (tests/data/accuracy/contention.json): 43 rows are described
  with a mean error of 2.2%, at worst 7.3%. The names of the kernels were not recorded; XLA chose
  Triton's for three of the four shapes on the same day. For cuBLAS there is less: beside NCCL on 2
  SMs of an H200 (nccl2_lhs_r0), 16384 × 4096 × 1024 takes 1.08 times as long (1.05 here), and 64
  products of 128 × 2048 × 2048 take 1.03 times as long (1.17 here). An H100 with 24 SMs taken slows
  a product of one wave 1.70 times (1.72 here; forums.developer.nvidia.com topic 337991).
- A product of a single wave is the least certain. 2048 × 2048 × 2048 took 1.30 times as long beside
  16 to 32 SMs that only waited, with room for one of its blocks, and 1.00 times beside 8 of them.
  Here it is 1.6 to 1.8 times, as beside SMs that copied memory.
- `BEFORE_HOPPER`: Nsight recordings of FSDP on four A100 (`nsysjax_pax_fsdp4_a100`, github.com/
  NVIDIA/JAX-Toolbox) have products of cuBLAS, 1 to 7 waves in 0.1 to 0.3 ms, beside all-gathers:
  they take 1.7 to 2.1 times as long as alone, by shape. The model above would say 1.4 to 1.8.
  What else slows them is not known, so this is used for libraries on GPUs before Hopper.
- Other kernels, in the same recordings, beside all-gathers that wait for their peers (24 of 108
  SMs taken, no traffic): reductions with u = 0.5 +26 to +28% (+24% here), elementwise kernels with
  0.67 +13 to +17% (+18% here), reductions with 0.77 +3 to +18% (+14% here). All-gathers that move
  13% of the memory's rate cost the last 8 to 10% of their speed (6% here). On the H200 the
  kernel that held SMs had few registers and left room beside it: such kernels took 0 to 8% longer
  beside 32 SMs that waited, not 15 to 22%.
- At the power cap, SMs that compute less leave power for a higher clock: `power_cap` counts it for
  the step as a whole. The rows of the H200 are bursts below the cap.
- `BESIDE_KERNELS`: in the recordings on A100, an all-gather of 77 MB takes 375 µs with little
  compute beside it and 415 µs hidden (+11%); reduce-scatters hardly differ. So 0 to 15%.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from slipstream.machines.gemm_model import waves
from slipstream.machines.kernel_features import kernel_features
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
PRODUCTS = ("gemm", "convolution")
"""those of them that run in waves of tiles; attention showed no late wave"""
LATE_WAVE = 0.6
"""the time of a product's late wave, over that of its others"""
STEEPNESS = 3
"""how sharply kernels change from being limited by their SMs to being limited by memory"""
BEFORE_HOPPER = 1 - 1 / 1.75
"""the share of speed that kernels of libraries lose beside a collective, on GPUs before Hopper"""
HOPPER = (9, 0)
BESIDE_KERNELS = 0.1
"""the share of speed that a collective loses beside kernels"""
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
    if machine.gpu.compute_capability < HOPPER and _is_library(program, instruction, estimate):
        return Contention(loses=BEFORE_HOPPER)
    by_memory = min(1.0, bytes_accessed(program, instruction) / rate) ** STEEPNESS
    late = _late(program, machine, instruction, estimate) * (1 - by_memory)
    # A product ends with a late wave, however few SMs are taken. If half of them are, all waves
    # take twice as long, and none is later than the others. Between the two, by the share of SMs.
    return Contention(
        loses=late / (1 + late),
        loses_by_cores=(1 - by_memory) * (1 - late) / (1 + late),
        loses_by_memory=by_memory,
    )


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


def _late(
    program: Program, machine: Machine, instruction: Instruction, estimate: Estimate
) -> float:
    """The late wave of a product, over the time of all its waves."""
    if estimate.kind not in PRODUCTS:
        return 0.0
    gemm = kernel_features(program, instruction).gemm
    return LATE_WAVE / waves(gemm, machine.gpu) if gemm is not None else 0.0


def _is_library(program: Program, instruction: Instruction, estimate: Estimate) -> bool:
    """Whether a library runs it: products of cuBLAS, attention and convolutions of cuDNN."""
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    opcode = (inner or instruction).opcode
    return opcode == "custom-call" and estimate.kind in DENSE

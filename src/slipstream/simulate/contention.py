"""How much kernels and collectives slow each other when they run at the same time.

A collective of NCCL runs on as many streaming multiprocessors (SMs) as it has channels, and reads
and writes memory. It slows the kernels beside it, and they slow it:

    SMs  0 ─┬───────────┬──────────┬────┐
            │  tiles    │  tiles   │late│   the tiles of a product run in waves on the SMs that are
            │           │          │wave│   left, and some of them start after all others
        107 ┼───────────┴──────────┴────┤
            │  NCCL                     │
        131 ┴───────────────────────────┘

All of this is for modelled times; measured ones contain it. Most of it was recorded on an H200
beside a kernel that held 1 to 32 of its 132 SMs (tests/data/accuracy/contention.json). Its blocks
are like NCCL's and leave no room for others on their SMs: 640 threads with 96 registers each are
94% of the registers, as NCCL had in tests/data/nccl2_lhs_r0. Errors are of the time beside it:

- Kernels that their SMs limit lose the share of SMs that is taken, `cores`. Attention of cuDNN (10
  rows): 0 to +4%. Why it loses a seventh less than the share is not known.
- A kernel that alone uses the share u of the memory's rate is limited by its SMs alone up to
  `CORE_BOUND`, and not at all from `MEMORY_BOUND` on. Elementwise with u = 0.64 (10 rows): -2 to
  +2%. A copy with 0.76 and a sum of rows with 1, beside SMs that wait (10 rows): -7 to +5%.
- What a collective takes of the memory's rate, `memory`, a kernel with u = 1 loses, one below
  `CORE_BOUND` does not, those between lose part of it. The copy beside SMs that move 5 to 30% of
  the rate (5 rows): +2 to +12%, because they first take what the copy leaves.
- Products lose most of a wave besides (`LATE_WAVE`): blocks that can't start with the others start
  when those end. cuBLAS, 6 to 54 waves (60 rows): mean 2.3%, -4 to +8%. With 24 SMs taken they are
  as fast as with 16, why is not known; the model is 4 to 8% slow there.
- Products of one wave beside 8 to 32 SMs: cuBLAS takes 1.84 to 1.94 times as long (8 rows: -8 to
  +1%), Triton 1.59 to 1.77 times beside SMs that move memory (4 rows: +5 to +12%), and 1.41 if they
  wait (4 rows: +26 to +32%). One constant is for both: a program that was compiled without a GPU
  doesn't say which of them XLA would choose on one.
- Beside 1 SM these took 1.01 to 1.08 times as long: all blocks still found room. The model doesn't
  count blocks, and says 1.75. Likewise 64 products of 128 × 2048 × 2048 beside NCCL on 2 SMs: 1.03
  times (1.21 here); 16384 × 4096 × 1024 there: 1.08 times (1.06 here).
- On four A100 beside all-gathers (`nsysjax_pax_fsdp4_a100`, github.com/NVIDIA/JAX-Toolbox; 24 of
  108 SMs taken): while they wait, kernels with u = 0.5 take 26 to 28% longer (29% here), with 0.67
  13 to 17% (17%), with 0.77 3 to 18% (3%). Where they move 13% of the memory's rate, the last lose
  8 to 10% of their speed (6%).
- `BEFORE_HOPPER`: in the same recordings products of cuBLAS, 1 to 7 waves in 0.1 to 0.3 ms, take
  1.7 to 2.1 times as long as alone, by shape. The model above would say 1.4 to 1.9. What else slows
  them is not known, so this is used for libraries on GPUs before Hopper.
- At the power cap, SMs that compute less leave power for a higher clock: `power_cap` counts it for
  the step as a whole. The rows of the H200 are bursts.
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
LATE_WAVE = 0.75
"""the time of a product's late wave, over that of its others"""
CORE_BOUND = 0.6
"""the share of the memory's rate up to which a kernel is limited by its SMs alone"""
MEMORY_BOUND = 0.8
"""the share of the memory's rate from which on fewer SMs make a kernel no slower"""
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
    used = bytes_accessed(program, instruction) / rate
    by_cores = 1 - _between(CORE_BOUND, MEMORY_BOUND, used)
    late = _late(program, machine, instruction, estimate) * by_cores
    # A product ends with a late wave, however few SMs are taken. If half of them are, all waves
    # take twice as long, and none is later than the others. Between the two, by the share of SMs.
    return Contention(
        loses=late / (1 + late),
        loses_by_cores=by_cores * (1 - late) / (1 + late),
        loses_by_memory=_between(CORE_BOUND, 1.0, used),
    )


def contentions(
    program: Program,
    machine: Machine,
    estimates: Mapping[str, Estimate],
    loads: Mapping[str, tuple[Load, ...]],
) -> dict[str, Contention]:
    """Of every instruction that has an estimate, by name; empty if nothing communicates."""
    if machine.kind == "tpu":
        return {}  # links and copies have their own engines, which take nothing from the cores
    known = [(i, estimates[i.name]) for i in program.scheduled if i.name in estimates]
    if all(program.collective_of(instruction) is None for instruction, _ in known):
        return {}
    return {
        instruction.name: contention(
            program, machine, instruction, estimate, loads.get(instruction.name, ())
        )
        for instruction, estimate in known
    }


def _between(low: float, high: float, value: float) -> float:
    """Where a value lies between two others: 0 up to the lower, 1 from the higher on."""
    return min(1.0, max(0.0, (value - low) / (high - low)))


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

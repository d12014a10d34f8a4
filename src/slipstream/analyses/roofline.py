"""How near each op is to what the hardware allows, and how well the step uses the GPU.

time at best = the longer of   floating-point operations ÷ the peak of their type
                               bytes read and written    ÷ the memory's bandwidth

The first is longer: compute-bound; the second: memory-bound.  Work is counted from the program as
XLA's own cost analysis counts it.  MFU counts the work that the model needs once: what is computed
again to save memory (remat) is left out; HFU counts all of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from slipstream.analyses.collectives import known_gpu
from slipstream.analyses.labels import collective_of, found_instruction
from slipstream.analyses.ops import Op, ops
from slipstream.analyses.summary import step_times
from slipstream.machines.gemm_model import tensor_dtype
from slipstream.machines.machine import Gpu
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.flops import Work, work

_PRODUCTS = ("matmul", "attention", "convolution")
VECTOR = "f32"
"""what everything but matrix products is counted as: cores without their tensor units"""


@dataclass(frozen=True)
class RooflineRow:
    """One op against the roof; times are of one step."""

    program: str
    instruction: str
    count: int
    per_step_us: float
    flops: int
    """of one execution"""
    bytes: int
    """read and written by one execution"""
    dtype: str
    """whose peak counts: of matrix products, as tensor cores take it"""
    best_us: float | None
    """what the step's executions would take at the roof; None if the GPU isn't known"""
    roof_share: float | None
    """best over measured time; above 1 where data stayed in caches"""
    bound: str
    """`compute` or `memory`; empty if the GPU isn't known"""
    flops_rate: float
    """achieved, per second"""
    bytes_rate: float
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""

    @property
    def lost_us(self) -> float:
        """What a step would win if this op ran at the roof."""
        return max(0.0, self.per_step_us - self.best_us) if self.best_us is not None else 0.0


@dataclass(frozen=True)
class Roofline:
    """The step against the roof."""

    model: str
    steps: int
    step_us: float
    dtype: str
    """type that most of the floating-point work is done in"""
    peak_flops: float | None
    """of that type, per second"""
    memory_bandwidth: float | None
    flops: float
    """of one step of one device"""
    remat_flops: float
    """the part of it that is computed again"""
    bytes: float
    mfu: float | None
    """model FLOP utilisation: without what is computed again"""
    hfu: float | None
    """hardware FLOP utilisation: with it"""
    counted_share: float
    """share of device time whose work is known"""
    rows: tuple[RooflineRow, ...]
    """what loses most against the roof first"""
    notes: tuple[str, ...] = ()


def roofline(profile: Profile) -> Roofline:
    """Every op that computes against the roof, and the step's MFU."""
    found = ops(profile)
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = known_gpu(model)
    steps = max(1, len(profile.steps)) if found.steps else 1
    rows, counted = [], 0.0
    for op in found.ops:
        row = _row(profile, op, hardware, steps)
        if row is not None:
            rows.append(row)
            counted += op.share
    rows.sort(key=lambda row: (-row.lost_us, -row.per_step_us, row.instruction))
    return _result(profile, model, hardware, rows, found.steps, steps, counted)


def _result(
    profile: Profile,
    model: str,
    hardware: Gpu | None,
    rows: list[RooflineRow],
    counted_steps: int,
    steps: int,
    counted: float,
) -> Roofline:
    by_type: dict[str, float] = {}
    total = again = moved = 0.0
    for row in rows:
        flops = row.flops * row.count / steps
        total += flops
        again += flops if row.phase == "remat" else 0.0
        moved += row.bytes * row.count / steps
        by_type[row.dtype] = by_type.get(row.dtype, 0.0) + flops
    dtype = max(by_type, key=lambda one: by_type[one], default="")
    peak = hardware.peak_flops.get(dtype) if hardware else None
    step_us = step_times(profile).wall_us
    can = peak * step_us * 1e-6 if peak and step_us else None
    notes = []
    if hardware is None:
        notes.append(
            f"{model or 'the device'} is not among the GPUs we know, so there is no roof; "
            "see: slipstream machines list"
        )
    return Roofline(
        model,
        counted_steps,
        step_us,
        dtype,
        peak,
        hardware.memory_bandwidth if hardware else None,
        total,
        again,
        moved,
        (total - again) / can if can and total else None,
        total / can if can and total else None,
        counted,
        tuple(rows),
        tuple(notes),
    )


def _row(profile: Profile, op: Op, hardware: Gpu | None, steps: int) -> RooflineRow | None:
    """None for what neither computes nor moves data within the device's memory."""
    found = found_instruction(profile, op.program, op.instruction)
    if found is None or not op.total_us:
        return None
    program, instruction = found
    if collective_of(program, instruction) is not None or op.category == "host copy":
        return None
    done = work(program, program.starter(instruction.name) or instruction)
    dtype = _dtype(program, instruction, op.category)
    best = _best_us(done, dtype, hardware)
    seconds = op.total_us * 1e-6
    return RooflineRow(
        op.program,
        op.instruction,
        op.count,
        op.per_step_us,
        done.flops,
        done.bytes,
        dtype,
        max(best) * op.count / steps if best else None,
        max(best) * op.count / op.total_us if best else None,
        ("compute" if best[0] > best[1] else "memory") if best else "",
        done.flops * op.count / seconds,
        done.bytes * op.count / seconds,
        op.phase,
        op.category,
        op.scope,
        op.source,
        op.description,
    )


def _best_us(done: Work, dtype: str, hardware: Gpu | None) -> tuple[float, float] | None:
    """(µs of arithmetic, µs of memory traffic) of one execution at the roof."""
    if hardware is None:
        return None
    peak = hardware.peak_flops.get(dtype) or hardware.peak_flops[VECTOR]
    return done.flops / peak * 1e6, done.bytes / hardware.memory_bandwidth * 1e6


def _dtype(program: Program, instruction: Instruction, category: str) -> str:
    if category not in _PRODUCTS:
        return VECTOR
    product = _product(program, instruction)
    for operand in program.operands(product):
        for leaf in operand.shape.leaves():
            if leaf.is_float:
                precision = str(product.attributes.get("operand_precision", ""))
                return tensor_dtype(leaf.dtype, precision or product.backend_config)
    return VECTOR


def _product(program: Program, instruction: Instruction) -> Instruction:
    """The matrix product inside an instruction, or itself."""
    wanted = ("dot", "scaled-dot", "ragged-dot", "convolution", "custom-call")
    for name in instruction.called if instruction.opcode != "custom-call" else ():
        for inner in program.computations[name].instructions:
            if inner.opcode in wanted:
                return inner
    return instruction

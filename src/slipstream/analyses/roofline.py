"""How close each op is to the hardware's limits, and how well the step uses the GPU.

best time = the longer of   floating-point operations ÷ peak rate of their type
                            bytes read and written    ÷ memory bandwidth

If the first is longer, the op is compute-bound; if the second, memory-bound.  Work is counted from
the program, as in XLA's cost analysis.  On a TPU, only bytes that cross HBM count: what is in VMEM
or on the host is left out.  MFU leaves out what is recomputed to save memory (remat); HFU counts
all work.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

from slipstream.analyses.collectives import known_chip
from slipstream.analyses.labels import collective_of, found_instruction
from slipstream.analyses.op_groups import grouped, layer_key
from slipstream.analyses.ops import Op, ops
from slipstream.analyses.summary import step_times
from slipstream.inline import Inline
from slipstream.machines.gemm_model import peak_of, tensor_dtype
from slipstream.machines.machine import Gpu, Tpu
from slipstream.profile.profile import Profile
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import call_attributes
from slipstream.profile.semantics.flops import Work, work
from slipstream.profile.semantics.layers import rolled_description, rolled_scope
from slipstream.profile.semantics.traffic import device_bytes
from slipstream.profile.timeline.steps import averaged_over

_PRODUCTS = ("matmul", "attention", "convolution")
_SMALL_INTEGERS = ("s8", "u8", "s4", "u4")
VECTOR = "f32"
"""the type whose peak counts for everything but matrix products: CUDA cores, not tensor cores"""


@dataclass(frozen=True)
class RooflineRow:
    """One op against the roofline; times are means per step."""

    program: str
    instruction: str
    count: int
    per_step_us: float
    flops: int
    """of one execution"""
    bytes: int
    """read from and written to the device's memory by one execution"""
    dtype: str
    """the type whose peak counts; for matrix products, the type that tensor cores compute in"""
    best_us: float | None
    """time per step at the roofline; None if the GPU is unknown, or if it has no work to count"""
    roof_share: float | None
    """best time over measured time; above 1 if data stayed in caches"""
    bound: str
    """`compute` or `memory`; empty where `best_us` is None"""
    flops_rate: float
    """achieved, per second"""
    bytes_rate: float
    phase: str = ""
    category: str = ""
    scope: str = ""
    source: str = ""
    description: str = ""
    shapes: str = ""
    """operands and result"""

    @property
    def lost_us(self) -> float:
        """What a step would gain if this op ran at the roofline."""
        return max(0.0, self.per_step_us - self.best_us) if self.best_us is not None else 0.0


@dataclass(frozen=True)
class RooflineGroup(RooflineRow):
    """Equal ops of unrolled layers: `instruction` is the one that loses most.

    Times and counts are sums; shares and rates are those of all executions.
    """

    instructions: tuple[str, ...] = ()
    """all of them, the largest loss first"""


@dataclass(frozen=True)
class Roofline(Inline):
    """The step against the roofline."""

    model: str
    steps: int
    step_us: float
    dtype: str
    """type of most floating-point work"""
    peak_flops: float | None
    """of that type, per second"""
    memory_bandwidth: float | None
    flops: float
    """of one step of one device"""
    remat_flops: float
    """the part of `flops` that is recomputed"""
    bytes: float
    mfu: float | None
    """model FLOP utilisation: without recomputation"""
    hfu: float | None
    """hardware FLOP utilisation: with recomputation"""
    counted_share: float
    """share of device time whose work is known"""
    rows: tuple[RooflineRow, ...]
    """by time lost against the roofline, largest first"""
    notes: tuple[str, ...] = ()

    @cached_property
    def groups(self) -> tuple[RooflineGroup, ...]:
        """The rows with equal ops as one, the largest loss first."""
        merged = [_merged(same) for same in grouped(self.rows, _equality)]
        return tuple(sorted(merged, key=_by_loss))


def _by_loss(row: RooflineRow) -> tuple[float, float, str]:
    return (-row.lost_us, -row.per_step_us, row.instruction)


def _equality(row: RooflineRow) -> Hashable:
    if not row.description:
        return (row.program, row.instruction)  # nothing tells what else it equals
    return (*layer_key(row), row.shapes, row.category, row.flops, row.bytes, row.dtype, row.bound)


def _merged(rows: Sequence[RooflineRow]) -> RooflineGroup:
    values = {one.name: getattr(rows[0], one.name) for one in fields(RooflineRow)}
    if len(rows) > 1:
        count, us = sum(row.count for row in rows), sum(row.per_step_us for row in rows)
        best = [row.best_us for row in rows if row.best_us is not None]
        known = len(best) == len(rows)
        # Equal ops do equal work, so a rate is as much lower as the time is longer.
        slower = us / count / (rows[0].per_step_us / rows[0].count)
        values |= {
            "count": count,
            "per_step_us": us,
            "best_us": sum(best) if known else None,
            "roof_share": sum(best) / us if known else None,
            "flops_rate": rows[0].flops_rate / slower,
            "bytes_rate": rows[0].bytes_rate / slower,
            "scope": rolled_scope(rows[0].scope),
            "description": rolled_description(rows[0].description),
        }
    return RooflineGroup(**values, instructions=tuple(row.instruction for row in rows))


def roofline(profile: Profile, chip: Gpu | Tpu | None = None) -> Roofline:
    """Every compute op against the roofline, and the step's MFU.

    `chip` is the GPU or TPU whose peaks count; by default, the one that the profile names.
    """
    found = ops(profile)
    model = next((device.model for device in profile.devices if device.model), "")
    hardware = chip or known_chip(model)
    steps = averaged_over(profile, whole=not found.steps)
    rows, counted = [], 0.0
    for op in found.ops:
        row = _row(profile, op, hardware, steps)
        if row is not None:
            rows.append(row)
            counted += op.share
    rows.sort(key=_by_loss)
    return _result(profile, model, hardware, rows, found.steps, steps, counted)


def _result(
    profile: Profile,
    model: str,
    hardware: Gpu | Tpu | None,
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
    peak = peak_of(hardware, dtype) if hardware and dtype else None
    step_us = step_times(profile).wall_us
    can = peak * step_us * 1e-6 if peak and step_us else None
    notes = []
    if hardware is None:
        notes.append(
            f"{model or 'the device'} is not in the catalogue, so there is no roofline; "
            "see: slipstream machines list"
        )
    return Roofline(
        model=model,
        steps=counted_steps,
        step_us=step_us,
        dtype=dtype,
        peak_flops=peak,
        memory_bandwidth=hardware.memory_bandwidth if hardware else None,
        flops=total,
        remat_flops=again,
        bytes=moved,
        mfu=(total - again) / can if can and total else None,
        hfu=total / can if can and total else None,
        counted_share=counted,
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _row(profile: Profile, op: Op, hardware: Gpu | Tpu | None, steps: int) -> RooflineRow | None:
    """None for ops that neither compute nor move data within the device's memory."""
    found = found_instruction(profile, op.program, op.instruction)
    if found is None or not op.total_us:
        return None
    program, instruction = found
    if collective_of(program, instruction) is not None or op.category == "host copy":
        return None
    if instruction.is_start and any(lane.role == "windows" for lane in profile.lanes):
        return None  # the core only starts it; what it takes is not recorded
    done = _work(program, program.starter(instruction.name) or instruction)
    dtype = _dtype(program, instruction, op.category)
    if hardware is not None and dtype == "tf32" and dtype not in hardware.peak_flops:
        dtype = VECTOR  # TPUs, and GPUs without tf32
    best = _best_us(done, dtype, hardware)
    seconds = op.total_us * 1e-6
    return RooflineRow(
        program=op.program,
        instruction=op.instruction,
        count=op.count,
        per_step_us=op.per_step_us,
        flops=done.flops,
        bytes=done.bytes,
        dtype=dtype,
        best_us=max(best) * op.count / steps if best else None,
        roof_share=max(best) * op.count / op.total_us if best else None,
        bound=("compute" if best[0] > best[1] else "memory") if best else "",
        flops_rate=done.flops * op.count / seconds,
        bytes_rate=done.bytes * op.count / seconds,
        phase=op.phase,
        category=op.category,
        scope=op.scope,
        source=op.source,
        description=op.description,
        shapes=op.shapes,
    )


def _work(program: Program, instruction: Instruction) -> Work:
    """The work of one execution, with the bytes that cross the device's memory."""
    done = work(program, instruction)
    if not done.bytes:
        return done
    inner = program.wrapped(instruction.name) if instruction.is_start else None
    return replace(done, bytes=device_bytes(program, inner or instruction))


def _best_us(done: Work, dtype: str, hardware: Gpu | Tpu | None) -> tuple[float, float] | None:
    """(µs of arithmetic, µs of memory traffic) of one execution at the roofline."""
    if hardware is None or not (done.flops or done.bytes):
        return None
    peak = peak_of(hardware, dtype)
    return done.flops / peak * 1e6, done.bytes / hardware.memory_bandwidth * 1e6


def _dtype(program: Program, instruction: Instruction, category: str) -> str:
    if category not in _PRODUCTS:
        if instruction.opcode != "custom-call":
            return VECTOR
        # Matmuls of a Pallas kernel, as they were counted in its code.
        return str(call_attributes(instruction).get("slipstream_dtype", "")) or VECTOR
    product = _product(program, instruction)
    for operand in program.operands(product):
        for leaf in operand.shape.leaves():
            if leaf.dtype in _SMALL_INTEGERS:
                return "s8"
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

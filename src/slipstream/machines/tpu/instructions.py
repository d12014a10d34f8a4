"""How long an instruction takes on a TPU's cores, or as a copy between its memories.

XLA:TPU writes the cycles that it expects into most instructions, and its scheduler counts on them.
Those of products come from a model. Those of other operations don't (`COST_MODEL_TYPE_INVALID`):
they follow the number of elements, whatever their size (on v5e 1.7 ms to copy 101 M elements, 201
or 403 MB), and are two to ten times what HBM needs. These, and what has no cycles, are modelled
here by what they read, compute and write; such cycles are an upper limit.

    the compiler's cycles     802,820 cycles at 1.50 GHz: products, and what is fused with them
    elementwise, layouts      their bytes in HBM and VMEM, or their vector operations
    copies                    to VMEM and back (DMA) at HBM's bandwidth, to the host at its link's
    Pallas kernels            the FLOPs and bytes that their author states, else their operands
    scalars, small values     the time that XLA gives to the smallest operations
    gathers, scatters, sorts  every byte once: a default, which is at least what they take
"""

from __future__ import annotations

from dataclasses import replace

from slipstream.machines.kernel_model import CALLBACK_US
from slipstream.machines.machine import Estimate, Machine
from slipstream.machines.tpu.slices import is_slice_transfer, slice_estimate
from slipstream.machines.tpu.torus import torus_estimate
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.attention import Attention, attention_of
from slipstream.profile.semantics.backend_config import (
    TPU_KERNEL,
    estimated_cycles,
    has_cost_model,
    megacore,
    stated_work,
)
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.flops import work
from slipstream.profile.semantics.signatures import COPY_STARTS, copied_shape, result_shape
from slipstream.profile.semantics.traffic import bytes_accessed
from slipstream.profile.shapes import HOST_MEMORY, Shape
from slipstream.units import format_bytes

HBM_CYCLES = 2000
"""of the smallest operations that read or write HBM, by XLA's own estimates (v5e: 1,826 to 2,050
for 2 bytes to 16 kB)"""
CORE_CYCLES = 20
"""of the smallest operations on values in VMEM and SMEM, by XLA's own estimates (17 to 48)"""
VMEM_RATE = 22.0
"""bandwidth of VMEM relative to HBM's: jax-ml.github.io/scaling-book/tpus"""
VECTOR_LANES = 8 * 128 * 4
"""results of a core's vector unit in a cycle: jax-ml.github.io/scaling-book/tpus"""
SCORE_OPERATIONS = 10
"""vector operations on each score of attention forward, an assumption: scale, mask, maximum,
difference, exponential, sum, cast, and what they are loaded and stored with"""
TRANSCENDENTAL_OPERATIONS = 4
"""vector operations for an exponential, a root, …: their unit has a lane for four of the others"""
HBM_SHARE = 0.9
"""of its bandwidth that operations reach, an assumption: 0.92 on an H200"""
BLOCK = 512
"""queries and keys of a block, usually"""
SMALL_BYTES = 16_384
"""up to here an operation's time is that of starting it"""
HBM, VMEM = 0, 1
_KINDS = {
    "matmul": "gemm",
    "convolution": "convolution",
    "data movement": "copy",
    "host copy": "copy",
    "attention": "attention",
}
"""kind of the Estimate by category; others are `fusion`"""
_UNKNOWN = ("gather", "scatter", "sort", "random", "custom call")


def tpu_estimate(machine: Machine, program: Program, instruction: Instruction) -> Estimate:
    """The time of one execution of an instruction; of a pair, pass the start."""
    if is_slice_transfer(instruction):
        return slice_estimate(machine, program, instruction)
    collective = program.collective_of(instruction)
    if collective is not None:
        return torus_estimate(machine, collective, instruction, program.device_ids)
    kind = _KINDS.get(category(program, instruction), "fusion")
    if instruction.opcode in COPY_STARTS:
        return _copy(machine, program, instruction)
    if instruction.opcode in ("send", "recv"):
        return _callback(machine, instruction)
    cycles = estimated_cycles(instruction)
    if instruction.custom_call_target == TPU_KERNEL and cycles is None:
        return _kernel(machine, program, instruction)
    own = None
    if cycles is None or not has_cost_model(instruction):
        own = _moved(machine, program, instruction, kind)
    if cycles is None:
        assert own is not None
        return own
    clock = machine.tpu.clock_hz
    us = cycles / clock * 1e6
    if own is not None and own.us < us:
        return replace(own, basis="modelled")
    why = (
        f"{cycles:,} cycles at {clock / 1e9:.3g} GHz, XLA's estimate{_cores(machine, instruction)}"
    )
    return Estimate(us, "compiler", kind, why)


def _cores(machine: Machine, instruction: Instruction) -> str:
    if machine.tpu.cores == 1:
        return ""
    split = megacore(instruction)
    if split is None:
        return ", on one core"
    if not split.all_reduce_bytes:
        return ", on both cores"
    return f", on both cores, which add up {format_bytes(split.all_reduce_bytes)}"


def _copy(machine: Machine, program: Program, start: Instruction) -> Estimate:
    """An asynchronous copy or slice, between HBM, VMEM and the host."""
    copied = copied_shape(program, start)
    shapes = (copied, result_shape(start), *(one.shape for one in program.operands(start)[:1]))
    spaces = {leaf.memory_space for shape in shapes for leaf in shape.leaves()}
    is_host = HOST_MEMORY in spaces
    rate = machine.tpu.host_bandwidth if is_host else machine.tpu.memory_bandwidth
    # From HBM to HBM, every byte is read and written.
    passes = 2 if spaces == {HBM} else 1
    moved = copied.padded_bytes * passes
    us = moved / rate * 1e6 + HBM_CYCLES / machine.tpu.clock_hz * 1e6
    over = "the host's link" if is_host else "HBM"
    return Estimate(us, "modelled", "copy", f"{format_bytes(moved)} over {over}")


def _callback(machine: Machine, start: Instruction) -> Estimate:
    """Arguments to a function on the host, or its results."""
    moved = next(start.shape.leaves()).bytes
    us = moved / machine.tpu.host_bandwidth * 1e6
    if start.opcode == "recv":
        us += CALLBACK_US
    why = f"{format_bytes(moved)} over the host's link; what the host does is not known"
    return Estimate(us, "default", "copy", why)


def _kernel(machine: Machine, program: Program, instruction: Instruction) -> Estimate:
    """A Pallas kernel: what its author states, attention by its shapes, or its bytes."""
    shapes = [operand.shape for operand in program.operands(instruction)]
    attention = attention_of(instruction, shapes)
    if attention is not None:
        return _attention(machine, attention)
    stated = stated_work(instruction)
    tpu = machine.tpu
    moved = stated.get("bytes_accessed") or bytes_accessed(program, instruction)
    flops = stated.get("flops", 0)
    seconds = max(flops / tpu.peak_flops["bf16"], moved / tpu.memory_bandwidth)
    us = seconds * 1e6 + HBM_CYCLES / tpu.clock_hz * 1e6
    if not flops:
        why = f"a Pallas kernel of unknown work: {format_bytes(moved)}, every byte once"
        return Estimate(us, "default", "kernel", why)
    why = f"a Pallas kernel: {flops / 1e9:.3g} GFLOP and {format_bytes(moved)}, as it states"
    return Estimate(us, "modelled", "kernel", why)


def _attention(machine: Machine, attention: Attention) -> Estimate:
    """Products of blocks, and vector operations on their scores, one after the other."""
    tpu = machine.tpu
    # Blocks on the diagonal are computed completely.
    whole = 1.0 + min(1.0, BLOCK / attention.keys) if attention.is_causal else 1.0
    products = attention.flops / tpu.peak_flops.get(attention.dtype, tpu.peak_flops["bf16"])
    scores = attention.pairs * SCORE_OPERATIONS * attention.products / 2
    vectors = scores / (tpu.cores * VECTOR_LANES * tpu.clock_hz)
    us = whole * (products + vectors) * 1e6 + HBM_CYCLES / tpu.clock_hz * 1e6
    mask = "causal by assumption" if attention.is_causal else "without a mask"
    why = (
        f"attention, {attention.batch} × {attention.queries} × {attention.keys}, head dimension "
        f"{attention.head}, {mask}, at {1e6 * products / us:.0%} of the peak"
    )
    return Estimate(us, "modelled", "attention", why)


def _moved(machine: Machine, program: Program, instruction: Instruction, kind: str) -> Estimate:
    """By the bytes in each memory."""
    tpu = machine.tpu
    shapes = [result_shape(instruction)]
    shapes += [operand.shape for operand in program.operands(instruction)]
    total = bytes_accessed(program, instruction)
    in_hbm = sum(_bytes_in(shape, HBM) for shape in shapes)
    everywhere = sum(shape.bytes for shape in shapes) or 1
    # A slice of a large buffer reads only the slice: keep the proportion of the memories.
    from_hbm = total * in_hbm / everywhere
    cycles = HBM_CYCLES if in_hbm > SMALL_BYTES else CORE_CYCLES
    done = work(program, instruction)
    vectors = done.flops + done.transcendentals * TRANSCENDENTAL_OPERATIONS
    seconds = max(
        from_hbm / (tpu.memory_bandwidth * HBM_SHARE),
        (total - from_hbm) / (tpu.memory_bandwidth * VMEM_RATE),
        vectors / (tpu.cores * VECTOR_LANES * tpu.clock_hz),
    )
    us = seconds * 1e6 + cycles / tpu.clock_hz * 1e6
    is_known = total <= SMALL_BYTES or category(program, instruction) not in _UNKNOWN
    why = f"{format_bytes(from_hbm)} in HBM, {format_bytes(total - from_hbm)} in VMEM"
    return Estimate(us, "modelled" if is_known else "default", kind, why)


def _bytes_in(shape: Shape, space: int) -> int:
    return sum(leaf.bytes for leaf in shape.leaves() if leaf.memory_space == space)

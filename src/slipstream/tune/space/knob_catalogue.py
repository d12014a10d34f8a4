"""The knob catalogue: every knob with its values, what a program must have for it, and why.

The flags of the installed jaxlib decide which of these knobs exist and which values they accept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from slipstream.tune.space.knob import SeenBy
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.threshold_grid import threshold_values
from slipstream.units import format_bytes

Values = tuple[str, ...] | Callable[[ProgramTraits], tuple[str, ...]]
_SWITCH = ("true", "false")
_PIPELINING = ("COLLECTIVE_PIPELINING_MODE_OFF", "COLLECTIVE_PIPELINING_MODE_ON")
"""values of the modes that replaced xla_gpu_enable_pipelined_… in jaxlib 0.11.2"""
_GRAPHS = "CONDITIONAL,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,FUSION"
GRAPHS = "xla_gpu_enable_command_buffer"
GRAPH_FLAGS = (GRAPHS, "xla_gpu_graph_min_graph_size", "xla_gpu_command_buffer_unroll_loops")
"""flags that change how a program is launched, but not the program"""


@dataclass(frozen=True)
class KnobSpec:
    """One knob of the catalogue, before it is matched with a program."""

    name: str
    values: Values
    """besides the default"""
    needs: str
    """key of `NEEDS`"""
    why: str
    """what it is for, and `{…}` for what the default program has of that; no claim of an effect"""
    seen_by: SeenBy = "program"
    is_ordered: bool = False

    def values_for(self, traits: ProgramTraits) -> tuple[str, ...]:
        return self.values(traits) if callable(self.values) else self.values


NEEDS: dict[str, tuple[Callable[[ProgramTraits], bool], str]] = {
    "all-gather": (lambda t: "all-gather" in t.collectives, "no all-gather"),
    "reduce-scatter": (lambda t: "reduce-scatter" in t.collectives, "no reduce-scatter"),
    "all-reduce": (lambda t: "all-reduce" in t.collectives, "no all-reduce"),
    "permute": (lambda t: "collective-permute" in t.collectives, "no collective-permute"),
    "all-gather in loops": (lambda t: "all-gather" in t.in_loops, "no all-gather in a loop"),
    "reduce-scatter in loops": (
        lambda t: "reduce-scatter" in t.in_loops, "no reduce-scatter in a loop"),
    "all-reduce in loops": (lambda t: "all-reduce" in t.in_loops, "no all-reduce in a loop"),
    "collectives": (lambda t: t.has_collectives, "no collectives"),
    "several collectives": (
        lambda t: sum(map(len, t.collectives.values())) > 1, "fewer than two collectives"),
    "overlap": (lambda t: t.has_collectives or t.host_copies > 0, "no collectives or host copies"),
    "collectives and matmuls": (
        lambda t: t.matmuls > 0 and bool({"all-gather", "reduce-scatter"} & set(t.collectives)),
        "no all-gather or reduce-scatter next to a matmul"),
    "loops": (lambda t: t.loops > 0, "no loops"),
    "host copies in loops": (
        lambda t: t.host_copies > 0 and t.loops > 0, "no copies to or from the host in a loop"),
    "matmuls": (lambda t: t.matmuls > 0, "no matmuls"),
    "NCCL": (
        lambda t: t.has_collectives and t.devices > 1, "no collectives between several devices"),
    "slices": (lambda t: "send" in t.collectives, "no transfers between slices"),
    "hosts": (lambda t: t.hosts > 1 and t.has_collectives, "no collectives between hosts"),
    "anything": (lambda t: True, ""),
}  # fmt: skip


def _sizes(kind: str) -> Callable[[ProgramTraits], tuple[str, ...]]:
    return lambda traits: threshold_values(kind, traits)


def _unrollings(traits: ProgramTraits) -> tuple[str, ...]:
    modes = ["NO_UNROLL", "DOUBLE_BUFFER", *(["FULL_UNROLL"] if traits.can_unroll else [])]
    return tuple(f"WHILE_LOOP_UNROLLING_{mode}" for mode in modes)


def _graphs(traits: ProgramTraits) -> tuple[str, ...]:
    found = ["", "FUSION", "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL"]
    if traits.has_collectives:
        found.append(f"{_GRAPHS},COLLECTIVES")
    if traits.loops:
        found.append(f"{_GRAPHS},WHILE")
    if traits.loops and traits.has_collectives:
        found.append(f"{_GRAPHS},COLLECTIVES,WHILE")
    return tuple(found)


KNOBS: tuple[KnobSpec, ...] = (
    # Combining collectives.
    KnobSpec("xla_gpu_all_gather_combine_threshold_bytes", _sizes("all-gather"), "all-gather",
        "To combine all-gathers up to this size; the default has {all-gather}.", is_ordered=True),
    KnobSpec("xla_gpu_reduce_scatter_combine_threshold_bytes", _sizes("reduce-scatter"),
        "reduce-scatter",
        "To combine reduce-scatters up to this size; the default has {reduce-scatter}.",
        is_ordered=True),
    KnobSpec("xla_gpu_all_reduce_combine_threshold_bytes", _sizes("all-reduce"), "all-reduce",
        "To combine all-reduces up to this size; the default has {all-reduce}.", is_ordered=True),
    KnobSpec("xla_gpu_collective_permute_combine_threshold_bytes", _sizes("collective-permute"),
        "permute", "To combine permutes up to this size; the default has {collective-permute}.",
        is_ordered=True),
    KnobSpec("xla_gpu_enable_all_gather_combine_by_dim", _SWITCH, "all-gather",
        "To combine only all-gathers along the same dimension; the default has {all-gather}."),
    KnobSpec("xla_gpu_enable_reduce_scatter_combine_by_dim", _SWITCH, "reduce-scatter",
        "To combine only reduce-scatters along the same dimension; the default has "
        "{reduce-scatter}."),
    KnobSpec("xla_gpu_experimental_enable_heuristic_collective_combining", _SWITCH,
        "several collectives", "To let XLA decide what to combine; the default has {collectives}."),
    # Overlap.
    KnobSpec("xla_gpu_enable_latency_hiding_scheduler", _SWITCH, "overlap",
        "To schedule work between the start and the done of {overlap}."),
    KnobSpec("xla_gpu_enable_analytical_sol_latency_estimator", _SWITCH, "collectives",
        "To estimate for the scheduler how long each of {collectives} takes."),
    KnobSpec("xla_gpu_enable_analytical_latency_estimator", _SWITCH, "overlap",
        "Another estimate of how long kernels and {overlap} take."),
    KnobSpec("xla_gpu_experimental_parallel_collective_overlap_limit", ("2", "4"),
        "several collectives", "How many of {collectives} may run at once.", is_ordered=True),
    KnobSpec("xla_gpu_experimental_collective_start_as_early_as_possible", _SWITCH, "collectives",
        "To start each of {collectives} as soon as its operands are ready."),
    KnobSpec("xla_gpu_memory_limit_slop_factor", ("70", "80", "90", "110"), "overlap",
        "How much memory the scheduler may use by starting {overlap} early.",
        is_ordered=True),
    KnobSpec("xla_gpu_experimental_parallel_async_compute_limit", ("1", "4"), "overlap",
        "How many asynchronous computations may run at once.", is_ordered=True),
    KnobSpec("xla_gpu_async_dot", _SWITCH, "matmuls",
        "To run matmuls on a separate stream; the default has {matmuls}."),
    KnobSpec("xla_gpu_threshold_for_windowed_einsum_mib", ("0", "16", "64", "256"),
        "collectives and matmuls",
        "To split matmuls next to {collectives} into pieces (collective matmul).",
        is_ordered=True),
    KnobSpec("xla_gpu_multi_streamed_windowed_einsum", _SWITCH, "collectives and matmuls",
        "To run the pieces of a collective matmul on two streams."),
    # Loops.
    KnobSpec("xla_gpu_enable_pipelined_all_gather", _SWITCH, "all-gather in loops",
        "To start the next iteration's all-gather in this one; the default has {loops}."),
    KnobSpec("xla_gpu_enable_pipelined_reduce_scatter", _SWITCH, "reduce-scatter in loops",
        "To let an iteration's reduce-scatter end in the next one; the default has {loops}."),
    KnobSpec("xla_gpu_enable_pipelined_all_reduce", _SWITCH, "all-reduce in loops",
        "To let an iteration's all-reduce end in the next one; the default has {loops}."),
    KnobSpec("xla_gpu_pipeline_all_gather", _PIPELINING, "all-gather in loops",
        "To start the next iteration's all-gather in this one; the default has {loops}."),
    KnobSpec("xla_gpu_pipeline_reduce_scatter", _PIPELINING, "reduce-scatter in loops",
        "To let an iteration's reduce-scatter end in the next one; the default has {loops}."),
    KnobSpec("xla_gpu_pipeline_all_reduce", _PIPELINING, "all-reduce in loops",
        "To let an iteration's all-reduce end in the next one; the default has {loops}."),
    KnobSpec("xla_gpu_enable_while_loop_reduce_scatter_code_motion", _SWITCH,
        "reduce-scatter in loops",
        "To sum over iterations first, then scatter once; the default has {loops}."),
    KnobSpec("xla_gpu_enable_pipelined_p2p", _SWITCH, "permute",
        "To start sends of the next iteration in this one; the default has {collective-permute}."),
    KnobSpec("xla_gpu_experimental_pipeline_parallelism_opt_level",
        ("PIPELINE_PARALLELISM_OPT_LEVEL_DISABLE", "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE"),
        "permute",
        "To enable XLA's passes for pipeline stages; the default has {collective-permute}."),
    KnobSpec("xla_gpu_enable_while_loop_unrolling", _unrollings, "loops",
        "To let iterations overlap by unrolling; the default has {loops}."),
    KnobSpec("xla_gpu_enable_while_loop_double_buffering", _SWITCH, "loops",
        "To avoid copies between iterations, two in one; the default has {loops}."),
    KnobSpec("xla_gpu_enable_pipelined_host_offloading", _SWITCH, "host copies in loops",
        "To start copies of the next iteration in this one; the default has {host copies}."),
    # Launching.
    KnobSpec(GRAPHS, _graphs, "anything",
        "Which operations run in CUDA graphs: one launch, but what they capture is serialised.",
        "simulation"),
    KnobSpec("xla_gpu_graph_min_graph_size", ("1", "20", "100"), "anything",
        "Minimum number of consecutive kernels for a CUDA graph.", "simulation", True),
    # Kernels.
    KnobSpec("xla_gpu_enable_triton_gemm", _SWITCH, "matmuls",
        "Whether Triton may run matmuls instead of cuBLAS; the default has {matmuls}."),
    KnobSpec("xla_gpu_dot_merger_threshold_mb", ("0", "16", "256"), "matmuls",
        "To merge matmuls that share an operand below this size; the default has {matmuls}.",
        is_ordered=True),
    KnobSpec("xla_gpu_autotune_level", ("0", "2"), "matmuls",
        "How thoroughly autotuning times kernels; the default has {matmuls}.", "measurement", True),
    KnobSpec("xla_gpu_cudnn_gemm_fusion_level", ("1", "2"), "matmuls",
        "Whether cuDNN may run matmuls with fused operations; the default has {matmuls}.",
        "measurement", True),
    KnobSpec("xla_gpu_enable_pdl", _SWITCH, "anything",
        "To start a kernel while the previous one ends.", "measurement"),
    # NCCL.
    KnobSpec("xla_gpu_enable_nccl_user_buffers", _SWITCH, "NCCL",
        "To let NCCL use XLA's buffers directly; the default has {collectives}.", "measurement"),
    KnobSpec("xla_gpu_nccl_collective_max_nchannels", ("8", "16"), "NCCL",
        "To leave more SMs, with fewer channels, for kernels that overlap with "
        "{collectives}.", "measurement",
        True),
    KnobSpec("NCCL_PROTO", ("Simple", "LL128,Simple"), "NCCL",
        "Which protocols NCCL may use for {collectives}.", "measurement"),
    KnobSpec("NCCL_NVLS_ENABLE", ("0", "1"), "NCCL",
        "To reduce in the NVLink switch; the default has {collectives}.", "measurement"),
    KnobSpec("NCCL_MAX_CTAS", ("8", "16"), "NCCL",
        "SMs that NCCL takes from kernels that overlap with "
        "{collectives}.", "measurement", True),
    KnobSpec("NCCL_IB_QPS_PER_CONNECTION", ("2", "4"), "hosts",
        "Connections to each peer on other hosts.", "measurement", True),
    KnobSpec("CUDA_DEVICE_MAX_CONNECTIONS", ("1", "32"), "overlap",
        "Hardware queues: with 1, kernels start in launch order.", "measurement",
        True),
)  # fmt: skip


def sentence(spec: KnobSpec, traits: ProgramTraits) -> str:
    """What this knob is for, with the default program's own counts in place of the braces."""
    text = spec.why
    for kind, sizes in traits.collectives.items():
        text = text.replace(f"{{{kind}}}", _described(kind, sizes))
    counts = [_counted(len(sizes), kind) for kind, sizes in sorted(traits.collectives.items())]
    collectives = " and ".join(filter(None, (", ".join(counts[:-1]), *counts[-1:])))
    copies = f"{traits.host_copies} host copies"
    return (
        text.replace("{collectives}", collectives)
        .replace("{overlap}", collectives or copies)
        .replace("{host copies}", copies)
        .replace("{loops}", _counted(traits.loops, "loop"))
        .replace("{matmuls}", _counted(traits.matmuls, "matmul"))
    )


def _described(kind: str, sizes: tuple[int, ...]) -> str:
    most = f"the largest {format_bytes(sizes[0])}" if len(sizes) > 1 else format_bytes(sizes[0])
    return f"{_counted(len(sizes), kind)} ({most})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

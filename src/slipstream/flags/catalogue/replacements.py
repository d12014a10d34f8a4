"""What became of flags that guides and old scripts still name, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

_XLA = "https://github.com/openxla/xla"
_FLAGS = f"{_XLA}/blob/main/xla/debug_options_flags.cc"
_HARVEST = "scripts/harvest_flags.py: the releases that took it"


@dataclass(frozen=True)
class Replacement:
    """Why a flag is gone or does nothing, and what to write in its place."""

    name: str
    use: str | None
    """what to set in its place, `name` or `name=value`; None if it can simply be left out"""
    because: str
    """a sentence"""
    source: str
    removed: str | None = None
    """when, as a date"""
    is_verified: bool = True
    """whether the source says so; else only that releases stopped taking the flag is known"""


def replacement_of(name: str) -> Replacement | None:
    """What became of a flag; None if nothing is known."""
    return REPLACEMENTS.get(name)


_ASYNC = (
    "Collectives are asynchronous by default; kinds that should not be are listed in "
    "xla_gpu_disable_async_collectives."
)
_PIPELINED = (
    "XLA made it an alias of a setting with four values: default, off, on and explicit; true "
    "means on, false means default."
)
_GRAPHS = "What goes into CUDA graphs is a list of kinds now; an empty list switches graphs off."
_GONE = "XLA removed it; nothing takes its place."
_ALWAYS = "What it switched on is always on."

_TABLE = (
    *(
        Replacement(
            f"xla_gpu_enable_async_{kind}",
            "xla_gpu_disable_async_collectives",
            _ASYNC,
            f"{_XLA}/pull/11422",
            "2024-04-29",
        )
        for kind in (
            "all_gather",
            "all_reduce",
            "all_to_all",
            "collective_broadcast",
            "collective_permute",
            "collectives",
            "reduce_scatter",
        )
    ),
    *(
        Replacement(
            f"xla_gpu_enable_pipelined_{kind}",
            f"xla_gpu_pipeline_{kind}",
            _PIPELINED,
            f"{_XLA}/pull/45836",
            "2026-07-23",
        )
        for kind in ("all_gather", "all_reduce", "reduce_scatter")
    ),
    Replacement(
        "xla_gpu_simplify_all_fp_conversions",
        None,
        "Chains of floating-point conversions are simplified where xla_allow_excess_precision, "
        "which is on, allows it.",
        "https://github.com/NVIDIA/JAX-Toolbox/pull/827",
        "2024-05-14",
    ),
    Replacement(
        "xla_gpu_lhs_enable_gpu_async_tracker", None, _ALWAYS, _HARVEST, "2024-12-13", False
    ),
    Replacement(
        "xla_gpu_enable_triton_softmax_fusion",
        None,
        "XLA removed it: what is fused with Triton is no longer switched by it.",
        "https://github.com/jax-ml/jax/pull/25444",
        "2025-01-20",
    ),
    Replacement(
        "xla_gpu_enable_cudnn_fmha",
        None,
        "XLA no longer looks for attention patterns: call jax.nn.dot_product_attention("
        "implementation='cudnn'). XLA_FLAGS accepts the name and ignores it.",
        f"{_XLA}/issues/23389",
        "2025-02-03",
    ),
    Replacement(
        "xla_gpu_enable_nccl_per_stream_comms",
        None,
        _GONE,
        f"{_XLA}/pull/10965",
        "2025-03-19",
        False,
    ),
    Replacement(
        "xla_gpu_enable_pipelined_collectives",
        None,
        "Each kind of collective is switched by itself: xla_gpu_enable_pipelined_all_gather, "
        "…_all_reduce and …_reduce_scatter. As a compile option it lived on, without effect.",
        f"{_XLA}/issues/44228",
        "2025-04-15",
    ),
    Replacement(
        "xla_gpu_triton_gemm_disable_reduced_precision_reduction",
        None,
        _GONE,
        _HARVEST,
        "2025-04-29",
        False,
    ),
    Replacement(
        "xla_gpu_enable_custom_fusions",
        None,
        "XLA removed it. What guides want it for, no copies of slices around library calls, is "
        "xla_gpu_enable_dynamic_slice_fusion.",
        _HARVEST,
        "2025-09-11",
        False,
    ),
    Replacement(
        "xla_gpu_enable_custom_fusions_re",
        None,
        _GONE,
        _HARVEST,
        "2025-09-11",
        False,
    ),
    Replacement(
        "xla_gpu_enable_address_computation_fusion",
        "xla_gpu_enable_dynamic_slice_fusion",
        "XLA renamed it in 2024.",
        "https://github.com/NVIDIA/JAX-Toolbox/issues/1098",
    ),
    *(
        Replacement(
            name, "xla_gpu_enable_command_buffer", _GRAPHS, f"{_XLA}/pull/30187", "2025-09-12"
        )
        for name in ("xla_gpu_graph_level", "xla_gpu_cuda_graph_level")
    ),
    Replacement(
        "xla_gpu_enable_pgle_accuracy_checker",
        "xla_gpu_pgle_accuracy_checker",
        "The switch became three levels, PGLE_STRICTNESS_LEVEL_OFF, _WARN (the default) and "
        "_ERROR.",
        f"{_XLA}/pull/17259",
        "2024-11-08",
    ),
    Replacement(
        "xla_gpu_run_post_layout_collective_pipeliner",
        None,
        _GONE,
        f"{_XLA}/pull/17950",
        "2024-10-10",
    ),
    Replacement(
        "xla_gpu_experimental_enable_nvshmem",
        None,
        _GONE,
        f"{_XLA}/pull/42793",
        "2026-06-22",
        False,
    ),
    Replacement(
        "xla_gpu_fused_attention_use_cudnn_rng",
        None,
        _GONE,
        _HARVEST,
        "2026-08-12",
        False,
    ),
    Replacement(
        "xla_gpu_cudnn_gemm_fusion",
        "xla_gpu_cudnn_gemm_fusion_level",
        "The switch became a level: 0 is off, higher ones let cuDNN do more matmuls.",
        f"{_XLA}/pull/10372",
    ),
    Replacement(
        "xla_gpu_graph_enable_concurrent_region",
        None,
        "It is deprecated; xla_gpu_command_buffer_scheduling_mode says how a graph is ordered.",
        _FLAGS,
    ),
    Replacement(
        "xla_gpu_enable_nccl_clique_optimization", None, "It does nothing any more.", _FLAGS
    ),
)

REPLACEMENTS = {entry.name: entry for entry in _TABLE}

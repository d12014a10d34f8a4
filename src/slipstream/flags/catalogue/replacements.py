"""What replaced the flags that guides and old scripts still name, each with its source."""

from __future__ import annotations

from dataclasses import dataclass

_XLA = "https://github.com/openxla/xla"
_FLAGS = f"{_XLA}/blob/main/xla/debug_options_flags.cc"
_HARVEST = "scripts/harvest_flags.py: the releases that accept it"


@dataclass(frozen=True)
class Replacement:
    """Why a flag is gone or has no effect, and what to use instead."""

    name: str
    use: str | None
    """what to set instead, `name` or `name=value`; None if the flag can simply be removed"""
    because: str
    """a sentence"""
    source: str
    removed: str | None = None
    """the date of removal"""
    is_verified: bool = True
    """whether the source says so; if not, it is only known that releases stopped accepting it"""


def replacement_of(name: str) -> Replacement | None:
    """What replaced a flag; None if nothing is known."""
    return REPLACEMENTS.get(name)


_ASYNC = (
    "Collectives are asynchronous by default; xla_gpu_disable_async_collectives lists the kinds "
    "that should not be."
)
_PIPELINED = (
    "It is now an alias of a flag with four values: default, off, on and explicit; true means on, "
    "false means default."
)
_GRAPHS = "What goes into CUDA graphs is now a list of kinds; an empty list disables graphs."
_GONE = "XLA removed it without a replacement."
_ALWAYS = "What it enabled is now always on."

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
        "Chains of floating-point conversions are simplified if xla_allow_excess_precision allows "
        "it, which is the default.",
        "https://github.com/NVIDIA/JAX-Toolbox/pull/827",
        "2024-05-14",
    ),
    Replacement(
        "xla_gpu_lhs_enable_gpu_async_tracker", None, _ALWAYS, _HARVEST, "2024-12-13", False
    ),
    Replacement(
        "xla_gpu_enable_triton_softmax_fusion",
        None,
        "XLA removed it: it no longer controls what is fused with Triton.",
        "https://github.com/jax-ml/jax/pull/25444",
        "2025-01-20",
    ),
    Replacement(
        "xla_gpu_enable_cudnn_fmha",
        None,
        "XLA no longer matches attention patterns: call jax.nn.dot_product_attention("
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
        "Each kind of collective has its own flag: xla_gpu_enable_pipelined_all_gather, "
        "…_all_reduce and …_reduce_scatter. It remained as a compile option, without effect.",
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
        "XLA removed it. Guides use it to avoid copies of slices around library calls, which "
        "xla_gpu_enable_dynamic_slice_fusion now does.",
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
        "The switch became a flag with three levels, PGLE_STRICTNESS_LEVEL_OFF, _WARN (the "
        "default) and _ERROR.",
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
        "The switch became a level: 0 is off, higher levels let cuDNN run more matmuls.",
        f"{_XLA}/pull/10372",
    ),
    Replacement(
        "xla_gpu_graph_enable_concurrent_region",
        None,
        "It is deprecated; xla_gpu_command_buffer_scheduling_mode controls the order in a graph.",
        _FLAGS,
    ),
    Replacement(
        "2a886c8_chip_config_name",
        None,
        "MaxText set it together with SparseCore offloading, and has removed it since.",
        "https://github.com/AI-Hypercomputer/maxtext/pull/3009",
    ),
    Replacement(
        "xla_gpu_enable_nccl_clique_optimization", None, "It no longer has any effect.", _FLAGS
    ),
)

REPLACEMENTS = {entry.name: entry for entry in _TABLE}

"""Knobs of XLA:TPU, and flag sets that others train with.

libtpu states no defaults, so a knob's first value is to leave it alone. Every flag and value was
accepted by libtpu 0.0.42.1 and 0.0.50.1; one that refuses them later counts as a failed trial.
"""

from __future__ import annotations

from collections.abc import Mapping

from slipstream.tune.space.knob_catalogue import KnobSpec

LEFT_ALONE = "(default)"
"""the first value of a knob whose default is unknown"""
_SWITCH = ("true", "false")
_FUSION = "xla_tpu_enable_async_collective_fusion"

TPU_KNOBS: tuple[KnobSpec, ...] = (
    KnobSpec("xla_tpu_scoped_vmem_limit_kib",
        ("16384", "24576", "32768", "49152", "65536", "81920", "98304"), "anything",
        "How much VMEM a fusion may use; the rest holds prefetched arrays."),
    KnobSpec("xla_tpu_enable_latency_hiding_scheduler", _SWITCH, "overlap",
        "To schedule work between the start and the done of {overlap}."),
    KnobSpec("xla_latency_hiding_scheduler_rerun", ("0", "1", "2", "5"), "overlap",
        "How often to schedule again with less memory if {overlap} need too much."),
    KnobSpec("xla_tpu_enable_all_experimental_scheduler_features", _SWITCH, "overlap",
        "To enable what is experimental in the scheduler of {overlap}."),
    KnobSpec("xla_tpu_enable_scheduler_memory_pressure_tracking", _SWITCH, "overlap",
        "To let the scheduler count memory while it starts {overlap} early."),
    KnobSpec("xla_tpu_scheduler_percent_shared_memory_limit", ("80", "90", "100", "150"), "overlap",
        "How much memory the scheduler may use by starting {overlap} early."),
    KnobSpec("xla_tpu_aggressive_opt_barrier_removal", _SWITCH, "loops",
        "To remove barriers that keep the scheduler from moving work; the default has {loops}."),
    KnobSpec("xla_lhs_prioritize_async_depth_over_stall", ("ENABLED", "DISABLED"), "overlap",
        "To schedule by how many of {overlap} follow, before how long each waits."),
    KnobSpec(_FUSION, _SWITCH, "collectives",
        "To run steps of {collectives} inside of fusions that compute."),
    KnobSpec(f"{_FUSION}_fuse_all_gather", _SWITCH, "all-gather",
        "To do so with all-gathers; the default has {all-gather}."),
    KnobSpec(f"{_FUSION}_fuse_all_reduce", _SWITCH, "all-reduce",
        "To do so with all-reduces; the default has {all-reduce}."),
    KnobSpec(f"{_FUSION}_fuse_reduce_scatter", _SWITCH, "reduce-scatter",
        "To do so with reduce-scatters; the default has {reduce-scatter}."),
    KnobSpec(f"{_FUSION}_multiple_steps", _SWITCH, "collectives",
        "To spread one of {collectives} over several fusions."),
    KnobSpec("xla_tpu_overlap_compute_collective_tc", _SWITCH, "collectives",
        "To overlap {collectives} with the TensorCore."),
    KnobSpec("xla_enable_async_all_gather", _SWITCH, "all-gather",
        "To run all-gathers asynchronously; the default has {all-gather}."),
    KnobSpec("xla_max_concurrent_async_all_gathers", ("1", "2", "4"), "all-gather",
        "How many all-gathers may run at once; the default has {all-gather}."),
    KnobSpec("xla_max_concurrent_async_collective_permutes", ("1", "2", "4"), "collectives",
        "How many permutes may run at once, those of collective matmuls included."),
    KnobSpec("xla_tpu_prefer_async_allgather_to_allreduce", _SWITCH, "collectives",
        "To write all-reduces as all-gathers where those can run asynchronously."),
    KnobSpec("xla_tpu_enable_ag_backward_pipelining", _SWITCH, "all-gather in loops",
        "To start the next iteration's all-gather in this one; the default has {loops}."),
    KnobSpec("xla_tpu_enable_data_parallel_all_reduce_opt", _SWITCH, "collectives",
        "To move all-reduces of gradients out of loops and to combine them."),
    KnobSpec("xla_tpu_data_parallel_opt_different_sized_ops", _SWITCH, "collectives",
        "To do so with gradients of different sizes too."),
    KnobSpec("xla_jf_spmd_threshold_for_windowed_einsum_mib", ("0", "16", "100000"), "matmuls",
        "From which size on products next to collectives are cut into pieces."),
    KnobSpec("xla_tpu_decompose_all_gather_einsum", _SWITCH, "collectives",
        "To cut products of gathered operands into pieces (collective matmul)."),
    KnobSpec("xla_tpu_decompose_einsum_reduce_scatter", _SWITCH, "collectives",
        "To cut products whose results are scattered into pieces."),
    KnobSpec("xla_tpu_megacore_fusion_allow_ags", _SWITCH, "all-gather",
        "Whether fusions over both cores may contain all-gathers."),
    KnobSpec("xla_tpu_rwb_fusion", _SWITCH, "anything",
        "To fuse reductions with what broadcasts their results."),
    KnobSpec("xla_tpu_dot_dot_fusion", _SWITCH, "matmuls",
        "To fuse a product with the product of its result; the default has {matmuls}."),
    KnobSpec("xla_tpu_enable_experimental_fusion_cost_model", _SWITCH, "anything",
        "To decide on fusions by another cost model."),
    KnobSpec("xla_tpu_scavenge_vmem_for_fusions", _SWITCH, "anything",
        "To let fusions use VMEM that is free while they run."),
    KnobSpec("xla_vf_vmem_enable_cross_program_prefetch_freeing", _SWITCH, "anything",
        "To free the VMEM of arguments that were prefetched before the step."),
    KnobSpec("xla_tpu_host_transfer_overlap_limit", ("1", "2", "8", "24"), "slices",
        "How many transfers to the host, and so to other slices, may be open at once."),
)  # fmt: skip

MAXTEXT = "https://github.com/AI-Hypercomputer/maxtext/blob/main/benchmarks/xla_flags_library.py"
"""where the flag sets come from"""
TPU_SETS: Mapping[str, Mapping[str, str]] = {
    "MaxText v5e": {
        "xla_tpu_enable_data_parallel_all_reduce_opt": "true",
        "xla_tpu_data_parallel_opt_different_sized_ops": "true",
        _FUSION: "true",
        f"{_FUSION}_fuse_all_gather": "true",
        f"{_FUSION}_multiple_steps": "true",
        "xla_tpu_overlap_compute_collective_tc": "true",
        "xla_enable_async_all_gather": "true",
    },
    "MaxText, dense": {
        "xla_tpu_scoped_vmem_limit_kib": "98304",
        _FUSION: "true",
        f"{_FUSION}_fuse_all_gather": "true",
        f"{_FUSION}_multiple_steps": "true",
        "xla_tpu_overlap_compute_collective_tc": "true",
        "xla_enable_async_all_gather": "true",
    },
    "MaxText, data-parallel overlap": {
        "xla_tpu_enable_data_parallel_all_reduce_opt": "true",
        "xla_tpu_data_parallel_opt_different_sized_ops": "true",
    },
}
"""settings to try first"""

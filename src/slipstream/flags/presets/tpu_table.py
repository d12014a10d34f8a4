"""Presets for TPUs as data: the flag sets that MaxText trains with, and XLA's guide."""

from __future__ import annotations

from slipstream.flags.presets.definitions import Preset, PresetEntry

_FUSION = "xla_tpu_enable_async_collective_fusion"
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"
_FUSES = "A collective's steps run inside of fusions that compute."
_KIND = "Which collectives do so."
_STEPS = "One collective spreads over several fusions."
_TENSOR_CORE = "Collectives overlap with work of the TensorCore."
_ASYNC = "An asynchronous collective can overlap with compute."
_ONE_OF_TWO = "SparseCore or fusion runs a kind of collective, not both."
_TO_SPARSE_CORE = "The SparseCore runs these collectives while the TensorCore computes."
_SPARSE_CORE = "MaxText sets it with any SparseCore offloading."
_SCATTER = "An all-reduce whose result is sliced becomes a reduce-scatter in more cases."
_CHAIN = "More loops can be pipelined."


def _entry(
    name: str, value: str, reason: str, guide: str = "maxtext", said: str = ""
) -> PresetEntry:
    return PresetEntry(name, value, reason, guide, said, variable="LIBTPU_INIT_ARGS")


_FUSED = (
    _entry(_FUSION, "true", _FUSES),
    _entry(f"{_FUSION}_multiple_steps", "true", _STEPS),
    _entry("xla_tpu_overlap_compute_collective_tc", "true", _TENSOR_CORE),
)
_MINOR_SHARDING = (
    _entry("xla_tpu_use_minor_sharding_for_major_trivial_input", "true", _SCATTER),
    _entry("xla_tpu_relayout_group_size_threshold_for_reduce_scatter", "1", _SCATTER),
)


def _offloaded(kind: str) -> tuple[PresetEntry, ...]:
    return (
        _entry(f"{_FUSION}_fuse_{kind}", "false", _ONE_OF_TWO),
        _entry(f"{_OFFLOAD}_{kind}", "true", _TO_SPARSE_CORE),
        _entry(f"xla_tpu_enable_{kind}_offload_tracing", "true", _SPARSE_CORE),
    )


def _latency_bound(kind: str) -> PresetEntry:
    name = f"xla_{kind}_latency_bound_threshold_in_bytes"
    reason = "Smaller collectives get an implementation with less latency; try 4 to 16 MiB."
    return _entry(name, "4194304", reason, "guidance", f"{name}=4~16Mb")


TPU_PRESETS: tuple[Preset, ...] = (
    Preset(
        "tpu-all-gather",
        "TPUs: all-gathers overlap with compute inside of fusions (FSDP).",
        (
            *_FUSED,
            _entry(f"{_FUSION}_fuse_all_gather", "true", _KIND),
            _entry("xla_enable_async_all_gather", "true", _ASYNC),
        ),
    ),
    Preset(
        "tpu-all-reduce",
        "TPUs: all-reduces overlap with compute inside of fusions (data parallelism).",
        (
            *_FUSED,
            _entry(f"{_FUSION}_fuse_all_reduce", "true", _KIND),
            _entry("xla_enable_async_all_reduce", "true", _ASYNC),
        ),
    ),
    Preset(
        "tpu-slices",
        "TPUs: gradients are reduced between slices during the backward pass.",
        (
            _entry(
                "xla_tpu_enable_data_parallel_all_reduce_opt",
                "true",
                "All-reduces between slices get more compute to overlap with.",
            ),
            _entry(
                "xla_tpu_data_parallel_opt_different_sized_ops",
                "true",
                "They are pipelined over iterations, whatever their sizes; this may need memory.",
            ),
        ),
    ),
    Preset(
        "tpu-sparsecore",
        "TPUs: the SparseCore runs collectives while the TensorCore computes.",
        (
            *_offloaded("all_gather"),
            *_offloaded("reduce_scatter"),
            *_offloaded("all_reduce"),
            _entry("xla_tpu_use_tc_device_shape_on_sc", "true", _SPARSE_CORE),
            _entry("xla_sc_enable_instruction_fusion", "false", _SPARSE_CORE),
            _entry("xla_sc_disjoint_spmem", "false", _SPARSE_CORE),
            _entry("xla_sc_disable_megacore_partitioning", "true", _SPARSE_CORE),
            _entry("2a886c8_chip_config_name", "megachip_tccontrol", _SPARSE_CORE),
        ),
    ),
    Preset(
        "tpu-reduce-scatter",
        "TPUs: all-reduces become reduce-scatters with a better layout.",
        (
            *_MINOR_SHARDING,
            _entry("xla_tpu_assign_all_reduce_scatter_layout", "true", "A layout made for it."),
        ),
    ),
    Preset(
        "tpu-pipelining",
        "TPUs: a loop's next all-gather starts in this iteration.",
        (
            _entry("xla_tpu_enable_ici_ag_pipelining", "true", "The pipelining.", "guidance"),
            _entry(
                "xla_should_allow_loop_variant_parameter_in_chain",
                "enabled",
                _CHAIN,
                "guidance",
                "xla_should_allow_loop_variant_parameter_in_chain=kEnabled",
            ),
            _entry(
                "xla_should_add_loop_invariant_op_in_chain",
                "enabled",
                _CHAIN,
                "guidance",
                "xla_should_add_loop_invariant_op_in_chain=kEnabled",
            ),
        ),
    ),
    Preset(
        "tpu-host-offload",
        "TPUs: activations or optimizer state in the host's memory.",
        (
            _entry(
                "xla_tpu_enable_all_experimental_scheduler_features",
                "true",
                "Experimental parts of the scheduler.",
            ),
            _entry(
                "xla_tpu_enable_scheduler_memory_pressure_tracking",
                "true",
                "The scheduler counts memory while it starts transfers early.",
            ),
            _entry(
                "xla_tpu_host_transfer_overlap_limit", "24", "Transfers that may be open at once."
            ),
            _entry(
                "xla_tpu_aggressive_opt_barrier_removal",
                "ENABLED",
                "Barriers no longer keep the scheduler from moving transfers.",
            ),
            _entry(
                "xla_lhs_prioritize_async_depth_over_stall",
                "ENABLED",
                "Long chains of transfers come first.",
            ),
            _entry("xla_tpu_enable_ag_backward_pipelining", "true", "Loops are pipelined."),
            _entry("xla_should_allow_loop_variant_parameter_in_chain", "ENABLED", _CHAIN),
            _entry("xla_should_add_loop_invariant_op_in_chain", "ENABLED", _CHAIN),
            _entry("xla_max_concurrent_host_send_recv", "100", "Sends that may be open at once."),
            _entry(
                "xla_tpu_scheduler_percent_shared_memory_limit",
                "100",
                "The scheduler may use all memory.",
            ),
            _entry(
                "xla_latency_hiding_scheduler_rerun",
                "2",
                "Schedules that need too much memory are made again with less.",
            ),
        ),
    ),
    Preset(
        "tpu-vmem-dense",
        "TPUs: more VMEM for each op of a dense model; less is left for prefetching.",
        (_entry("xla_tpu_scoped_vmem_limit_kib", "98304", "For models bound by compute."),),
    ),
    Preset(
        "tpu-vmem-moe",
        "TPUs: more VMEM for each op of a mixture of experts.",
        (_entry("xla_tpu_scoped_vmem_limit_kib", "81920", "For models bound by compute."),),
    ),
    Preset(
        "tpu-memory",
        "TPUs: for a compile that runs out of HBM, at the cost of speed.",
        (
            _entry(
                "xla_latency_hiding_scheduler_rerun",
                "5",
                "Schedules that need too much memory are made again with less.",
                "guidance",
            ),
            _entry("xla_tpu_rwb_fusion", "false", "May use less memory.", "guidance"),
            _entry(
                "xla_memory_scheduler",
                "brkga",
                "Searches longer for an order that needs less memory.",
                "guidance",
                "xla_memory_scheduler=kBrkga",
            ),
        ),
    ),
    Preset(
        "tpu-latency",
        "TPUs: small collectives, mostly in inference.",
        tuple(
            map(_latency_bound, ("all_gather", "all_reduce", "collective_permute", "all_to_all"))
        ),
    ),
    Preset(
        "tpu-sdc-check",
        "TPUs: find chips that compute wrong results; each op runs six times.",
        (
            _entry("xla_tpu_enable_sdc_checker", "true", "Results of repeated ops are compared."),
            _entry("xla_tpu_sdc_check_halt_on_detection", "true", "A difference ends the job."),
            _entry("xla_tpu_sdc_replicate_llo", "true", "Repeats the compiled code too."),
            _entry("xla_tpu_sdc_check_repeat_count", "5", "Repeats."),
        ),
    ),
)

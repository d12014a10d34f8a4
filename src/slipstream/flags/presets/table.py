"""The presets as data: each setting with its reason, its guide, and what the guide says."""

from __future__ import annotations

from slipstream.flags.presets.definitions import HERE, Preset, PresetEntry
from slipstream.flags.presets.tpu_table import TPU_PRESETS

_HIDE = "The scheduler places compute between a collective's start and its end."
_ASYNC = "An asynchronous collective can overlap with compute."
_ALONE = "Nothing overlaps, so each op is timed alone."
_PRIORITY = "Communication kernels get free multiprocessors first."
_LAYER = (
    "Large buffers use the links better; use at least the size of one layer's weights or "
    "gradients, which `slipstream flags thresholds` computes."
)
_LADDER = (
    "A trade-off between bandwidth (large) and overlap (small): try powers of two from 16 MB, "
    "which `slipstream flags thresholds` lists."
)
_GRAPHS_OFF = "Kernels are launched one by one, each with its own name and on its own stream."
_PIPELINE = "The next iteration's collective starts in this one."
_BY_DIM = "Tensors sharded along different dimensions share one collective."

_LHS = "xla_gpu_enable_latency_hiding_scheduler"
_COMMAND_BUFFER = "xla_gpu_enable_command_buffer"
_PROFILE = "xla_gpu_pgle_profile_file_or_directory_path"
_GRAPH_TYPES = "CONDITIONAL,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,DYNAMIC_SLICE_FUSION,FUSION"
_EIGHT_GIB = "8589934592"

_SCHEDULER = PresetEntry(_LHS, "true", _HIDE, "llm")
_HIGH_PRIORITY = PresetEntry(
    "xla_gpu_enable_highest_priority_async_stream", "true", _PRIORITY, "llm"
)
_MIN_LOG = PresetEntry("TF_CPP_MIN_LOG_LEVEL", "0", "XLA logs which profile it uses.", "jax")

PRESETS: tuple[Preset, ...] = (
    Preset(
        "pgle-profile",
        "The profiling run of PGLE by hand.",
        (
            PresetEntry(_LHS, "false", _ALONE, "pgle"),
            PresetEntry(
                "xla_gpu_enable_analytical_sol_latency_estimator",
                "false",
                "On Hopper and Blackwell, this estimator re-enables the scheduler.",
                HERE,
                only_with_estimator=True,
            ),
            PresetEntry("xla_gpu_enable_async_all_gather", "false", _ALONE, "pgle"),
            PresetEntry("xla_gpu_enable_async_reduce_scatter", "false", _ALONE, "pgle"),
            PresetEntry(
                _COMMAND_BUFFER,
                "",
                "JAX's extractor sees one name for a whole CUDA graph (`slipstream costs` sees the "
                "kernels in it and doesn't need this).",
                "jax",
                f"--{_COMMAND_BUFFER}=''",
            ),
        ),
    ),
    Preset(
        "pgle-performance",
        "The run that uses the PGLE profile.",
        (
            PresetEntry(_LHS, "true", _HIDE, "pgle"),
            PresetEntry("xla_gpu_enable_async_all_gather", "true", _ASYNC, "pgle"),
            PresetEntry("xla_gpu_enable_async_reduce_scatter", "true", _ASYNC, "pgle"),
            PresetEntry(
                _PROFILE,
                "profile.pbtxt",
                "Measured costs for the scheduler; the name must end in .pb or .pbtxt.",
                "pgle",
                rf"--{_PROFILE}=path\to\generated\pbtxt",
            ),
            _MIN_LOG,
        ),
    ),
    Preset(
        "auto-pgle",
        "JAX profiles a few steps and recompiles with the measured costs.",
        (
            PresetEntry("JAX_ENABLE_PGLE", "true", "Enables AutoPGLE.", "jax"),
            PresetEntry(
                _LHS,
                "true",
                "Since 0.5.1, a profile enables it.",
                "jax",
                until="0.5.0",
            ),
            PresetEntry(
                "JAX_PGLE_PROFILING_RUNS", "3", "Number of profiled steps; more are better.", "jax"
            ),
            PresetEntry(
                "JAX_PGLE_AGGREGATION_PERCENTILE",
                "85",
                "Which of the runs counts; lower it if steps are noisy (of 3 runs, 50 to 99 is the "
                "median).",
                "jax",
            ),
        ),
    ),
    Preset(
        "nsight-pgle",
        "Nsight Systems on a program from AutoPGLE's compilation cache (run auto-pgle with the "
        "same cache first).",
        (
            PresetEntry(
                "JAX_ENABLE_COMPILATION_CACHE",
                "true",
                "Enables the compilation cache.",
                "jax",
                "JAX_ENABLE_COMPILATION_CACHE=yes",
            ),
            PresetEntry(
                "JAX_COMPILATION_CACHE_DIR",
                "jax_cache",
                "The cache of the first run.",
                "jax",
                "JAX_COMPILATION_CACHE_DIR=… (a folder)",
            ),
            PresetEntry(
                "JAX_COMPILATION_CACHE_EXPECT_PGLE",
                "true",
                "Loads the program that PGLE optimised, without profiling again.",
                "jax",
                "JAX_COMPILATION_CACHE_EXPECT_PGLE=yes",
            ),
            PresetEntry(
                "JAX_ENABLE_PGLE",
                "false",
                "JAX's profiler and Nsight can't use CUPTI at the same time.",
                "jax",
                "the JAX profiler cannot co-exist with the NVIDIA Nsight Systems profiler",
            ),
        ),
    ),
    Preset(
        "fsdp",
        "Fully sharded data parallelism: all-gathers and reduce-scatters overlap with the layers.",
        (
            _SCHEDULER,
            PresetEntry("xla_gpu_enable_async_collectives", "true", _ASYNC, "llm"),
            _HIGH_PRIORITY,
            PresetEntry(
                "xla_gpu_enable_while_loop_double_buffering",
                "true",
                "Two iterations of a scan alternate buffers, so one's collectives overlap with the "
                "other's compute.",
                "llm",
            ),
            PresetEntry("xla_gpu_enable_pipelined_all_gather", "true", _PIPELINE, "llm"),
            PresetEntry("xla_gpu_enable_pipelined_reduce_scatter", "true", _PIPELINE, "llm"),
            PresetEntry(
                "xla_gpu_enable_pipelined_collectives",
                "false",
                "If true, it overrides the flags of the single collectives.",
                "llm",
                "--xla_gpu_enable_pipelined_collectives=false // if true overrides the above",
            ),
            PresetEntry("xla_gpu_enable_all_gather_combine_by_dim", "false", _BY_DIM, "llm"),
            PresetEntry("xla_gpu_enable_reduce_scatter_combine_by_dim", "false", _BY_DIM, "llm"),
            PresetEntry("xla_gpu_all_gather_combine_threshold_bytes", _EIGHT_GIB, _LAYER, "llm"),
            PresetEntry(
                "xla_gpu_reduce_scatter_combine_threshold_bytes", _EIGHT_GIB, _LAYER, "llm"
            ),
        ),
    ),
    Preset(
        "data-parallel",
        "Data parallelism: gradients are reduced during the backward pass.",
        (
            _SCHEDULER,
            PresetEntry("xla_gpu_enable_async_all_reduce", "true", _ASYNC, "pgle"),
            _HIGH_PRIORITY,
            PresetEntry("xla_gpu_enable_pipelined_all_reduce", "true", _PIPELINE, "llm"),
            PresetEntry("xla_gpu_all_reduce_combine_threshold_bytes", _EIGHT_GIB, _LADDER, "llm"),
        ),
    ),
    Preset(
        "tensor-parallel",
        "Collective matmul: a matmul is split, and each piece is sent while the next is computed.",
        (
            _SCHEDULER,
            PresetEntry(
                "xla_gpu_multi_streamed_windowed_einsum",
                "true",
                "The pieces run on several streams.",
                "llm",
            ),
            PresetEntry(
                "xla_gpu_threshold_for_windowed_einsum_mib",
                "0",
                "The smallest output size; 0 means every matmul next to a collective. Compiled "
                "without a GPU, it has no effect in 0.10.2; 0.12 splits matmuls as documented.",
                "llm",
            ),
        ),
    ),
    Preset(
        "pipeline-parallel",
        "Pipeline parallelism: stages send to the next stage while they compute.",
        (
            PresetEntry(_LHS, "true", _HIDE, "jax"),
            PresetEntry(_COMMAND_BUFFER, "", _GRAPHS_OFF, "jax", f"--{_COMMAND_BUFFER}=''"),
            PresetEntry(
                "xla_disable_hlo_passes",
                "collective-permute-motion",
                "Moving permutes would break the order of the pipeline.",
                "jax",
            ),
            PresetEntry(
                "xla_gpu_experimental_pipeline_parallelism_opt_level",
                "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
                "Reorders sends and receives around the stages' compute.",
                "jax",
            ),
            PresetEntry(
                "xla_gpu_enable_pipelined_p2p",
                "true",
                "Sends to the next stage start early.",
                "llm",
                withheld="Together with the level above, 0.10.2 reports a cycle and 0.12 aborts.",
            ),
            PresetEntry(
                "xla_gpu_collective_permute_decomposer_threshold",
                "1024",
                "Splits permutes from this size on into send and receive; has no effect alone.",
                "llm",
            ),
            PresetEntry(
                "xla_gpu_lhs_enable_gpu_async_tracker",
                "true",
                "The scheduler knows how many collectives may be in flight.",
                "llm",
            ),
        ),
    ),
    Preset(
        "single-host-nccl",
        "NCCL protocols and buffers for several GPUs on one host.",
        (
            PresetEntry(
                "NCCL_LL128_BUFFSIZE", "-2", "NCCL chooses the size of LL128's buffers.", "jax"
            ),
            PresetEntry("NCCL_LL_BUFFSIZE", "-2", "NCCL chooses the size of LL's buffers.", "jax"),
            PresetEntry("NCCL_PROTO", "SIMPLE,LL,LL128", "All three protocols may be used.", "jax"),
        ),
    ),
    Preset(
        "nccl-user-buffers",
        "NCCL sends from and receives into XLA's own buffers, without copies.",
        (
            PresetEntry(
                "xla_gpu_enable_nccl_user_buffers",
                "true",
                "Registers the buffers of collectives with NCCL.",
                "llm",
            ),
            PresetEntry(
                "NCCL_NVLS_ENABLE",
                "1",
                "All-gather, all-reduce and reduce-scatter need NVLink SHARP for this.",
                "llm",
                "Needs NCCL_NVLS_ENABLE=1 for AG, AR, RS.",
            ),
        ),
    ),
    Preset(
        "memory",
        "How much GPU memory XLA uses, with fewer buffers for NCCL.",
        (
            PresetEntry(
                "XLA_PYTHON_CLIENT_MEM_FRACTION",
                "0.9",
                "The rest is for the CUDA libraries and NCCL; use 0.8 if that is too little.",
                "llm",
                "We typically set it to 0.9 or 0.8.",
            ),
            PresetEntry(
                "xla_gpu_memory_limit_slop_factor",
                "95",
                "Percentage of memory above which the scheduler saves memory rather than time.",
                "jax",
            ),
            PresetEntry(
                "xla_gpu_enable_nccl_comm_splitting",
                "false",
                "Fewer NCCL communicators, each of which holds buffers.",
                "llm",
            ),
            PresetEntry(
                "xla_gpu_enable_nccl_per_stream_comms",
                "false",
                "Fewer NCCL communicators, each of which holds buffers.",
                "llm",
            ),
        ),
    ),
    Preset(
        "cuda-graphs-on",
        "Many small kernels are launched as one graph, which takes less host time.",
        (
            PresetEntry(
                _COMMAND_BUFFER,
                _GRAPH_TYPES,
                "The kinds of work in graphs; collectives and loops stay outside.",
                "llm",
                f"--{_COMMAND_BUFFER} (1 by default, available options are 0, 1, 2, and 3)",
                is_met_by_any=True,
            ),
        ),
    ),
    Preset(
        "cuda-graphs-off",
        "Every kernel is launched separately: for profiles, and to overlap host copies.",
        (
            PresetEntry(_COMMAND_BUFFER, "", _GRAPHS_OFF, "jax", f"--{_COMMAND_BUFFER}=''"),
            PresetEntry("xla_gpu_graph_level", "0", _GRAPHS_OFF, "pgle"),
        ),
    ),
    Preset(
        "debug-dumps",
        "Dumps of programs and schedules, and verbose logs.",
        (
            PresetEntry(
                "xla_dump_to",
                "xla_dump",
                "The folder for programs and schedules.",
                "llm",
                "--xla_dump_to=some/path",
            ),
            PresetEntry(
                "xla_dump_latency_hiding_schedule",
                "true",
                "The scheduler's own timeline, as a text proto.",
                "llm",
            ),
            PresetEntry(
                "xla_gpu_lhs_enable_gpu_async_tracker",
                "false",
                "A simpler model of streams.",
                "llm",
            ),
            PresetEntry(
                "TF_CPP_VMODULE",
                "profile_guided_latency_estimator=10",
                "Logs for each op whether the profile has its cost.",
                "pgle",
            ),
            _MIN_LOG,
            PresetEntry("TF_CPP_MAX_LOG_LEVEL", "100", "Lets those lines pass.", "pgle"),
        ),
    ),
    Preset(
        "llm-gpu",
        "Everything that the guides recommend for training a language model on GPUs.",
        (
            PresetEntry(
                "CUDA_DEVICE_MAX_CONNECTIONS",
                "1",
                "One queue keeps the launch order, which overlap relies on.",
                "llm",
            ),
            PresetEntry(
                "xla_gpu_enable_triton_gemm",
                "false",
                "cuBLAS for all matmuls: faster to compile, and often as fast to run.",
                "pgle",
            ),
            PresetEntry(
                "xla_gpu_simplify_all_fp_conversions",
                "true",
                "Removes pairs of conversions between float types.",
                "pgle",
                "--xla_gpu_simplify_all_fp_conversions",
            ),
            PresetEntry("xla_gpu_graph_level", "0", _GRAPHS_OFF, "pgle"),
            PresetEntry(
                "xla_gpu_enable_triton_softmax_fusion",
                "false",
                "Dedicated attention kernels are better.",
                "pgle",
            ),
            PresetEntry(
                "xla_disable_hlo_passes",
                "rematerialization",
                "The model's own checkpoint policy decides what is recomputed.",
                "pgle",
            ),
            PresetEntry(
                "xla_gpu_enable_custom_fusions",
                "true",
                "Avoids copies of slices and slice updates around cuBLAS calls.",
                "llm",
            ),
            PresetEntry("xla_gpu_cudnn_gemm_fusion", "true", "cuDNN fuses matmul and bias.", "llm"),
            PresetEntry(
                "xla_gpu_enable_cudnn_fmha",
                "false",
                "Attention kernels are called explicitly, not matched by pattern.",
                "llm",
            ),
        ),
        includes=("fsdp", "data-parallel", "memory"),
    ),
    *TPU_PRESETS,
)

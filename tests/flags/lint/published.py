"""Flags that projects publish for training on GPUs, with where they publish them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Published:
    """A set of settings as a file of a project has it."""

    project: str
    source: str
    settings: str
    """as shell"""
    retired: frozenset[str]
    """what jaxlib 0.10.2 refuses"""


_TOOLBOX = "https://github.com/NVIDIA/JAX-Toolbox/blob/"
_ASYNC = (
    "xla_gpu_enable_async_all_gather",
    "xla_gpu_enable_async_reduce_scatter",
    "xla_gpu_enable_async_all_reduce",
)

PUBLISHED = (
    Published(
        "MaxText",
        "https://github.com/AI-Hypercomputer/maxtext/blob/"
        "0a09954a504b07bc602bf966038f675c360da9cc/MaxText/configs/a3/llama_2_7b/16vm.sh",
        """export XLA_FLAGS="--xla_dump_to=$OUTPUT_PATH/$RUN_NAME/HLO_dumps/
--xla_gpu_enable_latency_hiding_scheduler=true
--xla_gpu_enable_triton_gemm=false --xla_gpu_graph_level=0
--xla_gpu_enable_highest_priority_async_stream=true
--xla_gpu_all_reduce_combine_threshold_bytes=1073741824
--xla_gpu_all_gather_combine_threshold_bytes=134217728
--xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
--xla_gpu_enable_pipelined_all_gather=true
--xla_gpu_enable_pipelined_reduce_scatter=true --xla_gpu_enable_pipelined_all_reduce=true
--xla_gpu_enable_while_loop_double_buffering=true
--xla_gpu_enable_triton_softmax_fusion=false
--xla_gpu_enable_all_gather_combine_by_dim=false
--xla_gpu_enable_reduce_scatter_combine_by_dim=false
--xla_disable_hlo_passes=rematerialization"
""",
        frozenset(("xla_gpu_graph_level", "xla_gpu_enable_triton_softmax_fusion")),
    ),
    Published(
        "Pax",
        "https://github.com/google/paxml/blob/04516ac858bbd5143aed2262bbd1e505f6679e28/"
        "paxml/contrib/gpu/scripts_gpu/run_pile_multinode.sh",
        """export XLA_PYTHON_CLIENT_MEM_FRACTION=${XLA_PYTHON_CLIENT_MEM_FRACTION:-0.85}
BASE_XLA_FLAGS=${BASE_XLA_FLAGS:-"--xla_gpu_enable_latency_hiding_scheduler=true
  --xla_gpu_enable_triton_gemm=false
  --xla_gpu_simplify_all_fp_conversions --xla_gpu_enable_async_all_gather=true
  --xla_gpu_enable_async_reduce_scatter=true
  --xla_gpu_enable_highest_priority_async_stream=true
  --xla_gpu_enable_triton_softmax_fusion=false
  --xla_gpu_all_reduce_combine_threshold_bytes=51200
  --xla_gpu_graph_level=0 --xla_gpu_enable_async_all_reduce=true"}
export XLA_FLAGS="$BASE_XLA_FLAGS ${XLA_FLAGS:-}"
""",
        frozenset(
            (
                *_ASYNC,
                "xla_gpu_simplify_all_fp_conversions",
                "xla_gpu_enable_triton_softmax_fusion",
                "xla_gpu_graph_level",
            )
        ),
    ),
    Published(
        "JAX-Toolbox, for MaxText",
        _TOOLBOX + "20bbcbc598144540438def5afe5e32acb6f64092/"
        "rosetta/rosetta/projects/maxtext/README.md",
        """XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true
  --xla_gpu_enable_async_all_gather=true
  --xla_gpu_enable_async_reduce_scatter=true
  --xla_gpu_enable_triton_gemm=false
  --xla_gpu_simplify_all_fp_conversions
  --xla_gpu_graph_level=0
  --xla_gpu_enable_async_all_reduce=true
  --xla_gpu_enable_highest_priority_async_stream=true
  --xla_gpu_all_reduce_combine_threshold_bytes=1073741824
  --xla_gpu_all_gather_combine_threshold_bytes=1073741824
  --xla_gpu_reduce_scatter_combine_threshold_bytes=134217728
  --xla_gpu_enable_pipelined_all_gather=true
  --xla_gpu_enable_pipelined_reduce_scatter=true
  --xla_gpu_enable_pipelined_all_reduce=true
  --xla_gpu_enable_while_loop_double_buffering=true
  --xla_gpu_enable_triton_softmax_fusion=false
  --xla_gpu_enable_all_gather_combine_by_dim=false
  --xla_gpu_enable_reduce_scatter_combine_by_dim=false
  --xla_disable_hlo_passes=rematerialization"
XLA_FLAGS="$XLA_FLAGS --xla_gpu_enable_custom_fusions=false"
XLA_FLAGS="$XLA_FLAGS --xla_gpu_enable_address_computation_fusion=false"
""",
        frozenset(
            (
                *_ASYNC,
                "xla_gpu_simplify_all_fp_conversions",
                "xla_gpu_graph_level",
                "xla_gpu_enable_triton_softmax_fusion",
                "xla_gpu_enable_custom_fusions",
                "xla_gpu_enable_address_computation_fusion",
            )
        ),
    ),
    Published(
        "JAX-Toolbox, for Pax",
        _TOOLBOX + "7559c934821c70ece5be5626741c93cfb6aa460f/"
        "rosetta/rosetta/projects/pax/xla_flags/grok-proxy.env",
        r"""ALL_REDUCE_THRESHOLD_BYTES=3221225472
export XLA_FLAGS="\
    --xla_gpu_enable_latency_hiding_scheduler=true \
    --xla_allow_excess_precision \
    --xla_gpu_enable_highest_priority_async_stream=true \
    --xla_gpu_all_reduce_combine_threshold_bytes=${ALL_REDUCE_THRESHOLD_BYTES} \
    --xla_gpu_enable_command_buffer= \
    --xla_gpu_all_gather_combine_threshold_bytes=${ALL_GATHER_THRESHOLD_BYTES} \
    --xla_gpu_reduce_scatter_combine_threshold_bytes=${REDUCE_SCATTER_THRESHOLD_BYTES} \
    --xla_gpu_enable_pipelined_all_gather=true \
    --xla_gpu_enable_pipelined_reduce_scatter=true \
    --xla_gpu_enable_pipelined_all_reduce=true \
    --xla_gpu_enable_while_loop_double_buffering=true \
    --xla_gpu_enable_all_gather_combine_by_dim=false \
    --xla_gpu_enable_reduce_scatter_combine_by_dim=false \
    --xla_disable_hlo_passes=rematerialization \
    --xla_gpu_enable_custom_fusions=true
    "
export XLA_PYTHON_CLIENT_MEM_FRACTION=0.9
""",
        frozenset(("xla_gpu_enable_custom_fusions",)),
    ),
    # Levanter's documents name no flag for GPUs; they send people to this container.
    Published(
        "Levanter, by the container that it recommends",
        _TOOLBOX + "3907312689d3aef48efca96fef845ab90af8b1c8/.github/container/Dockerfile.jax",
        """ENV XLA_FLAGS=""
ENV XLA_FLAGS="${XLA_FLAGS} --xla_gpu_enable_latency_hiding_scheduler=true"
ENV XLA_FLAGS="${XLA_FLAGS} --xla_gpu_enable_triton_gemm=false"
ENV CUDA_DEVICE_MAX_CONNECTIONS=1
ENV NCCL_NVLS_ENABLE=0
ENV CUDA_MODULE_LOADING=EAGER
""",
        frozenset(),
    ),
)

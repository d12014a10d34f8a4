"""What lint says of a value is what the installed jaxlib does with it."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from slipstream.flags.catalogue import installed_catalogue
from slipstream.flags.environment import read_environment
from slipstream.flags.findings import FAILING
from slipstream.flags.lint import lint

START = "from jaxlib import xla_client; xla_client.CompileOptions()"
STRINGS = (
    "--xla_gpu_triton_gemm_any=TRUE",
    "--xla_gpu_triton_gemm_any=yes",
    "--xla_gpu_triton_gemm_any=",
    "--xla_gpu_enable_pipelined_p2p",
    "--xla_gpu_autotune_level",
    "--xla_gpu_autotune_level=+3",
    "--xla_gpu_autotune_level=high",
    "--xla_gpu_autotune_level=99999999999",
    "--xla_gpu_all_reduce_combine_threshold_bytes=1e9",
    "--xla_dump_to",
    "--xla_dump_to=",
    "--xla_gpu_pgle_accuracy_checker=error",
    "--xla_gpu_enable_while_loop_unrolling=AUTO_UNROLL",
    "--xla_gpu_enable_while_loop_unrolling=while_loop_unrolling_auto_unroll",
    "--xla_gpu_detect_nan=fail",
    "--xla_gpu_detect_nan=DETECTION_MODE_FAIL",
    "--xla_gpu_all_gather_mode=private",
    "--xla_gpu_all_gather_mode=PEER",
    "--xla_gpu_all_gather_mode=COLLECTIVES_PRIVATE_MEMORY",
    "--xla_gpu_collective_permute_mode=symmetric",
    "--xla_gpu_ragged_all_to_all_mode=COLLECTIVES_PEER_MEMORY",
    "--xla_detect_unstable_reductions=Fail",
    "--xla_gpu_enable_command_buffer=",
    "--xla_gpu_enable_command_buffer=fusion",
    "--xla_gpu_enable_command_buffer=+COLLECTIVES",
    "--xla_gpu_enable_command_buffer=+WHILE,FUSION",
    "--xla_gpu_enable_command_buffer=FUSION,NOPE",
    "--xla_gpu_disable_async_collectives=",
    "--xla_gpu_disable_async_collectives=ALLGATHER,REDUCESCATTER",
    "--xla_gpu_enable_cudnn_fmha=maybe",
    "--xla_gpu_enable_pipelined_all_gather=maybe",
    "--xla_gpu_enable_triton_gemm=false--xla_gpu_autotune_level=3",
    "-xla_gpu_autotune_level=3",
    "--xla_gpu_autotune_level=3 stray --xla_gpu_triton_gemm_any=true",
    "stray --xla_gpu_autotune_level=3",
)


def test_lint_agrees_with_xla() -> None:
    catalogue = installed_catalogue()
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        ended = dict(zip(STRINGS, pool.map(_ends, STRINGS), strict=True))
    said = {
        flags: any(
            finding.severity in FAILING
            for finding in lint(read_environment({"XLA_FLAGS": flags}), catalogue)
        )
        for flags in STRINGS
    }
    assert said == ended


def _ends(flags: str) -> bool:
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", START], env=environment, capture_output=True)
    return done.returncode != 0

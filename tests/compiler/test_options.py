"""Flags reach XLA the way it takes them."""

import pytest

from slipstream.compiler.options import SplitFlags, split_flags
from slipstream.errors import BadInput

ESTIMATOR = "xla_gpu_analytical_latency_estimator_options"


def test_most_flags_go_with_a_compile():
    given = {
        "xla_gpu_enable_triton_gemm": False,
        "--xla_gpu_all_gather_combine_threshold_bytes": 1024,
        "xla_gpu_enable_command_buffer": "",
        "xla_gpu_disable_async_collectives": ["ALLGATHER", "ALLREDUCE"],
    }
    assert split_flags(given) == SplitFlags(
        {
            "xla_gpu_enable_triton_gemm": "False",
            "xla_gpu_all_gather_combine_threshold_bytes": "1024",
            "xla_gpu_enable_command_buffer": "",
            "xla_gpu_disable_async_collectives": "ALLGATHER,ALLREDUCE",
        }
    )
    assert split_flags(None) == split_flags({}) == split_flags("") == SplitFlags()


def test_flags_as_people_write_them():
    text = "--xla_gpu_enable_triton_gemm=false --xla_gpu_enable_latency_hiding_scheduler"
    assert split_flags(text).compiler_options == {
        "xla_gpu_enable_triton_gemm": "False",
        "xla_gpu_enable_latency_hiding_scheduler": "True",
    }


def test_maps_and_changed_lists_need_a_process():
    given = {ESTIMATOR: "nic_speed_gbps=1", "xla_gpu_enable_command_buffer": "+COLLECTIVES"}
    options = split_flags(given)
    assert (options.compiler_options, options.xla_flags) == ({}, given)
    assert options.text == (
        f"--{ESTIMATOR}=nic_speed_gbps=1 --xla_gpu_enable_command_buffer=+COLLECTIVES"
    )


def test_efforts_are_numbers():
    assert split_flags({"optimization_level": 1}).compiler_options == {"optimization_level": "1"}
    with pytest.raises(BadInput, match="optimization_level is 'high'; expected a number"):
        split_flags({"optimization_level": "high"})


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ("--xla_gpu_enable_triton_gem=true", "did you mean xla_gpu_enable_triton_gemm?"),
        ("--something_else=1", "has no flag something_else; see: slipstream flags list"),
        ("--xla_gpu_enable_async_all_gather=true", "rejects xla_gpu_enable_async_all_gather"),
        ("--xla_gpu_all_gather_combine_threshold_bytes=lots", "expected an integer"),
        ("--xla_gpu_enable_triton_gemm=perhaps", "expected"),
        ("--xla_a='b", "can't be parsed"),
    ],
)
def test_flags_that_xla_would_refuse(flags, complaint):
    with pytest.raises(BadInput) as error:
        split_flags(flags)
    assert complaint in str(error.value)

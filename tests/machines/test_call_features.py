"""Custom calls of libraries: what they compute, and from what that is known."""

import pytest

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import CALLBACK_US, kernel_time
from slipstream.machines.topology import machine
from slipstream.profile.semantics.flops import work
from slipstream.sources.hlo.reader import program_from_text

SCRATCH = "u8[1024]{0}"


def call(target: str, operands: str, results: str, config: str = ""):
    """A program with one call; operands and results are shapes."""
    shapes = operands.split()
    lines = "\n".join(f"  p{n} = {shape} parameter({n})" for n, shape in enumerate(shapes))
    names = ", ".join(f"p{n}" for n in range(len(shapes)))
    quoted = config.replace('"', '\\"')
    return program_from_text(
        "HloModule calls, is_scheduled=true\n\nENTRY main {\n"
        f"{lines}\n  ROOT out = {results} custom-call({names}), "
        f'custom_call_target="{target}", backend_config="{quoted}"\n}}\n'
    )


def features(*stated: str) -> KernelFeatures:
    program = call(*stated)
    return kernel_features(program, program.instruction("out"))


def test_products_of_transformer_engine_are_known_by_their_shapes():
    plain = features(
        "te_gemm_ffi",
        "bf16[2,512,1024]{2,1,0} bf16[1024,4096]{1,0}",
        f"(bf16[2,512,4096]{{2,1,0}}, {SCRATCH})",
    )
    assert (plain.kind, plain.gemm) == ("gemm", Gemm(1, 1024, 4096, 1024, "bf16"))
    scaled = features(
        "te_gemm_v2_ffi",
        "f8e4m3fn[512,1024]{1,0} f8e4m3fn[256,1024]{1,0} f32[1]{0}",
        "bf16[512,256]{1,0}",
    )
    assert scaled.gemm == Gemm(1, 512, 256, 1024, "f8")
    grouped = features(
        "te_grouped_gemm_ffi",
        "bf16[8192,1024]{1,0} bf16[8,1024,4096]{2,1,0}",
        "bf16[8192,4096]{1,0}",
    )
    assert grouped.gemm == Gemm(1, 8192, 4096, 1024, "bf16")
    program = call("te_gemm_ffi", "bf16[512,1024]{1,0} bf16[1024,4096]{1,0}", "bf16[512,4096]{1,0}")
    assert work(program, program.instruction("out")).flops == 2 * 512 * 1024 * 4096
    odd = features("te_gemm_ffi", "bf16[7]{0} bf16[5]{0}", "bf16[3]{0}")
    assert (odd.kind, odd.gemm) == ("other", None)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("te_layernorm_forward_ffi", "rows"),
        ("te_norm_forward_ffi", "rows"),
        ("te_scaled_softmax_forward_ffi", "rows"),
        ("te_act_lu_ffi", "loop"),
        ("te_dact_lu_dbias_quantize_ffi", "loop"),
        ("te_dbias_quantize_ffi", "loop"),
        ("te_cast_transpose_ffi", "transpose"),
        ("te_something_new_ffi", "other"),
    ],
)
def test_other_calls_of_transformer_engine_are_known_by_their_bytes(target, kind):
    found = features(target, "bf16[4096,4096]{1,0}", f"(bf16[4096,4096]{{1,0}}, {SCRATCH})")
    assert (found.kind, found.bytes) == (kind, 2 * 4096 * 4096 * 2)
    program = call(target, "bf16[4096,4096]{1,0}", f"(bf16[4096,4096]{{1,0}}, {SCRATCH})")
    estimate = kernel_time(machine("H200"), program, program.instruction("out"))
    assert estimate.basis == ("default" if kind == "other" else "modelled")
    least_us = found.bytes / machine("H200").gpu.memory_bandwidth * 1e6
    assert least_us < estimate.us < 2 * least_us


def test_a_product_with_scales_for_blocks_is_fp8():
    found = features(
        "__cudnn$blockScaledDot",
        "f8e4m3fn[2,512,1024]{2,1,0} f8e4m3fn[2,256,1024]{2,1,0} f8e8m0fnu[2,512,32]{2,1,0}",
        f"(f32[2,512,256]{{2,1,0}}, {SCRATCH})",
    )
    assert (found.kind, found.gemm) == ("gemm", Gemm(2, 512, 256, 1024, "f8"))


def test_a_callback_goes_to_the_host_and_back():
    program = call("xla_ffi_python_gpu_callback", "f32[1024,1024]{1,0}", "f32[1024,1024]{1,0}")
    estimate = kernel_time(machine("H200"), program, program.instruction("out"))
    least = 2 * 4 * 1024**2 / machine("H200").gpu.host_bandwidth * 1e6
    assert (estimate.kind, estimate.basis) == ("copy", "modelled")
    assert CALLBACK_US + least < estimate.us < CALLBACK_US + 1.5 * least


COUNTED = (
    "{{slipstream_flops = {flops} : i64, slipstream_operations = 1000000 : i64, "
    "slipstream_transcendentals = 1000000 : i64, slipstream_programs = {programs} : i64, "
    "slipstream_longest = 1.0 : f64, slipstream_is_dynamic = {dynamic}, "
    "slipstream_m = {m} : i64, slipstream_n = 128 : i64, slipstream_k = 64 : i64, "
    'slipstream_dtype = "bf16", name = "mine"}}'
)


def pallas_us(
    flops: int = 10**12, programs: int = 10**4, m: int = 128, dynamic: str = "false"
) -> tuple[float, str]:
    config = COUNTED.format(flops=flops, programs=programs, m=m, dynamic=dynamic)
    program = call("__gpu$xla.gpu.triton", "bf16[4096,4096]{1,0}", "bf16[4096,4096]{1,0}", config)
    estimate = kernel_time(machine("H200"), program, program.instruction("out"))
    return estimate.us, estimate.basis


def test_a_pallas_kernel_takes_as_long_as_its_code_and_its_operands_say():
    gpu = machine("H200").gpu
    us, basis = pallas_us()
    assert basis == "modelled"
    assert 1.5 < us / (10**12 / gpu.peak_flops["bf16"] * 1e6) < 2.5
    # Small tiles and few programs don't fill the GPU.
    assert pallas_us(m=32)[0] > 1.5 * us
    assert pallas_us(programs=33)[0] == pytest.approx(4 * us, rel=0.1)
    least = 2 * 4096 * 4096 * 2 / gpu.memory_bandwidth * 1e6
    assert pallas_us(flops=0, m=0)[0] > least


def test_a_pallas_kernel_with_a_loop_of_unknown_length_is_a_lower_bound():
    assert pallas_us(dynamic="true") == (pallas_us()[0], "default")
    assert features("__gpu$xla.gpu.triton", "f32[8]{0}", "f32[8]{0}", "{}").kind == "other"

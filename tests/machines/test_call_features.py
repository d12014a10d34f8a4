"""Custom calls of libraries: what they compute, and from what that is known."""

import pytest

from slipstream.machines.features import KernelFeatures
from slipstream.machines.gemm_model import Gemm
from slipstream.machines.kernel_features import kernel_features
from slipstream.machines.kernel_model import kernel_time
from slipstream.machines.topology import machine
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

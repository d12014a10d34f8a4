"""What calls of fused attention compute."""

import base64
import json

import pytest

from slipstream.profile.semantics.attention import Attention, attention_of
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.descriptions import describe
from slipstream.profile.semantics.flops import flops, work
from slipstream.sources.hlo.reader import program_from_text

TE = (
    "{attn_heads = 64 : i64, deterministic = false, dropout_probability = 0.000000e+00 : f64, "
    "input_batch = 2 : i64, kv_max_seqlen = 4096 : i64, mask_type = 3 : i64, "
    "num_gqa_groups = 8 : i64, q_max_seqlen = 4096 : i64, qk_head_dim = 128 : i64, "
    "qkv_layout = 9 : i64, v_head_dim = 128 : i64, window_size_left = -1 : i64}"
)
CUDNN = (
    '{"cudnn_fmha_backend_config":{"mask_type":"CAUSAL","sliding_window_length":512,'
    '"intermediate_tensor_shape":{"dimensions":["2","64","4096","4096"]}}}'
)


def program(target: str, config: str):
    quoted = config.replace('"', '\\"')
    return program_from_text(
        f"""HloModule attention, is_scheduled=true

ENTRY main {{
  q = bf16[2,4096,64,128]{{3,2,1,0}} parameter(0)
  k = bf16[2,4096,8,128]{{3,2,1,0}} parameter(1)
  ROOT out = (bf16[2,4096,64,128]{{3,2,1,0}}, u8[48]{{0}}) custom-call(q, k, k), custom_call_target="{target}", backend_config="{quoted}"
}}
"""  # noqa: E501
    )


def found(target: str, config: str) -> Attention | None:
    read = program(target, config)
    call = read.instruction("out")
    return attention_of(call, [operand.shape for operand in read.operands(call)])


def test_transformer_engine_states_its_dimensions():
    forward = found("te_fused_attn_forward_ffi", TE)
    assert forward == Attention(128, 4096, 4096, 128, "bf16", is_causal=True)
    assert forward.flops == 2 * 2 * 128 * 4096 * 4096 * 128 // 2
    backward = found("te_fused_attn_backward_ffi", TE)
    assert backward is not None and backward.is_backward
    assert backward.flops == forward.flops * 5 // 2


def test_masks_and_windows():
    whole = found("te_fused_attn_forward_ffi", TE.replace("mask_type = 3", "mask_type = 1"))
    assert whole is not None and not whole.is_causal
    narrow = found("te_fused_attn_forward_ffi", TE.replace("left = -1", "left = 255"))
    assert narrow is not None and narrow.window == 256
    assert narrow.pairs == 128 * 4096 * 256


def test_cudnn_states_the_shape_of_its_scores():
    assert found("__cudnn$fmhaSoftmax", CUDNN) == Attention(
        128, 4096, 4096, 128, "bf16", is_causal=True, window=512
    )
    read = program("__cudnn$fmhaSoftmax", CUDNN)
    assert work(read, read.instruction("out")).flops == 2 * 2 * 128 * 4096 * 512 * 128


def test_a_call_without_dimensions_is_unknown():
    assert found("te_fused_attn_forward_ffi", "") is None
    assert (
        found("te_fused_attn_forward_ffi", TE.replace("input_batch = 2", "input_batch = 0")) is None
    )
    assert found("te_fused_attn_forward_ffi", "{qk_head_dim = 128 : i64}") is None
    assert found("__cudnn$fmhaSoftmax", "{}") is None
    assert found("custom", TE) is None


PALLAS = """
HloModule f, is_scheduled=true

ENTRY main (q: bf16[2,16,2048,128], k: bf16[2,16,1024,128]) -> bf16[2,16,2048,128] {{
  q = bf16[2,16,2048,128]{{3,2,1,0:T(8,128)(2,1)}} parameter(0)
  k = bf16[2,16,1024,128]{{3,2,1,0:T(8,128)(2,1)}} parameter(1)
  ROOT {name} = bf16[2,16,2048,128]{{3,2,1,0}} custom-call(q, k, k), \
custom_call_target="tpu_custom_call"
}}
"""


@pytest.mark.parametrize(
    ("name", "products", "said"),
    [
        ("flash_attention.3", 2, "flash attention"),
        ("splash_mha_fwd_residuals.1", 2, "flash attention"),
        ("flash_mha_bwd_dq_block_q_major_512.1", 3, "flash attention′"),
        ("flash_mha_bwd_dkv_block_q_512.1", 4, "flash attention′"),
        ("splash_mha_bwd.7", 5, "flash attention′"),
        ("ragged_dot.2", 0, "ragged dot (Pallas)"),
    ],
)
def test_attention_of_pallas_kernels_for_tpus(name: str, products: int, said: str) -> None:
    program = program_from_text(PALLAS.format(name=name))
    call = program.instruction(name)
    assert flops(program, call) == products * 2 * 2 * 16 * 2048 * 1024 * 128
    itself = program_from_text(PALLAS.format(name=name).replace("1024", "2048"))
    # A causal mask, by assumption: half of the pairs.
    assert flops(itself, itself.instruction(name)) == flops(program, call)
    assert describe(program, call) == said
    assert category(program, call) == ("attention" if products else "custom call")


@pytest.mark.parametrize(
    ("name", "body", "is_causal"),
    [
        ("flash_attention.3", b"ML\xefR\x01 arith.cmpi tpu.iota tpu.matmul", True),
        ("flash_attention.3", b"ML\xefR\x01 arith.cmpi tpu.matmul", False),
        ("flash_mha_bwd_dq_block_q_512.1", b"ML\xefR\x01 tpu.matmul", False),
        # What can't be read says nothing; masks of splash attention may be arrays.
        ("flash_attention.3", b"other code", True),
        ("splash_mha_bwd.7", b"ML\xefR\x01 tpu.matmul", True),
    ],
)
def test_a_flash_attention_without_indices_has_no_causal_mask(
    name: str, body: bytes, is_causal: bool
) -> None:
    text = PALLAS.format(name=name).replace("1024", "2048")
    config = json.dumps({"custom_call_config": {"body": base64.b64encode(body).decode()}})
    target = 'custom_call_target="tpu_custom_call"'
    program = program_from_text(text.replace(target, f"{target}, backend_config={config}"))
    call = program.instruction(name)
    found = attention_of(call, [operand.shape for operand in program.operands(call)])
    assert found is not None
    assert found.is_causal == is_causal

from collections.abc import Callable
from typing import Any

import pytest

from recorded import DATA, recorded
from slipstream.profile.semantics.categories import category
from slipstream.profile.semantics.flops import Work, flops, is_product, total_work, work
from slipstream.profile.semantics.traffic import bytes_accessed
from slipstream.sources.hlo.reader import program_from_proto, program_from_text, read_program

CONVOLUTIONS: dict[str, dict[str, Any]] = {
    "same": {"padding": "SAME"},
    "strided": {"padding": "VALID", "window_strides": (2, 2)},
    "stretched input": {"padding": [(1, 2), (1, 2)], "lhs_dilation": (2, 2)},
    "stretched kernel": {"padding": "SAME", "rhs_dilation": (2, 2)},
    "grouped": {"padding": "SAME", "feature_group_count": 4},
}


def against_xla(function: Callable[..., Any], *shapes: tuple[int, ...]) -> tuple[Work, Work]:
    """Our count and XLA's of a function of float32 arrays, compiled for the CPU."""
    jax = pytest.importorskip("jax")
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in shapes]
    compiled = jax.jit(function).lower(*arguments).compile()
    analysis = compiled.cost_analysis()
    keys = ("flops", "transcendentals", "bytes accessed")
    theirs = Work(*(int(analysis.get(key, 0)) for key in keys))
    ours = total_work(program_from_text(compiled.as_text()))
    module = compiled.runtime_executable().hlo_modules()[0].as_serialized_hlo_module_proto()
    assert total_work(program_from_proto(module)) == ours
    return ours, theirs


def test_products() -> None:
    ours, theirs = against_xla(lambda a, b: a @ b, (64, 128), (128, 32))
    assert ours == theirs == Work(2 * 64 * 128 * 32, 0, 4 * (64 * 128 + 128 * 32 + 64 * 32))
    jnp = pytest.importorskip("jax.numpy")
    batched = lambda a, b: jnp.einsum("bij,bkj->bik", a, b)  # noqa: E731
    ours, theirs = against_xla(batched, (4, 64, 128), (4, 32, 128))
    assert ours == theirs


def test_elementwise_and_reductions() -> None:
    jax = pytest.importorskip("jax")
    functions = [
        lambda a: a + a * 2,
        lambda a: jax.numpy.exp(a) + jax.numpy.tanh(a),
        lambda a: a.sum(1),
        lambda a: a.max(),
        jax.nn.softmax,
        lambda a: jax.numpy.where(a > 0, a, 0.0),
    ]
    for function in functions:
        ours, theirs = against_xla(function, (64, 128))
        assert ours == theirs


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str) -> None:
    lax = pytest.importorskip("jax").lax
    options: dict[str, Any] = {"window_strides": (1, 1), **CONVOLUTIONS[name]}
    inputs = 8 // options.get("feature_group_count", 1)
    ours, theirs = against_xla(
        lambda x, k: lax.conv_general_dilated(
            x, k, dimension_numbers=("NHWC", "HWIO", "NHWC"), **options
        ),
        (2, 16, 16, 8),
        (3, 3, inputs, 4),
    )
    assert ours == theirs


def test_a_loop_counts_its_turns() -> None:
    jax = pytest.importorskip("jax")

    def layers(h: Any, weights: Any) -> Any:
        return jax.lax.scan(lambda h, w: (jax.numpy.tanh(h @ w), None), h, weights)[0]

    ours, _ = against_xla(layers, (16, 32), (5, 32, 32))
    assert ours.flops == 5 * 2 * 16 * 32 * 32
    assert ours.transcendentals == 5 * 16 * 32


def test_a_slice_counts_as_a_slice() -> None:
    text = """
HloModule m
%fused (p: f32[8,1024], i: s32[]) -> f32[1,1024] {
  %p = f32[8,1024]{1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %part = f32[1,1024]{1,0} dynamic-slice(%p, %i, %zero), dynamic_slice_sizes={1,1024}
  ROOT %twice = f32[1,1024]{1,0} add(%part, %part)
}
%updated (q: f32[8,1024], u: f32[1,1024], j: s32[]) -> f32[8,1024] {
  %q = f32[8,1024]{1,0} parameter(0)
  %u = f32[1,1024]{1,0} parameter(1)
  %j = s32[] parameter(2)
  %none = s32[] constant(0)
  ROOT %put = f32[8,1024]{1,0} dynamic-update-slice(%q, %u, %j, %none)
}
ENTRY %main {
  %x = f32[8,1024]{1,0} parameter(0)
  %n = s32[] parameter(1)
  %read = f32[1,1024]{1,0} fusion(%x, %n), kind=kLoop, calls=%fused
  ROOT %write = f32[8,1024]{1,0} fusion(%x, %read, %n), kind=kLoop, calls=%updated
}
"""
    program = program_from_text(text)
    row = 4 * 1024
    assert work(program, program.instruction("read")) == Work(1024, 0, 2 * row + 4)
    assert bytes_accessed(program, program.instruction("write")) == 2 * row + 4


def test_library_calls_of_a_training_step() -> None:
    program = recorded("attention_plain", "jit_step(3972)")
    d, tokens, heads, seq, batch = 2048, 16 * 2048, 16, 2048, 16
    assert flops(program, program.instruction("custom-call.3")) == 2 * tokens * d * 3 * d
    # Two products of scores, half of them masked; five backward.
    scores = batch * heads * seq * seq * (d // heads)
    forward = flops(program, program.instruction("dot_product_attention_fwd.5"))
    backward = flops(program, program.instruction("dot_product_attention_bwd.8"))
    assert (forward, backward) == (2 * scores, 5 * scores)


def test_six_times_parameters_times_tokens() -> None:
    program = recorded("single", "jit_train_step(0)")
    layers, d, tokens, vocab, seq, batch = 8, 2048, 16384, 32768, 2048, 8
    block = layers * 2 * tokens * (3 * d * d + d * d + 8 * d * d)
    attention = layers * 4 * batch * seq * seq * d
    # Forward, backward twice, and a second forward of all but the last product (w2) of a block.
    least = 4 * (block + attention) - layers * 2 * tokens * 4 * d * d + 3 * 2 * tokens * d * vocab
    total = total_work(program).flops
    assert least <= total < 1.05 * least


def test_convolutions_cost_the_same_in_all_directions() -> None:
    program = recorded("convolution_plain", "jit_step(295726)")
    names = ("cudnn-conv.37", "cudnn-conv-bw-filter.22", "cudnn-conv-bw-input.29")
    assert len({flops(program, program.instruction(name)) for name in names}) == 1


def test_an_asynchronous_operation_counts_once() -> None:
    program = recorded("off_default", "jit_step(342693)")
    start = program.instruction("dynamic-update-slice-start.1")
    assert work(program, start).bytes == 2 * 16 * 1024 * 4096 * 2 + 16
    assert work(program, program.instruction("dynamic-update-slice-done.1")) == Work()


def test_products_of_a_tpu_are_convolutions_and_count_once() -> None:
    """Four layers and a head, by hand: 4096 tokens a device, in two sequences of 2048."""
    program = read_program(DATA / "tpu" / "v5e_2slices.hlo.gz")
    tokens, width, inner, words = 2 * 2048, 2048, 8192, 32000
    per_layer = width * (3 * width + width + 2 * inner)
    again = per_layer - inner * width  # remat leaves out the last product, which nothing needs
    attention = 2 * 2 * 2048 * width * tokens
    by_hand = 2 * tokens * (4 * (3 * per_layer + again) + 3 * width * words) + 4 * 4 * attention
    assert total_work(program).flops == pytest.approx(by_hand, rel=0.01)
    product = program.instruction("convolution-base-dilated.67")
    assert is_product(program, product)
    assert category(program, program.instruction("fusion.465")) == "matmul"


def test_a_real_convolution_is_no_product() -> None:
    text = """
HloModule f, is_scheduled=true

ENTRY main (x: f32[8,32,32,16], k: f32[3,3,16,64]) -> f32[8,32,32,64] {
  x = f32[8,32,32,16]{3,2,1,0} parameter(0)
  k = f32[3,3,16,64]{3,2,1,0} parameter(1)
  ROOT c = f32[8,32,32,64]{3,2,1,0} convolution(x, k), window={size=3x3 pad=1_1x1_1}, \
dim_labels=b01f_01io->b01f
}
"""
    program = program_from_text(text)
    assert not is_product(program, program.instruction("c"))
    assert category(program, program.instruction("c")) == "convolution"

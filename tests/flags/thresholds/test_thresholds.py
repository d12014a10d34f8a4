from dataclasses import dataclass

import numpy as np
import pytest

from flags.thresholds.llama_step import LAYERS, WIDTH, WORDS, compiled
from flags.thresholds.llama_step import layer_shapes as llama_layer
from flags.thresholds.llama_step import model_shapes as llama
from slipstream.errors import BadInput
from slipstream.flags.thresholds.thresholds import thresholds, thresholds_of_params
from slipstream.flags.thresholds.weights import path_of
from slipstream.outputs.terminal.flags.thresholds import render_thresholds, thresholds_json
from slipstream.sources.hlo.reader import program_from_text, read_program

MIB = 1 << 20


@dataclass(frozen=True)
class Array:
    """As much of an array as jax.eval_shape gives."""

    shape: tuple[int, ...]
    dtype: object


STACKED = llama(llama_layer(LAYERS))
NUMBERED = llama([llama_layer() for _ in range(LAYERS)])
NAMED = {"embedding": (WORDS, WIDTH), "norm": (WIDTH,), "head": (WIDTH, WORDS)} | {
    f"layer_{number}": llama_layer() for number in range(LAYERS)
}


@pytest.mark.parametrize("params", [STACKED, NUMBERED, NAMED], ids=["scan", "list", "names"])
def test_llama_2_7b_gives_what_the_guide_computes(params):
    """The guide: 7 billion weights, 32 layers, 218 million each, 436 MB in bf16.

    A layer proper is 405 MB; with its share of the embeddings it is 421 MB, and the guide's 436
    MB come of rounding 6.74 billion up to 7.  Rounded up to 32 MiB, so do ours.
    """
    found = thresholds_of_params(params)

    assert found.layers == 32
    assert found.layer_weights.bytes == 404_766_720
    assert found.weights_by_layer.bytes == 13_476_831_232 // 32 == 421_150_976
    assert found.all_gradients.bytes == 13_476_831_232
    assert found.all_gather.bytes == found.reduce_scatter.bytes == 436_207_616
    assert found.all_gather.bytes == pytest.approx(436e6, rel=0.001)
    assert found.xla_flags == (
        "--xla_gpu_all_gather_combine_threshold_bytes=436207616 "
        "--xla_gpu_reduce_scatter_combine_threshold_bytes=436207616"
    )


def guide(parameters, layers, bytes_each):
    """The guide's arithmetic: 7 billion / 32 layers ~ 218 million weights each, 2 bytes each."""
    billions = round(parameters / 1e9)
    millions_a_layer = billions * 1000 // layers
    return millions_a_layer * 10**6 * bytes_each


@pytest.mark.parametrize("params", [STACKED, NUMBERED, NAMED], ids=["scan", "list", "names"])
def test_the_guides_figure_is_436_mb(params):
    found = thresholds_of_params(params)

    assert found.as_the_guide.bytes == guide(6_738_415_616, 32, 2) == 436_000_000
    assert found.as_the_guide.basis == (
        "as in the guide: 7 billion weights with embeddings (6,738,415,616 rounded), "
        "over 32 layers, 218 million each, times 2 bytes"
    )
    assert found.all_gather.bytes >= found.as_the_guide.bytes
    assert "the guide's figure          436 MB  as in the guide" in str(render_thresholds(found))
    assert thresholds_json(found)["as_the_guide"]["bytes"] == 436_000_000


def test_llama_2_7b_compiled_for_eight_gpus_gives_the_same(data, tmp_path):
    """The real compiler, FSDP with a scan: every weight is gathered inside the loop."""
    compiled(data / "h200_target.txtpb", tmp_path / "llama.pb")
    found = thresholds(read_program(tmp_path / "llama.pb"))
    tree = thresholds_of_params(STACKED)

    assert (found.layers, found.layer_weights.bytes) == (32, 404_766_720)
    assert found.as_the_guide == tree.as_the_guide
    assert found.weights_by_layer.bytes == tree.weights_by_layer.bytes
    assert found.flags == tree.flags


@pytest.mark.parametrize(
    ("shape", "figure"), [((512, 512), 262_144 * 2), ((4096, 4096), 17_000_000 * 2)]
)
def test_small_models_are_not_rounded_to_nothing(shape, figure):
    assert thresholds_of_params({"w": shape}).as_the_guide.bytes == figure


def test_the_ladder_doubles_from_16_mib_until_all_gradients_fit():
    found = thresholds_of_params(STACKED)

    assert found.all_reduce == tuple(16 * MIB << step for step in range(11))
    assert found.all_reduce[-2] < found.all_gradients.bytes <= found.all_reduce[-1]
    assert thresholds_of_params({"w": (8, 8)}).all_reduce == (16 * MIB,)


def test_gradients_may_have_another_type():
    found = thresholds_of_params(STACKED, gradient_dtype="float32")

    assert found.layer_gradients.bytes == 2 * found.layer_weights.bytes
    assert found.reduce_scatter.bytes == 842_350_976 + 33_554_432 - 842_350_976 % 33_554_432


def test_arrays_have_their_own_types():
    layer = {"w": Array((8, 64, 64), np.dtype("float32")), "b": Array((8, 64), "bf16")}
    found = thresholds_of_params({"blocks": layer})

    assert (found.layers, found.layer_weights.bytes) == (8, 64 * 64 * 4 + 64 * 2)


def test_a_stack_behind_another_dimension_needs_telling():
    params = {"layers": {"w": (512, 6, 512), "b": (512, 6)}, "embedding": (1024, 512)}

    assert thresholds_of_params(params, layers=6).layer_weights.bytes == (512 * 512 + 512) * 2
    assert thresholds_of_params(params, layers=6).layers == 6


def test_axes_that_weights_are_not_gathered_over_cut_them():
    specs = {"layers": {"up": (None, "data", "model"), "down": (None, "model", "data")}}
    params = {"layers": {"up": (4, 1024, 4096), "down": (4, 4096, 1024)}}
    found = thresholds_of_params(params, specs=specs, mesh={"data": 8, "model": 4})

    assert found.layer_weights.bytes == 2 * 1024 * 4096 * 2 // 4
    assert found.notes == (
        "a layer is gathered along different dimensions (2.1 MB along dimension 1, 2.1 MB along "
        "dimension 2): keep xla_gpu_enable_all_gather_combine_by_dim false, or they are not "
        "combined",
    )


def test_a_model_without_layers_says_so():
    found = thresholds_of_params({"a": (1024, 1024), "b": (1024, 512)})

    assert found.layers is None
    assert "no layers found" in found.layer_weights.basis
    assert found.all_gather.bytes == 32 * MIB


@pytest.mark.parametrize(
    ("params", "complaint"),
    [
        ({}, "has no arrays"),
        ({"a": {"b": "text"}}, "a.b is a str; expected a dict"),
        ({"a": Array((2, 2), "bfloat17")}, "a has the type 'bfloat17'"),
    ],
)
def test_what_is_no_parameter_tree_is_refused(params, complaint):
    with pytest.raises(BadInput, match=complaint):
        thresholds_of_params(params)


def test_keys_of_an_argument():
    assert path_of("state.params['layers'][3]['q']") == ("state", "params", "layers", "3", "q")


# Programs.


def test_a_sharded_program_with_a_scan(data):
    """GPT, 4 layers in a scan, float32 weights cast and gathered from two devices."""
    found = thresholds(read_program(data / "nccl2_lhs_r0.hlo.gz"))

    matrices = 1024 * 4096 + 4096 * 1024 + 1024 * 1024 + 1024 * 3072
    assert found.layers == 4
    assert found.layer_weights.bytes == pytest.approx(matrices * 2, rel=0.001)
    assert found.all_gradients.bytes == pytest.approx((4 * matrices + 8192 * 1024) * 2, rel=0.001)
    assert found.flags == dict.fromkeys(found.flags, 32 * MIB)
    assert found.notes[0] == "the program has 8 all-gathers, the largest of 268 MB"
    assert "meant to put a layer's arrays into one collective" in found.notes[-1]


def test_a_program_on_one_device_has_nothing_to_combine(data):
    found = thresholds(read_program(data / "off_default.hlo.gz"))

    assert (found.layers, found.layer_weights.bytes) == (8, 805_339_136)
    assert found.notes == (
        "the program has no collectives to combine, so these thresholds have no effect on it",
    )


UNROLLED = """
HloModule jit_step, is_scheduled=true, num_partitions=4

ENTRY main {
  p0 = bf16[256,1024]{1,0} parameter(0), metadata={op_name="params['layers'][0]['w']"}
  p1 = bf16[256,1024]{1,0} parameter(1), metadata={op_name="params['layers'][1]['w']"}
  emb = bf16[128,64]{1,0} parameter(2), metadata={op_name="params['emb']"}
  x = bf16[8,1024]{1,0} parameter(3), metadata={op_name="batch['x']"}
  g0 = bf16[1024,1024]{1,0} all-gather(p0), replica_groups={{0,1,2,3}}, dimensions={0}
  g1 = bf16[1024,1024]{1,0} all-gather(p1), replica_groups={{0,1,2,3}}, dimensions={0}
  y = bf16[8,1024]{1,0} dot(x, g0), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[8,1024]{1,0} dot(y, g1), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  n0 = bf16[256,1024]{1,0} negate(p0)
  n1 = bf16[256,1024]{1,0} negate(p1)
  n2 = bf16[128,64]{1,0} negate(emb)
  ROOT out = (bf16[256,1024], bf16[256,1024], bf16[128,64]) tuple(n0, n1, n2)
}
"""


def test_numbers_in_names_are_layers_and_a_batch_is_no_weight():
    found = thresholds(program_from_text(UNROLLED))

    assert (found.layers, found.layer_weights.bytes) == (2, 1024 * 1024 * 2)
    assert found.layer_weights.basis == ("the 1 array of params.layers.0, the largest of 2 layers")
    assert found.all_gradients.bytes == (2 * 1024 * 1024 + 128 * 64) * 2
    assert "the program reduces none" in found.all_gradients.basis


def test_a_program_without_weights_is_refused():
    text = "HloModule m\nENTRY main {\n  ROOT x = f32[8]{0} parameter(0)\n}\n"
    with pytest.raises(BadInput, match="none of its 1 parameters looks like a weight"):
        thresholds(program_from_text(text))


def test_every_figure_is_shown_with_its_basis():
    found = thresholds_of_params(STACKED)
    text = str(render_thresholds(found))

    assert text.splitlines()[0] == "parameters · 32 layers"
    assert "weights of a layer          405 MB  9 arrays, each with 32 stacked layers" in text
    assert "all-gather threshold        436 MB  fits the weights of one layer" in text
    assert "  16 32 64 128 256 512 1024 2048 4096 8192 16384\n" in text
    assert text.endswith(
        'export XLA_FLAGS="$XLA_FLAGS \\\n'
        "  --xla_gpu_all_gather_combine_threshold_bytes=436207616 \\\n"
        '  --xla_gpu_reduce_scatter_combine_threshold_bytes=436207616"'
    )
    assert max(map(len, text.splitlines())) <= 80
    assert thresholds_json(found)["flags"] == found.flags

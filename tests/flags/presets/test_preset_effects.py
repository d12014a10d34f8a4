"""What the guides promise, seen in programs that the real compiler made for eight H200.

Where today's XLA does something else, the test says what it does.
"""

from collections import Counter
from importlib.metadata import version

import pytest

from parallel_steps import LAYERS, WIDTH, compile_step
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.flags.presets.presets import compose
from slipstream.flags.thresholds.thresholds import thresholds
from slipstream.sources.hlo.reader import read_program

JAXLIB = tuple(int(part) for part in version("jaxlib").split(".")[:2])
LAYER_BYTES = 13 * WIDTH * WIDTH * 2
"""four bf16 matrices: W×W, and three of W×4W"""
OURS = {
    "xla_gpu_all_gather_combine_threshold_bytes": 128 << 20,
    "xla_gpu_reduce_scatter_combine_threshold_bytes": 128 << 20,
}
P2P = {
    "xla_gpu_enable_pipelined_p2p": "true",
    "xla_gpu_collective_permute_decomposer_threshold": "1024",
}
STAGES = {
    "xla_gpu_enable_latency_hiding_scheduler": "true",
    "xla_disable_hlo_passes": "collective-permute-motion",
    "xla_gpu_experimental_pipeline_parallelism_opt_level": "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
}


def as_text(flags):
    return " ".join(f"--{name}={value}" for name, value in flags.items())


def as_options(flags):
    """What XLA_FLAGS calls `true`, compiler options spell with a capital letter."""
    return {name: "True" if value == "true" else value for name, value in flags.items()}


@pytest.fixture(scope="module")
def compiled(data, tmp_path_factory):
    """Compiles a step in variants, once each: compiled(step, {variant: options}, flags)."""
    known = {}

    def compile_variants(step, variants, flags=None):
        key = (step, *variants, *(flags or {}))
        if key not in known:
            out = tmp_path_factory.mktemp(step)
            compile_step(data / "h200_target.txtpb", out, step, variants, as_text(flags or {}))
            known[key] = {name: read_program(out / f"{name}.pb") for name in variants}
        return known[key]

    return compile_variants


@pytest.fixture(scope="module")
def fsdp(compiled):
    options = {name: str(value) for name, value in OURS.items()}
    double = {"xla_gpu_enable_while_loop_double_buffering": "True"}
    by_dim = {
        **options,
        "xla_gpu_enable_all_gather_combine_by_dim": "True",
        "xla_gpu_enable_reduce_scatter_combine_by_dim": "True",
    }
    variants = {"plain": {}, "combined": options, "by_dim": by_dim, "double": double | options}
    return compiled("fsdp", variants)


@pytest.fixture(scope="module")
def preset():
    """The flags of a preset for this jaxlib and an H200."""
    catalogue = installed_catalogue()
    return lambda *names: compose(names, catalogue, "H200").xla_flags


def collectives(program, least=1 << 16):
    """(kind, bytes, turns of the loop it is in, 0 outside loops), with how many there are."""
    found = Counter()
    for instruction in program.runnable:
        collective = instruction.collective
        if collective is None or instruction.is_done or collective.bytes < least:
            continue
        if program.starter(instruction.name) is None:
            loop = program.loop_of(instruction.name)
            turns = 0 if loop is None else loop.trip_count
            found[collective.kind, collective.bytes, turns] += 1
    return found


def kinds(program):
    counts = Counter()
    for (kind, _, _), count in collectives(program).items():
        counts[kind] += count
    return dict(counts)


def turns(program):
    return sorted(i.trip_count for i in program.runnable if i.opcode == "while")


def test_thresholds_of_the_program_make_one_collective_of_a_layer(fsdp):
    found = thresholds(fsdp["plain"])

    assert found.layers == LAYERS
    assert found.layer_weights.bytes == pytest.approx(LAYER_BYTES, rel=0.001)
    assert found.flags == OURS
    # By default each matrix is gathered alone, forward and backward.  A reduce-scatter is counted
    # by its result, an eighth of the layer, and fits the default.
    assert kinds(fsdp["plain"]) == {"all-gather": 8, "reduce-scatter": 1}
    assert collectives(fsdp["combined"]) == {
        ("all-gather", LAYER_BYTES, LAYERS): 2,
        ("reduce-scatter", LAYER_BYTES, LAYERS): 1,
    }


def test_thresholds_agree_whatever_the_flags_did_to_the_program(fsdp):
    expected = thresholds(fsdp["plain"])
    for name, program in fsdp.items():
        found = thresholds(program)
        assert (name, found.layers, found.flags) == (name, LAYERS, expected.flags)
        assert found.layer_weights.bytes == expected.layer_weights.bytes


def test_combining_by_dimension_keeps_dimensions_apart(fsdp):
    down = 4 * WIDTH * WIDTH * 2
    assert collectives(fsdp["by_dim"]) == {
        ("all-gather", LAYER_BYTES - down, LAYERS): 2,
        ("all-gather", down, LAYERS): 2,
        ("reduce-scatter", LAYER_BYTES - down, LAYERS): 1,
        ("reduce-scatter", down, LAYERS): 1,
    }


def test_double_buffering_halves_the_turns_of_a_loop(fsdp):
    assert turns(fsdp["combined"]) == [LAYERS, LAYERS]
    assert turns(fsdp["double"]) == [LAYERS // 2, LAYERS // 2]
    assert collectives(fsdp["double"]) == {
        ("all-gather", LAYER_BYTES, LAYERS // 2): 4,
        ("reduce-scatter", LAYER_BYTES, LAYERS // 2): 2,
    }


def test_pipelining_gathers_the_next_layer_in_this_turn(compiled, preset):
    """A turn less in each loop, and the first layer's gather before it."""
    flags = {name: value for name, value in preset("fsdp").items() if "pipeline" in name}
    assert flags
    program = compiled("fsdp", {"pipelined": {}}, flags | OURS)["pipelined"]
    found = collectives(program)

    assert turns(program) == [LAYERS - 1, LAYERS - 1]
    assert found["all-gather", LAYER_BYTES, LAYERS - 1] == 2
    assert found["all-gather", LAYER_BYTES, 0] == 2


def test_the_fsdp_preset_does_all_of_it(compiled, preset):
    flags = preset("fsdp")
    program = compiled("fsdp", {"preset": {}}, flags)["preset"]
    found = collectives(program)

    # Of eight layers, two are peeled off the ends and two share a turn.
    assert turns(program) == [LAYERS // 2 - 1, LAYERS // 2 - 1]
    assert found["all-gather", LAYER_BYTES, LAYERS // 2 - 1] == 4
    assert found["reduce-scatter", LAYER_BYTES, LAYERS // 2 - 1] == 2
    assert min(size for _, size, _ in found) >= LAYER_BYTES


TRITON = {"xla_gpu_enable_triton_gemm": "True"}


def test_collective_matmul(compiled, preset):
    """Since 0.12; jaxlib 0.10.2 takes the flag and leaves every matmul whole."""
    flags = preset("tensor-parallel")
    assert flags["xla_gpu_threshold_for_windowed_einsum_mib"] == "0"
    variants = {"plain": TRITON, "windowed": TRITON | as_options(flags)}
    plain, program = compiled("tensor", variants).values()

    assert kinds(plain) == {"all-gather": 4, "reduce-scatter": 3}
    if JAXLIB < (0, 11):
        assert kinds(program) == kinds(plain)
        return
    assert set(kinds(program)) == {"collective-permute"}
    in_loops = [n for (_, _, turns), n in collectives(program).items() if turns]
    assert sum(in_loops) > 8 * 4
    assert {size for _, size, _ in collectives(program)} == {2 * 256 * WIDTH * 2}


def test_collective_matmul_on_several_streams_does_not_compile_with_cublas(data, tmp_path, preset):
    """Without Triton every piece is a cuBLAS call; on one stream that works."""
    target, flags = data / "h200_target.txtpb", preset("tensor-parallel")
    one_stream = flags | {"xla_gpu_multi_streamed_windowed_einsum": "false"}
    compile_step(target, tmp_path, "tensor", {"cublas": {}}, as_text(one_stream))
    found = collectives(read_program(tmp_path / "cublas.pb"))
    if JAXLIB < (0, 11):
        assert ("collective-permute", 2 * 256 * WIDTH * 2, 8) not in found
        return
    assert found["collective-permute", 2 * 256 * WIDTH * 2, 8] == 8
    with pytest.raises(AssertionError, match="custom-call-start .* expects the async shape"):
        compile_step(target, tmp_path, "tensor", {"cublas": {}}, as_text(flags))


@pytest.fixture(scope="module")
def pipeline(compiled):
    threshold = "xla_gpu_collective_permute_decomposer_threshold"
    variants = {"plain": {}, "stages": STAGES, "p2p": P2P, "threshold": {threshold: "1024"}}
    return compiled("pipeline", {name: as_options(flags) for name, flags in variants.items()})


def test_collective_permutes_become_sends_and_receives(pipeline):
    assert kinds(pipeline["plain"]) == {"collective-permute": 2}
    assert kinds(pipeline["p2p"]) == {"send": 2, "recv": 2}


def test_the_decomposer_threshold_alone_does_nothing(pipeline):
    assert collectives(pipeline["threshold"]) == collectives(pipeline["plain"])


def test_the_jax_guides_flags_decompose_the_forward_permute_only(pipeline):
    assert kinds(pipeline["stages"]) == {"send": 1, "recv": 1, "collective-permute": 1}


def test_no_pipeline_flag_peels_the_loop(pipeline):
    """`pipelined` here is about the order in a turn: every loop keeps all of its turns."""
    assert {name: turns(program) for name, program in pipeline.items()} == dict.fromkeys(
        pipeline, [23, 23]
    )


def test_the_flags_of_both_guides_together_do_not_compile(data, tmp_path):
    """Pipelined send and receive under the optimisation level: an error, or an abort."""
    target = data / "h200_target.txtpb"
    with pytest.raises(AssertionError, match="cycle is detected|Check failed: schedule.size"):
        compile_step(target, tmp_path, "pipeline", {"both": {}}, as_text(STAGES | P2P))


def test_the_pipeline_preset_compiles_and_decomposes(compiled, preset):
    flags = preset("pipeline-parallel")
    program = compiled("pipeline", {"preset": {}}, flags)["preset"]

    assert kinds(program)["send"] == kinds(program)["recv"] >= 1

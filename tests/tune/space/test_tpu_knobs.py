"""Knobs of XLA:TPU: which a program gets, and the sets that others train with."""

from importlib.util import find_spec

import pytest

from slipstream.compiler.compile import compiler
from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import installed_catalogue
from slipstream.tune.search.seeds import seeds
from slipstream.tune.space.program_traits import ProgramTraits
from slipstream.tune.space.space import SpaceOptions, space_of
from slipstream.tune.space.tpu_knobs import LEFT_ALONE, TPU_KNOBS, TPU_SETS

SHARDED = ProgramTraits(
    8, 2, {"all-gather": (1000, 10), "reduce-scatter": (1000,)}, loops=1, matmuls=3
)

PROGRAM = """
module @jit_f {
  func.func public @main(%x: tensor<8x128xf32>) -> tensor<8x128xf32> {
    %0 = stablehlo.add %x, %x : tensor<8x128xf32>
    return %0 : tensor<8x128xf32>
  }
}
"""


def test_a_program_gets_the_knobs_that_it_has_something_for():
    alone = space_of(ProgramTraits(1, 1, matmuls=3), installed_catalogue(), is_tpu=True)
    names = [knob.name for knob in alone.knobs]
    assert "xla_tpu_scoped_vmem_limit_kib" in names
    assert not [name for name in names if "collective" in name or name.startswith("xla_gpu_")]
    assert alone.left_out["xla_tpu_host_transfer_overlap_limit"] == (
        "the program has no transfers between slices"
    )

    sharded = space_of(SHARDED, installed_catalogue(), is_tpu=True)
    gathers = sharded.knob("xla_enable_async_all_gather")
    assert gathers is not None
    assert gathers.values == (LEFT_ALONE, "true", "false")
    assert gathers.why == (
        "To run all-gathers asynchronously; the default has 2 all-gathers (the largest 1 kB)."
    )
    assert sharded.size > 30 and sharded.without_defaults({gathers.name: LEFT_ALONE}) == {}


def test_flags_may_be_added_if_they_are_of_tpus():
    added = SpaceOptions(added={"xla_tpu_new_flag": ("7",)})
    space = space_of(SHARDED, installed_catalogue(), is_tpu=True, options=added)
    knob = space.knob("xla_tpu_new_flag")
    assert knob is not None and knob.values == (LEFT_ALONE, "7")
    wrong = SpaceOptions(added={"xla_gpu_enable_triton_gemm": ("true",)})
    with pytest.raises(BadInput, match="is a flag for GPUs"):
        space_of(SHARDED, installed_catalogue(), is_tpu=True, options=wrong)


def test_the_search_starts_with_published_sets():
    space = space_of(SHARDED, installed_catalogue(), is_tpu=True)
    found = seeds(space, SHARDED, installed_catalogue(), "v5p", 3)
    assert [one.origin for one in found] == ["default", *TPU_SETS, "probe", "probe", "probe"]
    assert found[1].settings == TPU_SETS["MaxText v5e"]


def test_published_sets_are_values_of_knobs():
    values = {spec.name: spec.values for spec in TPU_KNOBS}
    for settings in TPU_SETS.values():
        for name, value in settings.items():
            assert value in values[name], name


@pytest.mark.skipif(
    find_spec("libtpu") is None, reason="libtpu is missing: pip install 'slipstream[tpu]'"
)
def test_libtpu_accepts_every_knob(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with compiler(PROGRAM, on="v5e-1") as session:
        for position in (0, 1, -1):
            session.compile({spec.name: spec.values[position] for spec in TPU_KNOBS})

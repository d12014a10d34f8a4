"""What is known about a name, and what changed between releases."""

import pytest

from slipstream.errors import BadInput
from slipstream.flags.catalogue.env_vars import ENV_VARS
from slipstream.flags.catalogue.history import catalogue_of, history
from slipstream.flags.catalogue.libtpu import libtpu_names
from slipstream.flags.catalogue.replacements import REPLACEMENTS
from slipstream.flags.explain import DefaultChange, explain, flag_diff, notes
from slipstream.outputs.terminal.flags.catalogue import JUDGED, UNVERIFIED, render_explanation


def test_a_flag_that_matters():
    found = explain("--xla_gpu_enable_latency_hiding_scheduler=true", catalogue_of("0.10.2"))

    assert found.name == "xla_gpu_enable_latency_hiding_scheduler"
    assert (found.flag.kind, found.flag.default) == ("bool", "false")
    assert found.is_current
    assert "Hopper" in found.note.hurts
    assert found.note.sources[0].startswith("https://")


def test_a_retired_flag():
    found = explain("xla_gpu_enable_async_all_gather", catalogue_of("0.10.2"))

    assert found.flag is None
    assert not found.is_current
    assert found.history.last == "0.4.26"
    assert found.replacement.use == "xla_gpu_disable_async_collectives"


@pytest.mark.parametrize(
    ("name", "doubt"),
    [
        ("xla_gpu_lhs_enable_gpu_async_tracker", UNVERIFIED),
        ("xla_gpu_exhaustive_tiling_search", JUDGED),
        ("xla_gpu_enable_async_all_gather", None),
        ("xla_gpu_enable_latency_hiding_scheduler", None),
    ],
)
def test_what_no_source_says_is_called_so(name, doubt):
    text = " ".join(str(render_explanation(explain(name, catalogue_of("0.10.2")))).split())

    assert [one for one in (UNVERIFIED, JUDGED) if one in text] == ([doubt] if doubt else [])


def test_every_replacement_has_a_source_and_those_without_a_public_one_are_marked():
    for found in REPLACEMENTS.values():
        assert found.source
        assert found.source.startswith("https://") or not found.is_verified, found.name


def test_a_variable():
    found = explain("JAX_PGLE_PROFILING_RUNS", catalogue_of("0.10.2"))

    assert (found.flag, found.history) == (None, None)
    assert found.setting.default == "3"


def test_an_unknown_name():
    with pytest.raises(BadInput, match="did you mean xla_gpu_enable_triton_gemm"):
        explain("xla_gpu_enable_triton_gem", catalogue_of("0.10.2"))


def test_diff():
    found = flag_diff("0.11.0", "0.12.0")
    places = {change.name: change.changes for change in found.places}

    assert (found.old, found.new) == ("0.11.0", "0.12.0")
    assert "xla_gpu_fused_attention_use_cudnn_rng" in found.removed
    assert "xla_gpu_pipeline_all_gather" in [flag.name for flag in found.added]
    assert DefaultChange("xla_gpu_enable_dynamic_slice_fusion", "false", "true") in found.defaults
    assert places["xla_gpu_enable_pipelined_all_gather"] == ("compile options reject it",)


def test_diff_of_a_release_with_itself_is_empty():
    found = flag_diff("0.10.2", "0.10.2")

    assert (found.removed, found.added, found.defaults, found.places) == ((), (), (), ())


def test_notes_are_of_flags_that_exist_and_have_sources():
    known = {*history().flags, *libtpu_names()}
    for name, note in notes().items():
        assert name in known
        assert note.what.endswith("."), name
        assert note.sources, name

    assert len(notes()) >= 100


def test_settings_have_a_sentence_and_a_source():
    for setting in ENV_VARS.values():
        assert setting.doc.endswith("."), setting
        assert setting.source.startswith("https://"), setting
        if setting.values and setting.default is not None:
            assert setting.default in setting.values, setting


def test_the_guides_variables_are_there():
    guides = {
        "JAX_ENABLE_PGLE",
        "JAX_PGLE_PROFILING_RUNS",
        "JAX_PGLE_AGGREGATION_PERCENTILE",
        "JAX_COMPILATION_CACHE_DIR",
        "JAX_COMPILATION_CACHE_EXPECT_PGLE",
        "JAX_ENABLE_COMPILATION_CACHE",
        "NCCL_LL128_BUFFSIZE",
        "NCCL_LL_BUFFSIZE",
        "NCCL_PROTO",
        "NCCL_NVLS_ENABLE",
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
        "TF_CPP_VMODULE",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_CPP_MAX_LOG_LEVEL",
        "XLA_FLAGS",
        "LIBTPU_INIT_ARGS",
    }

    assert guides <= set(ENV_VARS)

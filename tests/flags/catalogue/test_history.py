"""The flags of all releases, as harvested."""

import pytest

from slipstream.errors import BadInput
from slipstream.flags.catalogue.catalogue import Catalogue, Flag
from slipstream.flags.catalogue.history import (
    DATA,
    catalogue_of,
    decode,
    encode,
    history,
    version_key,
)
from slipstream.flags.catalogue.replacements import REPLACEMENTS, replacement_of

ASKED_FOR = ("0.4.18", "0.5.0", "0.5.3", "0.6.0", "0.6.2", "0.7.2", "0.8.3", "0.9.2", "0.10.2")


def test_releases_are_there_in_order():
    versions = history().versions

    assert set(ASKED_FOR) <= set(versions)
    assert list(versions) == sorted(versions, key=version_key)
    assert versions[-1] == history().newest
    assert DATA.stat().st_size < 300_000


def test_every_release_was_asked_what_it_accepts():
    for version in history().versions:
        flags = catalogue_of(version).flags.values()

        accepted = [flag for flag in flags if flag.in_xla_flags]
        assert len(accepted) > 140, version
        assert len(accepted) > 0.9 * len(flags), version
        assert all(flag.in_xla_flags is not None for flag in flags), version


def test_a_retired_flag():
    past = history().flags["xla_gpu_enable_async_all_gather"]

    assert (past.first, past.last) == ("0.4.18", "0.4.26")
    assert (past.accepted_first, past.accepted_last) == ("0.4.18", "0.4.26")
    flags, newest = history().flags, history().newest
    assert flags["xla_gpu_enable_async_all_gather"].accepted_last not in (None, newest)
    assert flags["xla_gpu_enable_triton_gemm"].accepted_last == newest
    assert "xla_gpu_enable_async_all_gather" in catalogue_of("0.10.2").removed


def test_changed_defaults():
    triton = history().flags["xla_gpu_triton_gemm_any"]
    estimator = history().flags["xla_gpu_enable_analytical_sol_latency_estimator"]

    assert triton.defaults == (("0.4.18", "false"), ("0.5.1", "true"))
    assert [default for _, default in estimator.defaults] == ["false", "true"]


def test_an_accepted_name_without_a_field():
    past = history().flags["xla_gpu_enable_cudnn_fmha"]
    now = catalogue_of("0.10.2").flags["xla_gpu_enable_cudnn_fmha"]

    assert past.accepted_last == history().newest
    assert (now.kind, now.default, now.in_compiler_options) == ("unknown", None, False)


def test_lists_are_compile_options_from_0_6_0_on():
    graphs = "xla_gpu_enable_command_buffer"

    assert not catalogue_of("0.5.3").flags[graphs].in_compiler_options
    assert catalogue_of("0.6.0").flags[graphs].in_compiler_options


def test_a_release_that_is_not_there():
    with pytest.raises(BadInput, match=r"no data for jaxlib 0\.4\.32; nearest .* 0\.4\.31 and 0"):
        catalogue_of("0.4.32")
    with pytest.raises(BadInput, match="'new' is not a jaxlib release"):
        catalogue_of("new")


def test_the_file_holds_what_was_written():
    old = {"a": Flag("a", "bool", "true", (), False, True, True), "b": Flag("b", "unknown", None)}
    new = {"a": Flag("a", "enum", "X", ("X", "Y"), True, False, True)}
    catalogues = {
        "0.9.0": Catalogue("0.9.0", old, frozenset()),
        "0.10.0": Catalogue("0.10.0", new, frozenset({"b"})),
    }

    assert decode(encode(dict(reversed(catalogues.items())))) == catalogues


def test_replacements_name_flags_that_exist():
    newest = catalogue_of(history().newest)
    for entry in REPLACEMENTS.values():
        assert entry.because.endswith("."), entry
        assert entry.source, entry
        if entry.use is not None:
            assert entry.use.partition("=")[0] in newest.flags, entry

    assert replacement_of("xla_gpu_graph_level").use == "xla_gpu_enable_command_buffer"
    assert replacement_of("xla_gpu_enable_triton_gemm") is None

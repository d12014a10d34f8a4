"""Flags of TPUs that need each other, or exclude each other."""

from __future__ import annotations

import pytest

from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.catalogue.libtpu import libtpu_catalogue, libtpu_jaxlibs
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.tpu_conflicts import EXCLUDES, NEEDS
from slipstream.flags.settings import read_text

FUSION = "xla_tpu_enable_async_collective_fusion"
OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload"


def warnings(words: str) -> list[tuple[str, str]]:
    found = lint(read_text(f'LIBTPU_INIT_ARGS="{words}"\n'), catalogue_of("0.10.2"))
    return [(one.code, one.name) for one in found if one.severity == "warning"]


@pytest.mark.parametrize("jaxlib", libtpu_jaxlibs())
def test_the_rules_name_flags_that_exist(jaxlib: str) -> None:
    flags = libtpu_catalogue(jaxlib).flags
    named = {
        *NEEDS,
        *EXCLUDES,
        *EXCLUDES.values(),
        *(one for all_ in NEEDS.values() for one in all_),
    }

    assert named <= set(flags)


def test_a_flag_whose_condition_is_off() -> None:
    reduce = f"{FUSION}_fuse_all_reduce"
    assert warnings(f"--{reduce}=true --{FUSION}=false") == [("no-effect", reduce)]
    assert warnings(f"--{reduce}=true --no{FUSION}") == [("no-effect", reduce)]
    assert warnings(f"--{reduce}=true") == []
    assert warnings(f"--{reduce}=false --{FUSION}=false") == []


def test_pipelining_needs_three() -> None:
    pipelining = "xla_tpu_enable_ici_ag_pipelining"
    allow = "--xla_should_allow_loop_variant_parameter_in_chain=enabled"
    add = "--xla_should_add_loop_invariant_op_in_chain=enabled"
    assert warnings(f"--{pipelining}=true {allow}") == [("no-effect", pipelining)]
    assert warnings(f"--{pipelining}=true {allow} {add}") == []


def test_sparsecore_or_fusion() -> None:
    offload = f"{OFFLOAD}_all_gather"
    assert warnings(f"--{offload}=true") == [("contradictory", offload)]
    assert warnings(f"--{offload}=true --{FUSION}_fuse_all_gather=false") == []
    # The default doesn't fuse all-reduces.
    assert warnings(f"--{OFFLOAD}_all_reduce=true") == []

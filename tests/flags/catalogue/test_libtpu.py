"""Flags of libtpu: the data file, which values are accepted, and libtpu's own word on both."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import pytest

from slipstream.errors import BadInput
from slipstream.flags.catalogue import installed_libtpu, libtpu, libtpu_registry
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.catalogue.libtpu import (
    DATA,
    decode,
    encode,
    libtpu_catalogue,
    libtpu_history,
    libtpu_jaxlibs,
)
from slipstream.flags.catalogue.libtpu_flag import LibtpuFlag
from slipstream.flags.catalogue.libtpu_registry import read_registry
from slipstream.flags.lint.lint import lint
from slipstream.flags.settings import read_environment

needs_libtpu = pytest.mark.skipif(
    find_spec("libtpu") is None, reason="libtpu is missing: pip install 'slipstream[tpu]'"
)
START = (
    "from jax.experimental import topologies;"
    "topologies.get_topology_desc(platform='tpu', topology_name='v5e:2x2')"
)


def test_each_supported_jaxlib_has_its_libtpu() -> None:
    assert [(one, libtpu_catalogue(one).version) for one in libtpu_jaxlibs()] == [
        ("0.10.2", "0.0.42.1"),
        ("0.11.2", "0.0.48.1"),
        ("0.12.0.1", "0.0.50.1"),
    ]
    assert encode(decode(DATA.read_bytes())) == DATA.read_bytes()


def test_what_is_known_of_a_flag() -> None:
    flags = libtpu_catalogue("0.10.2").flags

    assert flags["xla_tpu_scoped_vmem_limit_kib"] == LibtpuFlag(
        "xla_tpu_scoped_vmem_limit_kib", "int64", "-1", (), True
    )
    assert flags["xla_enable_async_all_gather"] == LibtpuFlag(
        "xla_enable_async_all_gather",
        "enum in any case",
        "auto",
        ("auto", "false", "disabled", "true", "enabled"),
        True,
    )
    assert flags["megascale_num_slices"] == LibtpuFlag("megascale_num_slices", "int32", "1")


def test_history() -> None:
    past = libtpu_history("megascale_qos")

    assert past is not None
    assert (past.first, past.last, past.is_current) == ("0.0.42.1", "0.0.42.1", False)
    assert libtpu_history("xla_gpu_enable_triton_gemm") is None


@pytest.mark.parametrize(
    ("installed", "used", "instead_of"),
    [
        ("0.0.42.1", "0.0.42.1", None),
        ("0.0.43.2", "0.0.42.1", "0.0.43.2"),
        ("0.0.47", "0.0.48.1", "0.0.47"),
        ("0.0.99", "0.0.50.1", "0.0.99"),
    ],
)
def test_another_libtpu_gets_the_nearest(
    monkeypatch: pytest.MonkeyPatch, installed: str, used: str, instead_of: str | None
) -> None:
    monkeypatch.setattr(libtpu, "installed_version", lambda package: installed)
    monkeypatch.setattr(installed_libtpu, "read_installed_libtpu", lambda: None)
    found = libtpu_catalogue()

    assert (found.version, found.instead_of) == (used, instead_of)
    assert (instead_of is None) == (found.label == f"libtpu {used}")


def test_without_libtpu_it_is_that_of_the_jaxlib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libtpu, "installed_version", {"jaxlib": "0.11.2"}.get)
    assert libtpu_catalogue().version == "0.0.48.1"
    monkeypatch.setattr(libtpu, "installed_version", lambda package: None)
    assert libtpu_catalogue().version == "0.0.50.1"


@pytest.mark.parametrize(
    ("name", "accepted", "refused"),
    [
        ("xla_tpu_rwb_fusion", ("true", "T", "no", "0", " 1"), ("on", "", "auto", "'true'")),
        ("xla_tpu_enable_ici_ag_pipelining", ("true", "1", "auto"), ("AUTO", "", "enabled")),
        ("xla_enable_async_all_gather", ("TRUE", "Auto", "disabled"), ("1", "kEnabled", "")),
        ("xla_tpu_scoped_vmem_limit_kib", ("-1", "0x10", "98304"), ("1e5", "96k", "", "auto")),
        ("megascale_num_slices", ("2", "-1"), ("2147483648", "two")),
        ("xla_tpu_vmem_scavenging_mode", ("safe", "SAFE", "auto", "3"), ("Safe", "4", "AUTO")),
        ("xla_tpu_msa_inefficient_use_to_copy_ratio", ("0.5", "1e-3", "inf"), ("half", "")),
        ("megascale_dcn_topology", ("anything",), ()),
    ],
)
def test_values(name: str, accepted: tuple[str, ...], refused: tuple[str, ...]) -> None:
    flag = libtpu_catalogue("0.10.2").flags[name]

    assert [value for value in accepted if not flag.accepts(value)] == []
    assert [value for value in refused if flag.accepts(value)] == []


@needs_libtpu
def test_the_data_is_what_the_installed_libtpu_has() -> None:
    spec = find_spec("libtpu")
    assert spec is not None and spec.origin is not None
    found = read_registry(Path(spec.origin).with_name("libtpu.so"))
    known = decode(DATA.read_bytes())[version("libtpu")]

    rows = [LibtpuFlag(one.name, one.kind, one.default, one.words) for one in known.flags.values()]
    assert found == rows


@needs_libtpu
def test_an_unknown_libtpu_is_read_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    known = libtpu_catalogue()
    other = f"{known.version}.7"
    monkeypatch.setattr(libtpu, "installed_version", lambda package: other)
    read = libtpu_catalogue()

    assert (read.label, read.flags) == (f"libtpu {other}", known.flags)
    monkeypatch.setattr(libtpu_registry, "subprocess", None)
    assert installed_libtpu.read_installed_libtpu() is not None


def test_a_library_that_is_none(tmp_path: Path) -> None:
    file = tmp_path / "libtpu.so"
    file.write_text("not a library")
    with pytest.raises(BadInput, match="the flags of .* can't be read"):
        read_registry(file)


@needs_libtpu
def test_libtpu_refuses_what_lint_refuses() -> None:
    words = (
        "--xla_tpu_rwb_fusion --noxla_tpu_dot_dot_fusion -xla_tpu_enable_async_all_to_all=yes "
        "--xla_tpu_scoped_vmem_limit_kib 98304 stray --undefok=xla_not_here --xla_not_here=1 "
        "--xla_memory_scheduler=kBrkga --xla_enable_async_all_gather=1 --xla_dump_to=here "
        "--xla_gpu_enable_triton_gemm=true --xla_tpu_rwb_fusionn=true --megascale_num_slices=x "
        "--xla_tpu_enable_sdc_checker='true' --xla_latency_hiding_scheduler_rerun=1\n--xla_x=2 "
        "--xla_tpu_use_enhanced_launch_barrier=true "
        "--xla_should_add_loop_invariant_op_in_chain"
    )
    environment = {"LIBTPU_INIT_ARGS": words}
    catalogue = libtpu_catalogue()
    findings = lint(read_environment(environment), catalogue_of("0.10.2"), libtpu=catalogue)
    refused = {one.name for one in findings if one.severity == "abort"}

    quiet = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", "ALLOW_MULTIPLE_LIBTPU_LOAD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=os.environ | quiet | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert set(re.findall(r"flag '(\w+)'", done.stderr)) == refused
    assert len(refused) == 9

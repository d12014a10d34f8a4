"""Presets for TPUs: only flags and values that libtpu accepts, in LIBTPU_INIT_ARGS."""

from __future__ import annotations

import subprocess

import pytest

from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.catalogue.libtpu import libtpu_jaxlibs
from slipstream.flags.lint.lint import lint
from slipstream.flags.presets.presets import compose
from slipstream.flags.presets.tpu_table import TPU_PRESETS
from slipstream.flags.settings import FileFormat, read_environment, read_text
from slipstream.outputs.preset_files import environment, render

NAMES = tuple(preset.name for preset in TPU_PRESETS)


@pytest.mark.parametrize("jaxlib", libtpu_jaxlibs())
@pytest.mark.parametrize("name", NAMES)
def test_lint_has_nothing_to_say(name: str, jaxlib: str) -> None:
    composed = compose([name], catalogue_of(jaxlib))

    assert lint(read_environment(environment(composed)), catalogue_of(jaxlib)) == ()
    assert composed.xla_flags == {}


def test_what_became_of_a_flag_set() -> None:
    composed = compose(["tpu-sparsecore"], catalogue_of("0.10.2"))
    today = {one.name: one.today for one in composed.chosen}

    assert today["xla_tpu_enable_sparse_core_collective_offload_all_gather"] == "kept"
    assert today["xla_tpu_enable_async_collective_fusion_fuse_all_reduce"] == "default"
    assert today["2a886c8_chip_config_name"] == "retired"
    assert "2a886c8_chip_config_name" not in environment(composed)["LIBTPU_INIT_ARGS"]


def test_whole_output() -> None:
    composed = compose(["tpu-vmem-dense", "tpu-slices"], catalogue_of("0.10.2"))

    assert render(composed, "sh") == (
        "# tpu-vmem-dense, tpu-slices for libtpu 0.0.42.1\n"
        "# For models bound by compute. (MaxText's XLA flags for TPUs:\n"
        "# --xla_tpu_scoped_vmem_limit_kib=98304; still valid)\n"
        'LIBTPU_INIT_ARGS="${LIBTPU_INIT_ARGS:-} --xla_tpu_scoped_vmem_limit_kib=98304"\n'
        "export LIBTPU_INIT_ARGS\n"
        "# Left out:\n"
        "#   --xla_tpu_enable_data_parallel_all_reduce_opt=true: now the default.\n"
        "#     xla_tpu_enable_data_parallel_all_reduce_opt is true by default.\n"
        "#   --xla_tpu_data_parallel_opt_different_sized_ops=true: now the default.\n"
        "#     xla_tpu_data_parallel_opt_different_sized_ops is true by default.\n"
    )


@pytest.mark.parametrize(
    ("form", "reader"),
    [
        ("sh", "shell"),
        ("slurm", "shell"),
        ("dotenv", "env"),
        ("json", "yaml"),
        ("python", "python"),
        ("k8s", "yaml"),
    ],
)
def test_every_form_is_read_back(form: str, reader: FileFormat) -> None:
    composed = compose(["tpu-host-offload", "fsdp"], catalogue_of("0.10.2"), "H100")
    settings = read_text(render(composed, form), reader)

    for kind, variable in (("libtpu", "LIBTPU_INIT_ARGS"), ("xla_flags", "XLA_FLAGS")):
        found = {one.name: one.value for one in settings if one.kind == kind}
        assert found == composed.flags[variable]


def test_a_shell_gets_both_variables() -> None:
    composed = compose(["tpu-vmem-moe", "fsdp"], catalogue_of("0.10.2"))
    script = render(composed, "sh") + 'echo "$LIBTPU_INIT_ARGS"; echo "$XLA_FLAGS"\n'
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, env={})

    tpu, xla = (set(line.split()) for line in done.stdout.splitlines())
    assert tpu == {"--xla_tpu_scoped_vmem_limit_kib=81920"}
    assert xla == {f"--{name}={value}" for name, value in composed.xla_flags.items()}

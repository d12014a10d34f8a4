"""Presets: the guides' settings, as a jaxlib wants them."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from slipstream.errors import BadInput
from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint.lint import lint
from slipstream.flags.presets.definitions import GUIDES, HERE
from slipstream.flags.presets.presets import compose
from slipstream.flags.presets.table import PRESETS
from slipstream.flags.settings import FileFormat, read_text
from slipstream.outputs.preset_files import FORMS, environment, render

VERSIONS = ("0.4.18", "0.6.0", "0.10.2", "0.12.0.1")
NAMES = tuple(preset.name for preset in PRESETS)
READ_AS: dict[str, FileFormat] = {
    "sh": "shell",
    "slurm": "shell",
    "dotenv": "env",
    "json": "yaml",
    "k8s": "yaml",
    "python": "python",
}


def test_one_preset_for_each_recommendation() -> None:
    assert NAMES == (
        "pgle-profile",
        "pgle-performance",
        "auto-pgle",
        "nsight-pgle",
        "fsdp",
        "data-parallel",
        "tensor-parallel",
        "pipeline-parallel",
        "single-host-nccl",
        "nccl-user-buffers",
        "memory",
        "cuda-graphs-on",
        "cuda-graphs-off",
        "debug-dumps",
        "llm-gpu",
        "tpu-all-gather",
        "tpu-all-reduce",
        "tpu-slices",
        "tpu-sparsecore",
        "tpu-reduce-scatter",
        "tpu-pipelining",
        "tpu-host-offload",
        "tpu-vmem-dense",
        "tpu-vmem-moe",
        "tpu-memory",
        "tpu-latency",
        "tpu-sdc-check",
    )


def test_every_entry_has_a_reason_and_a_guide() -> None:
    for preset in PRESETS:
        for entry in preset.entries:
            assert entry.reason.endswith("."), entry
            assert entry.guide in GUIDES or entry.guide == HERE, entry


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", NAMES)
def test_lint_has_nothing_against_a_preset(name: str, version: str) -> None:
    catalogue = catalogue_of(version)
    composed = compose([name], catalogue, "H100")
    found = read_text(render(composed, "sh"))
    complaints = [one for one in lint(found, catalogue, "H100") if one.severity != "note"]
    assert complaints == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_every_form_says_the_same(name: str, form: str) -> None:
    composed = compose([name], catalogue_of("0.10.2"))
    found = read_text(render(composed, form), READ_AS[form])
    flags = {one.name: one.value for one in found if one.kind == "xla_flags"}
    variables = {one.name: one.value for one in found if one.kind == "env"}
    assert (flags, variables) == (composed.xla_flags, composed.variables)


def test_a_shell_understands_it() -> None:
    composed = compose(["pgle-performance", "single-host-nccl"], catalogue_of("0.10.2"))
    script = render(composed, "sh") + "env\n"
    path = {"PATH": os.environ["PATH"]}
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=path)
    seen = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    wanted = environment(composed)
    assert {name: seen[name].strip() for name in wanted} == wanted


def test_what_became_of_the_guides_flags() -> None:
    composed = compose(["pgle-profile"], catalogue_of("0.10.2"), "H200")
    assert [(one.entry.name, one.today, one.name, one.value) for one in composed.chosen] == [
        (
            "xla_gpu_enable_latency_hiding_scheduler",
            "default",
            "xla_gpu_enable_latency_hiding_scheduler",
            "false",
        ),
        (
            "xla_gpu_enable_analytical_sol_latency_estimator",
            "added",
            "xla_gpu_enable_analytical_sol_latency_estimator",
            "false",
        ),
        (
            "xla_gpu_enable_async_all_gather",
            "renamed",
            "xla_gpu_disable_async_collectives",
            "ALLGATHER,REDUCESCATTER",
        ),
        ("xla_gpu_enable_command_buffer", "kept", "xla_gpu_enable_command_buffer", ""),
        (
            "xla_gpu_enable_async_reduce_scatter",
            "retired",
            "xla_gpu_enable_async_reduce_scatter",
            "false",
        ),
    ]


def test_the_gpu_matters() -> None:
    for gpu, is_there in (("A100", False), ("H100", True), (None, True)):
        flags = compose(["pgle-profile"], catalogue_of("0.10.2"), gpu).xla_flags
        assert ("xla_gpu_enable_analytical_sol_latency_estimator" in flags) == is_there


def test_presets_compose() -> None:
    catalogue = catalogue_of("0.10.2")
    alone = [compose([name], catalogue) for name in ("fsdp", "pgle-performance")]
    both = compose(["fsdp", "pgle-performance"], catalogue)
    assert both.xla_flags == alone[0].xla_flags | alone[1].xla_flags
    passes = compose(["llm-gpu", "pipeline-parallel"], catalogue).xla_flags[
        "xla_disable_hlo_passes"
    ]
    assert passes == "rematerialization,collective-permute-motion"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pgle-profile", "pgle-performance"),
        ("cuda-graphs-on", "cuda-graphs-off"),
        ("auto-pgle", "nsight-pgle"),
        ("llm-gpu", "cuda-graphs-on"),
    ],
)
def test_a_conflict_names_both(one: str, other: str) -> None:
    with pytest.raises(BadInput, match=f"presets {one} and {other} can't be combined"):
        compose([one, other], catalogue_of("0.10.2"))


def test_settings_that_fail_together_are_refused_where_they_do() -> None:
    compose(["tensor-parallel", "llm-gpu"], catalogue_of("0.10.2"))
    with pytest.raises(BadInput, match="presets tensor-parallel and llm-gpu can't be combined"):
        compose(["tensor-parallel", "llm-gpu"], catalogue_of("0.12.0.1"))


def test_unknown_preset() -> None:
    with pytest.raises(BadInput, match="no preset 'fdsp'; did you mean fsdp"):
        compose(["fdsp"], catalogue_of("0.10.2"))


def test_unknown_form() -> None:
    composed = compose(["fsdp"], catalogue_of("0.10.2"))
    with pytest.raises(BadInput, match="choose from: sh, dotenv, json"):
        render(composed, "fish")


def test_whole_output() -> None:
    composed = compose(["tensor-parallel"], catalogue_of("0.10.2"), "H100")
    assert render(composed, "sh") == (
        "# tensor-parallel for jaxlib 0.10.2 on H100\n"
        "# The scheduler places compute between a collective's start and its end. (Tips for\n"
        "# high-performance LLMs with JAX and XLA:\n"
        "# --xla_gpu_enable_latency_hiding_scheduler=true; still valid)\n"
        'XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_enable_latency_hiding_scheduler=true"\n'
        "# The smallest output size; 0 means every matmul next to a collective. Compiled\n"
        "# without a GPU, it has no effect in 0.10.2; 0.12 splits matmuls as documented.\n"
        "# (Tips for high-performance LLMs with JAX and XLA:\n"
        "# --xla_gpu_threshold_for_windowed_einsum_mib=0; still valid)\n"
        'XLA_FLAGS="${XLA_FLAGS:-} --xla_gpu_threshold_for_windowed_einsum_mib=0"\n'
        "export XLA_FLAGS\n"
        "# Left out:\n"
        "#   --xla_gpu_multi_streamed_windowed_einsum=true: now the default.\n"
        "#     xla_gpu_multi_streamed_windowed_einsum is true by default.\n"
    )
    assert json.loads(render(composed, "json")) == environment(composed)

"""`slipstream flags list`, `explain` and `diff` as people type them."""

import json

from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import BadInput

SLICE_FUSION = ["xla_gpu_enable_dynamic_slice_fusion", "false", "→", "true"]


def run(*arguments):
    return CliRunner().invoke(app, ["flags", *arguments])


def test_list_of_a_release():
    done = run("list", "--jaxlib", "0.6.0", "--grep", "COMBINE_BY")

    assert done.output.splitlines() == [
        "flag                                          set in  type  default",
        "xla_gpu_enable_all_gather_combine_by_dim      both    bool  false",
        "xla_gpu_enable_reduce_scatter_combine_by_dim  both    bool  false",
        "jaxlib 0.6.0: 2 of 239 flags",
    ]


def test_list_of_the_installed_jaxlib():
    done = run("list", "--json")

    listed = json.loads(done.output)
    names = [flag["name"] for flag in listed["flags"]]
    assert names == sorted(names)
    assert {"xla_dump_to", "xla_gpu_enable_triton_gemm"} <= set(names)


def test_list_shows_names_whole():
    done = run("list", "--jaxlib", "0.10.2")

    names = [line.split()[0] for line in done.output.splitlines()]
    assert "xla_allow_h2h_copy_when_automatic_host_compute_offload_disabled" in names
    assert not any("…" in name for name in names)


def test_list_with_a_bad_expression():
    done = run("list", "--grep", "(")

    assert isinstance(done.exception, BadInput)
    assert "is not a regular expression" in str(done.exception)


def test_explain():
    done = run("explain", "xla_gpu_triton_gemm_any", "--jaxlib", "0.10.2")

    assert done.output.splitlines() == [
        "xla_gpu_triton_gemm_any",
        "",
        "Allows Triton for any matmul it supports, not only mixed types.",
        "",
        "jaxlib 0.10.2: bool, default true, set in XLA_FLAGS and compiler_options",
        "history: first seen in 0.4.18 · still there in 0.12.0.1",
        "default: false from 0.4.18, true from 0.5.1",
        "",
        "helps  True since February 2025: what older guides advise is now the default.",
        "",
        "sources",
        "  https://docs.jax.dev/en/latest/gpu_performance_tips.html",
        "  https://github.com/openxla/xla/blob/main/xla/debug_options_flags.cc",
    ]


def test_explain_takes_a_flag_as_it_is_pasted():
    name = "xla_gpu_triton_gemm_any"
    plain = run("explain", name, "--jaxlib", "0.10.2").output
    assert run("explain", f"--{name}=true", "--jaxlib", "0.10.2").output == plain
    assert run("explain", "--jaxlib", "0.10.2", f"--{name}").output == plain


def test_explain_what_is_gone():
    lines = run("explain", "xla_gpu_graph_level", "--jaxlib", "0.12.0").output.splitlines()

    assert lines[2] == "not in jaxlib 0.12.0"
    assert lines[3].startswith("history: first seen in 0.4.18 · last seen in ")
    assert "Use xla_gpu_enable_command_buffer." in " ".join(lines)


def test_explain_a_variable():
    done = run("explain", "JAX_PGLE_PROFILING_RUNS")

    assert done.output.splitlines()[:4] == [
        "JAX_PGLE_PROFILING_RUNS",
        "environment variable · int · default 3",
        "",
        "How many calls AutoPGLE profiles before it recompiles.",
    ]


def test_explain_json():
    found = json.loads(run("explain", "xla_dump_to", "--jaxlib", "0.10.2", "--json").output)

    assert found["flag"]["kind"] == "string"
    assert found["note"]["what"].startswith("Folder for dumps")


def test_explain_an_unknown_name():
    done = run("explain", "xla_gpu_enable_triton_gem")

    assert isinstance(done.exception, BadInput)
    assert "did you mean xla_gpu_enable_triton_gemm" in str(done.exception)


def test_diff():
    lines = run("diff", "0.12.0", "0.12.0.1").output.splitlines()
    changed = run("diff", "0.11.0", "0.12.0").output.splitlines()

    assert lines[0] == "jaxlib 0.12.0 → 0.12.0.1"
    assert lines[-1] == "0 removed · 0 set in another place · 0 with a new default · 0 added"
    assert changed[2] == "removed"
    assert any(line.split() == SLICE_FUSION for line in changed)


def test_diff_json():
    found = json.loads(run("diff", "0.6.0", "0.10.2", "--json").output)

    removed = {entry["name"]: entry["replacement"] for entry in found["removed"]}
    assert removed["xla_gpu_graph_level"]["use"] == "xla_gpu_enable_command_buffer"


def test_flags_of_tpus():
    listed = run("list", "--tpu", "--jaxlib", "0.10.2", "--grep", "collective_matmul_mode|_qos$")

    assert listed.output.splitlines() == [
        "type          default  set in  flag",
        "other         AF3      args    megascale_qos",
        "enum or auto  auto     both    xla_tpu_all_gather_collective_matmul_mode",
        "enum or auto  auto     both    xla_tpu_reduce_scatter_collective_matmul_mode",
        "libtpu 0.0.42.1: 3 of 2102 flags",
    ]
    hint = run("list", "--jaxlib", "0.10.2", "--grep", "megascale_qos").output.splitlines()[-1]
    assert hint == "libtpu 0.0.42.1: 1 flag for TPUs matches; list it with --tpu"
    as_json = json.loads(run("list", "--tpu", "--jaxlib", "0.9.0", "--json").output)
    assert (as_json["libtpu"], as_json["instead_of"]) == ("0.0.42.1", "that of jaxlib 0.9.0")


def test_explain_a_flag_of_tpus():
    done = run("explain", "xla_tpu_all_gather_collective_matmul_mode", "--jaxlib", "0.11.2")

    assert done.output.splitlines() == [
        "xla_tpu_all_gather_collective_matmul_mode",
        "",
        "libtpu 0.0.48.1: enum or auto, default auto, set in LIBTPU_INIT_ARGS and",
        "  compiler_options",
        "  DEFAULT, NONE, POST_SPMD, PRE_SPMD, POST_SPMD_CONSERVATIVE",
        "history: first seen in libtpu 0.0.42.1 · still there in 0.0.50.1",
    ]
    gone = run("explain", "megascale_qos", "--jaxlib", "0.12.0.1").output.splitlines()
    assert gone[2:] == [
        "not in libtpu 0.0.50.1",
        "history: first seen in libtpu 0.0.42.1 · last seen in 0.0.42.1",
    ]
    misspelt = run("explain", "xla_tpu_rwb_fuson")
    assert "did you mean xla_tpu_rwb_fusion" in str(misspelt.exception)


def test_diff_of_two_libtpus():
    lines = run("diff", "0.11.2", "0.12.0.1", "--tpu").output.splitlines()

    assert lines[:3] == ["libtpu 0.0.48.1 → 0.0.50.1", "", "removed"]
    assert "  megascale_rapideye_outkast_culprit_hosts" in lines
    assert "  xla_all_to_all_latency_bound_threshold_in_bytes  -1 → 9223372036854775807" in lines
    other = run("diff", "0.9.0", "0.12.0.1", "--tpu")
    assert "expected one of 0.10.2, 0.11.2, 0.12.0.1" in str(other.exception)

"""Settings that abort the process, have no effect, or contradict each other."""

from __future__ import annotations

import pytest

from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint.findings import CODES, LintFinding
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.rewrite import apply_fixes
from slipstream.flags.settings import FileFormat, read_environment, read_text

NEW, OLD = "0.10.2", "0.4.18"


def findings(
    text: str, form: FileFormat = "shell", jaxlib: str = NEW, gpu: str | None = None
) -> tuple[LintFinding, ...]:
    return lint(read_text(text, form, "job"), catalogue_of(jaxlib), gpu)


def brief(found: tuple[LintFinding, ...]) -> list[tuple[str, str, str, str | None]]:
    return [(one.code, one.severity, one.name, one.fix) for one in found]


def flags(*words: str) -> str:
    return f'export XLA_FLAGS="{" ".join(words)}"\n'


@pytest.mark.parametrize(
    ("word", "code", "fix"),
    [
        ("--xla_gpu_enable_triton_softmax_fusion=false", "retired", ""),
        ("--xla_gpu_graph_level=0", "retired", "--xla_gpu_enable_command_buffer="),
        ("--xla_gpu_graph_level=2", "retired", ""),
        ("--xla_gpu_enable_async_all_gather=true", "retired", ""),
        (
            "--xla_gpu_enable_async_all_gather=false",
            "retired",
            "--xla_gpu_disable_async_collectives=ALLGATHER",
        ),
        (
            "--xla_gpu_enable_latency_hiding_sheduler=true",
            "misspelt",
            "--xla_gpu_enable_latency_hiding_scheduler=true",
        ),
        ("--xla_wholly_different=1", "unknown", None),
        ("--xla_tpu_enable_async_collective_fusion=true", "misplaced", None),
        ("--xla_gpu_triton_gemm_any=yes", "malformed", "--xla_gpu_triton_gemm_any=true"),
        ("--xla_gpu_autotune_level=high", "malformed", None),
        ("--xla_gpu_autotune_level", "malformed", None),
        ("--xla_gpu_autotune_level=99999999999", "malformed", None),
        (
            "--xla_gpu_all_reduce_combine_threshold_bytes=1e9",
            "malformed",
            "--xla_gpu_all_reduce_combine_threshold_bytes=1000000000",
        ),
        (
            "--xla_gpu_pgle_accuracy_checker=error",
            "malformed",
            "--xla_gpu_pgle_accuracy_checker=PGLE_STRICTNESS_LEVEL_ERROR",
        ),
        ("--xla_gpu_enable_command_buffer=FUSION,NOPE", "malformed", None),
        (
            "--xla_gpu_enable_while_loop_unrolling=AUTO_UNROLL",
            "malformed",
            "--xla_gpu_enable_while_loop_unrolling=WHILE_LOOP_UNROLLING_AUTO_UNROLL",
        ),
        ("--xla_gpu_detect_nan=DETECTION_MODE_FAIL", "malformed", "--xla_gpu_detect_nan=fail"),
        ("--xla_gpu_execution_terminate_timeout=10", "malformed", None),
        ("--xla_gpu_enable_libnvptxcompiler=true", "malformed", None),
        ("--xla_gpu_experimental_max_unroll_factor=0", "malformed", None),
        ("--xla_gpu_enable_cudnn_fmha=maybe", "malformed", None),
        ("--xla_gpu_enable_command_buffer=+WHILE,FUSION", "malformed", None),
        ("-xla_gpu_autotune_level=3", "malformed", "--xla_gpu_autotune_level=3"),
    ],
)
def test_aborts(word: str, code: str, fix: str | None) -> None:
    (found,) = findings(flags(word))
    assert (found.code, found.severity) == (code, "abort")
    assert found.fix == fix


@pytest.mark.parametrize(
    "word",
    [
        "--xla_gpu_triton_gemm_any=False",
        "--xla_gpu_enable_pipelined_p2p",
        "--xla_gpu_enable_command_buffer=+COLLECTIVES",
        "--xla_gpu_enable_command_buffer=fusion",
        "--xla_gpu_enable_command_buffer=''",
        "--xla_gpu_autotune_level=$LEVEL",
        "--xla_gpu_all_gather_mode=private",
        "--xla_gpu_detect_nan=fail",
    ],
)
def test_fine(word: str) -> None:
    assert findings(flags(word)) == ()


def test_message_says_what_why_and_what_to_do() -> None:
    (found,) = findings(flags("--xla_gpu_enable_triton_softmax_fusion=false"))
    assert found.message.startswith(
        "jaxlib 0.10.2 rejects xla_gpu_enable_triton_softmax_fusion, and XLA aborts at startup."
    )
    assert found.message.endswith("Remove it.")


def test_a_flag_that_came_later() -> None:
    (found,) = findings(flags("--xla_gpu_enable_command_buffer="), jaxlib=OLD)
    assert (found.code, found.severity) == ("unknown", "abort")
    assert "It was added in jaxlib 0." in found.message


def test_old_flags_are_fine_where_they_existed() -> None:
    text = flags("--xla_gpu_enable_async_all_gather=true", "--xla_gpu_graph_level=0")
    assert [one.severity for one in findings(text, jaxlib=OLD)] == []


def test_scheduler_off_on_hopper() -> None:
    text = flags("--xla_gpu_enable_latency_hiding_scheduler=false")
    both = flags(
        "--xla_gpu_enable_latency_hiding_scheduler=false",
        "--xla_gpu_enable_analytical_sol_latency_estimator=false",
    )
    on_hopper = [
        one for one in findings(text, gpu="NVIDIA H100 80GB HBM3") if one.code == "no-effect"
    ]
    assert len(on_hopper) == 1
    assert apply_fixes(text, on_hopper) == both
    assert not [one for one in findings(text, gpu="A100") if one.code == "no-effect"]
    assert not [one for one in findings(both, gpu="H100") if one.code == "no-effect"]


def test_effects() -> None:
    text = """
export XLA_FLAGS="--xla_gpu_enable_cudnn_fmha=true --xla_dump_latency_hiding_schedule=true"
XLA_FLAGS="$XLA_FLAGS --xla_gpu_pgle_profile_file_or_directory_path=costs.txt"
XLA_FLAGS="$XLA_FLAGS --xla_disable_hlo_passes=a --xla_disable_hlo_passes=b"
XLA_FLAGS="$XLA_FLAGS --xla_gpu_enable_nccl_user_buffers=true"
export JAX_COMPILATION_CACHE_EXPECT_PGLE=yes NCCL_NVLS_ENABLE=0 JAX_PGLE_PROFILING_RUNS=3
export XLA_PYTHON_CLIENT_ALLOCATOR=platform XLA_PYTHON_CLIENT_MEM_FRACTION=.9
"""
    assert [(one.code, one.name) for one in findings(text) if one.severity == "warning"] == [
        ("no-effect", "xla_gpu_enable_cudnn_fmha"),
        ("no-effect", "xla_dump_latency_hiding_schedule"),
        ("no-effect", "xla_gpu_pgle_profile_file_or_directory_path"),
        ("contradictory", "xla_disable_hlo_passes"),
        ("contradictory", "xla_gpu_enable_nccl_user_buffers"),
        ("no-effect", "JAX_COMPILATION_CACHE_EXPECT_PGLE"),
        ("no-effect", "JAX_PGLE_PROFILING_RUNS"),
        ("no-effect", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    ]


def test_a_profile_switches_the_scheduler_on() -> None:
    text = flags(
        "--xla_gpu_enable_latency_hiding_scheduler=false",
        "--xla_gpu_pgle_profile_file_or_directory_path=costs.pb",
    )
    assert "contradictory" in [one.code for one in findings(text, gpu="A100")]


def test_defaults_are_notes() -> None:
    found = findings(
        flags("--xla_gpu_memory_limit_slop_factor=95", "--xla_gpu_enable_triton_gemm=1")
    )
    assert [(one.code, one.severity) for one in found] == [("default", "note")] * 2


def test_what_follows_a_stray_word_is_ignored() -> None:
    text = (
        "export XLA_FLAGS='--xla_gpu_autotune_level=3 \\\n  --xla_gpu_enable_pipelined_p2p=true'\n"
    )
    (found,) = findings(text)
    assert (found.code, found.severity, found.fix) == ("malformed", "warning", "")
    assert findings(apply_fixes(text, [found])) == ()


def test_what_was_not_read_is_a_warning() -> None:
    text = "{{ if fast }}\nenv: [{name: XLA_FLAGS, value: --xla_gpu_graph_level=0}]\n{{ end }}\n"
    assert {(one.code, one.severity) for one in findings(text, "yaml")} == {("unread", "warning")}
    fixed = text.replace("{{ if fast }}\n", "").replace("{{ end }}\n", "")
    assert [(one.code, one.severity) for one in findings(fixed, "yaml")] == [("retired", "abort")]


def test_python_types_of_compiler_options() -> None:
    text = (
        'f = jax.jit(g, compiler_options={"xla_dump_to": 3, "xla_gpu_autotune_gemm_rtol": 1,\n'
        '  "xla_gpu_autotune_level": -1, "xla_gpu_enable_triton_gemm": 1})\n'
    )
    assert brief(findings(text, "python")) == [
        ("malformed", "error", "xla_dump_to", '"xla_dump_to": "3"'),
        ("malformed", "error", "xla_gpu_autotune_gemm_rtol", '"xla_gpu_autotune_gemm_rtol": "1"'),
        (
            "malformed",
            "error",
            "xla_gpu_enable_triton_gemm",
            '"xla_gpu_enable_triton_gemm": "True"',
        ),
    ]


PYTHON = """
compiled = lowered.compile(compiler_options={
    "xla_gpu_enable_triton_gemm": "false",
    "xla_gpu_enable_command_buffer": "+COLLECTIVES",
    "xla_gpu_enable_cudnn_fmha": False,
    "xla_gpu_graph_level": 0,
    "xla_gpu_enable_pipelined_p2p": True,
})
"""


def test_compiler_options() -> None:
    assert brief(findings(PYTHON, "python")) == [
        (
            "malformed",
            "error",
            "xla_gpu_enable_triton_gemm",
            '"xla_gpu_enable_triton_gemm": "False"',
        ),
        ("malformed", "error", "xla_gpu_enable_command_buffer", None),
        ("unknown", "error", "xla_gpu_enable_cudnn_fmha", None),
        ("retired", "error", "xla_gpu_graph_level", '"xla_gpu_enable_command_buffer": ""'),
    ]


def test_misspelt_variable() -> None:
    (found,) = findings("export JAX_ENABLE_PLGE=true\n")
    assert (found.code, found.severity, found.fix) == (
        "misspelt",
        "warning",
        "JAX_ENABLE_PGLE=true",
    )


def test_environment_can_be_linted() -> None:
    found = lint(read_environment({"XLA_FLAGS": "--xla_gpu_graph_level=0"}), catalogue_of(NEW))
    assert [(one.severity, str(one.place)) for one in found] == [("abort", "environment")]


GUIDE = """#!/bin/bash
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true \\
  --xla_gpu_enable_async_all_gather=false \\
  --xla_gpu_simplify_all_fp_conversions --xla_gpu_graph_level=0 \\
  --xla_gpu_enable_async_reduce_scatter=false \\
  --xla_gpu_enable_pipelined_p2p=true"
python train.py
"""
FIXED = """#!/bin/bash
export XLA_FLAGS="--xla_gpu_enable_latency_hiding_scheduler=true \\
  --xla_gpu_disable_async_collectives=ALLGATHER,REDUCESCATTER \\
  --xla_gpu_enable_command_buffer= \\
  --xla_gpu_enable_pipelined_p2p=true"
python train.py
"""


def test_fix_rewrites_in_place() -> None:
    assert apply_fixes(GUIDE, findings(GUIDE)) == FIXED
    assert findings(FIXED) == ()


def test_fix_of_python() -> None:
    text = (
        'os.environ["XLA_FLAGS"] = (\n    "--xla_gpu_graph_level=0 "\n'
        '    "--xla_gpu_enable_triton_softmax_fusion=false "\n)\n'
    )
    fixed = apply_fixes(text, findings(text, "python"), "python")
    assert (
        fixed == 'os.environ["XLA_FLAGS"] = (\n    "--xla_gpu_enable_command_buffer= "\n    ""\n)\n'
    )


def test_every_code_is_described() -> None:
    texts = [GUIDE, flags("--xla_gpu_enable_triton_gemm=true"), flags("--xla_nope=1")]
    assert {one.code for text in texts for one in findings(text)} <= set(CODES)


@pytest.mark.parametrize(("old", "new"), [("true", "on"), ("false", "default")])
def test_an_alias_gets_its_new_name(old: str, new: str) -> None:
    """XLA 0.12.0.1 serialises the same options for both spellings."""
    text = flags(f"--xla_gpu_enable_pipelined_all_gather={old}")
    (found,) = findings(text, jaxlib="0.12.0.1")
    assert (found.code, found.severity) == ("deprecated", "warning")
    assert apply_fixes(text, [found]) == flags(f"--xla_gpu_pipeline_all_gather={new}")


def test_two_memory_fractions_end_the_job() -> None:
    """JAX: `XLA_CLIENT_MEM_FRACTION is specified together with XLA_PYTHON_CLIENT_MEM_FRACTION`."""
    both = {"XLA_PYTHON_CLIENT_MEM_FRACTION": ".9", "XLA_CLIENT_MEM_FRACTION": ".8"}
    (finding,) = lint(read_environment(both), catalogue_of("0.10.2"))
    assert (finding.code, finding.severity) == ("contradictory", "abort")
    assert lint(read_environment({"XLA_CLIENT_MEM_FRACTION": ".8"}), catalogue_of("0.10.2")) == ()

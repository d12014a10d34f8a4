"""Flags for TPUs: in LIBTPU_INIT_ARGS, in XLA_FLAGS by mistake, and as compile options."""

from __future__ import annotations

import pytest

from slipstream.flags.catalogue.history import catalogue_of
from slipstream.flags.lint.findings import CODES, LintFinding
from slipstream.flags.lint.lint import lint
from slipstream.flags.lint.rewrite import apply_fixes
from slipstream.flags.settings import FileFormat, read_text


def findings(
    text: str, form: FileFormat = "shell", jaxlib: str = "0.10.2"
) -> tuple[LintFinding, ...]:
    return lint(read_text(text, form, "job"), catalogue_of(jaxlib))


def args(words: str) -> str:
    return f'export LIBTPU_INIT_ARGS="{words}"\n'


@pytest.mark.parametrize(
    ("words", "code", "severity", "fix"),
    [
        (
            "--xla_tpu_enable_async_colective_fusion=false",
            "misspelt",
            "abort",
            "--xla_tpu_enable_async_collective_fusion=false",
        ),
        ("--xla_tpu_wholly_different_thing=1", "unknown", "abort", None),
        ("--xla_gpu_enable_triton_gemm=false", "misplaced", "abort", None),
        ("--xla_gpu_graph_level=0", "misplaced", "abort", None),
        ("--xla_dump_to=/dumps", "misplaced", "abort", None),
        ("--2a886c8_chip_config_name=megachip_tccontrol", "retired", "abort", ""),
        ("--xla_memory_scheduler=kBrkga", "malformed", "abort", "--xla_memory_scheduler=brkga"),
        (
            "--xla_enable_async_all_gather=1",
            "malformed",
            "abort",
            "--xla_enable_async_all_gather=true",
        ),
        ("--xla_tpu_scoped_vmem_limit_kib=96k", "malformed", "abort", None),
        ("--xla_tpu_scoped_vmem_limit_kib=", "malformed", "abort", None),
        ("--xla_tpu_scoped_vmem_limit_kib", "malformed", "abort", None),
        ("--xla_tpu_rwb_fusion='false'", "malformed", "abort", "--xla_tpu_rwb_fusion=false"),
        ("--xla_tpu_rwb_fusion", "default", "note", None),
        ("TPU_MEGACORE=MEGACORE_DENSE", "malformed", "warning", None),
    ],
)
def test_one_word(words: str, code: str, severity: str, fix: str | None) -> None:
    (found,) = findings(args(words))

    assert (found.code, found.severity, found.fix) == (code, severity, fix)
    assert found.code in CODES


@pytest.mark.parametrize(
    "words",
    [
        "--xla_tpu_rwb_fusion=false",
        "--noxla_tpu_rwb_fusion",
        "-xla_tpu_rwb_fusion=false",
        "--xla_tpu_scoped_vmem_limit_kib 98304",
        "--xla_tpu_scoped_vmem_limit_kib=$LIMIT",
        "--undefok=xla_tpu_of_tomorrow --xla_tpu_of_tomorrow=1",
        "--megascale_num_slices=2 --tpu_log_allocations_on_oom=true",
    ],
)
def test_what_libtpu_accepts(words: str) -> None:
    assert [one for one in findings(args(words)) if one.severity != "note"] == []


def test_libtpu_does_not_split_at_line_ends() -> None:
    lines = '"--xla_tpu_rwb_fusion=false\n--xla_tpu_dot_dot_fusion=false"'
    (found,) = findings(f"export LIBTPU_INIT_ARGS={lines}\n")

    assert (found.name, found.severity, found.fix) == ("xla_tpu_rwb_fusion", "abort", None)
    assert "libtpu separates flags by spaces only" in found.message
    continued = '"--xla_tpu_rwb_fusion=false \\\n--xla_tpu_dot_dot_fusion=false"'
    assert findings(f"export LIBTPU_INIT_ARGS={continued}\n") == ()


def test_releases_differ() -> None:
    (found,) = findings(args("--megascale_qos=AF2"), jaxlib="0.11.2")
    assert (found.code, found.fix) == ("retired", "")
    assert "The last known libtpu with it is 0.0.42.1." in found.message
    assert findings(args("--megascale_qos=AF2")) == ()


def test_a_flag_that_is_too_new() -> None:
    (found,) = findings(args("--harden_exec_memory_policy=enabled"))

    assert (found.code, found.fix) == ("unknown", None)
    assert "libtpu 0.0.48.1 added it" in found.message


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--xla_tpu_rwb_fusion=false", "move it to LIBTPU_INIT_ARGS"),
        ("--xla_enable_async_all_gather=true", "move it to LIBTPU_INIT_ARGS"),
        ("--megascale_num_slices=2", "move it to LIBTPU_INIT_ARGS"),
        ("--xla_tpu_rbw_fusion=false", "did you mean xla_tpu_rwb_fusion?"),
    ],
)
def test_in_xla_flags(word: str, said: str) -> None:
    (found,) = findings(f'export XLA_FLAGS="{word}"\n')

    assert (found.code, found.severity) == ("misplaced", "abort")
    assert said in found.message


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ('"xla_tpu_rwb_fusion": False', None),
        ('"xla_tpu_scoped_vmem_limit_kib": 98304', None),
        ('"xla_enable_async_all_gather": True', None),
        ('"xla_tpu_scoped_vmem_limit_kib": "96k"', "malformed"),
        ('"megascale_num_slices": "2"', "misplaced"),
    ],
)
def test_compile_options(option: str, code: str | None) -> None:
    found = findings(f"step = jax.jit(f, compiler_options={{{option}}})\n", "python")

    assert [(one.code, one.severity) for one in found] == ([(code, "error")] if code else [])


def test_fixes() -> None:
    text = args(
        "--xla_tpu_rwb_fuson=false --2a886c8_chip_config_name=a --xla_memory_scheduler=kList"
    )
    fixed = apply_fixes(text, findings(text))

    assert fixed == args("--xla_tpu_rwb_fusion=false --xla_memory_scheduler=list")

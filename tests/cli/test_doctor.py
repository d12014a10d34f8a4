"""`slipstream doctor` and `slipstream flags thresholds` as people type them."""

import json

import pytest
from typer.testing import CliRunner

from slipstream.cli.main import app
from slipstream.errors import CheckFailed

BROKEN = {"JAX_COMPILATION_CACHE_EXPECT_PGLE": "yes", "JAX_COMPILATION_CACHE_DIR": ""}


def run(*arguments, **environment):
    return CliRunner().invoke(app, [str(a) for a in arguments], env=environment)


def test_the_doctor_looks_at_this_machine():
    done = run("doctor")

    assert done.exit_code == 0, done.output
    assert "jax " in done.output


def test_findings_are_no_failure_unless_strict():
    assert run("doctor", **BROKEN).exit_code == 0
    done = run("doctor", "--strict", **BROKEN)
    assert isinstance(done.exception, CheckFailed)
    assert "expect-pgle" in str(done.exception)
    assert "JAX_COMPILATION_CACHE_EXPECT_PGLE is on" in done.output


def test_json():
    found = json.loads(run("doctor", "--json", **BROKEN).output)

    assert found.keys() == {"packages", "gpus", "tpus", "links", "findings"}
    (finding,) = [one for one in found["findings"] if one["code"] == "expect-pgle"]
    assert finding.keys() == {"code", "level", "what", "why", "fix"}


def test_flags_of_libtpu():
    pytest.importorskip("libtpu")
    args = "--xla_tpu_rwb_fuson=false --xla_tpu_dot_dot_fusion=true word"
    found = json.loads(run("doctor", "--json", LIBTPU_INIT_ARGS=args).output)["findings"]

    found = [one for one in found if one["code"] == "libtpu-flags"]
    assert [(one["level"], one["fix"]) for one in found] == [
        ("error", "write --xla_tpu_rwb_fusion=false"),
        ("warning", "slipstream flags lint"),
    ]
    assert "did you mean xla_tpu_rwb_fusion?" in found[0]["what"]


def test_a_program_is_looked_at_too(tmp_path):
    program = tmp_path / "program.hlo"
    program.write_text(
        "HloModule m\n\nENTRY main {\n  a = f32[8]{0} parameter(0)\n"
        "  ROOT b = f32[] dot(a, a), lhs_contracting_dims={0}, rhs_contracting_dims={0}\n}\n"
    )
    done = run("doctor", "--program", program, "--json")

    codes = [finding["code"] for finding in json.loads(done.output)["findings"]]
    assert "float32-matmuls" in codes


def test_thresholds(data):
    pytest.importorskip("slipstream.cli.flags")
    program = data / "nccl2_lhs_r0.hlo.gz"
    text = run("flags", "thresholds", program).output
    found = json.loads(run("flags", "thresholds", program, "--json").output)

    assert text.startswith("jit_train_step · 4 layers\n")
    assert found["xla_flags"] in text.replace(" \\\n ", "").replace('"', "")
    assert found["layers"] == 4

"""Programs that nsys-jax kept: found, unpacked, and joined with what lies beside them."""

import lzma
import zipfile

import pytest

from slipstream.compiler.archive import read_archived
from slipstream.errors import BadInput


def archive(path, **members: bytes):
    with zipfile.ZipFile(path, "w") as file:
        for name, data in members.items():
            stem, _, what = name.partition("__")
            file.writestr(f"dump/module_00{stem}.{what}", data)
    return path


@pytest.fixture
def two(tmp_path):
    return archive(
        tmp_path / "two.zip",
        **{
            "01__jit_small.before_optimizations.hlo.pb.xz": lzma.compress(b"small"),
            "02__jit_step.before_optimizations.txt": b"HloModule step" + b" " * 200,
            "02__jit_step.gpu_target_config.pbtxt.xz": lzma.compress(b"platform_name: 'CUDA'"),
            "02__jit_step.autotune_results.pbtxt": b"version: 3",
            "02__jit_step.sm_8.0_gpu_after_optimizations.hlo.pb.xz": b"x" * 1000,
        },
    )


def test_the_biggest_program_with_what_it_ran_on(two):
    found = read_archived(two)
    assert (found.target.kind, found.target.label) == ("hlo", "jit_step of two.zip")
    assert found.target.content == b"HloModule step" + b" " * 200
    assert found.target_config == "platform_name: 'CUDA'"
    # XLA takes the ending as the sign of text.
    assert found.autotuning.suffix == ".pbtxt" and found.autotuning.read_text() == "version: 3"


def test_a_program_by_name(two):
    found = read_archived(two, "jit_small")
    assert (found.target.content, found.target_config, found.autotuning) == (b"small", None, None)
    with pytest.raises(BadInput, match="has no program jit_stp; it has jit_small, jit_step"):
        read_archived(two, "jit_stp")


def test_what_is_no_archive(tmp_path):
    with pytest.raises(BadInput, match="has no unoptimised program"):
        read_archived(archive(tmp_path / "empty.zip", **{"01__readme.txt": b""}))
    (tmp_path / "cut.zip").write_bytes(b"PK")
    with pytest.raises(BadInput, match="is damaged: expected an nsys-jax archive"):
        read_archived(tmp_path / "cut.zip")


def test_a_real_one(external):
    found = read_archived(external / "nsysjax_pax_fsdp4_a100_proc0.zip")
    assert found.target.label.startswith("pjit__wrapped_step_fn of ")
    assert len(found.target.content) == 5_850_063
    assert 'device_description_str: "NVIDIA A100-SXM4-40GB"' in found.target_config
    assert found.autotuning.read_text().count("\nresults {") == 29

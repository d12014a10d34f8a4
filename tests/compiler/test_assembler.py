"""Compiles without an assembler: the same program, from scripts that write empty files."""

import subprocess

import pytest

from slipstream.compiler.assembler import has_own_kernels, stand_in
from slipstream.compiler.combinations import combinations
from slipstream.compiler.compile import compilation
from slipstream.compiler.workers import Workers


def test_the_stand_in_writes_what_it_is_asked_for(tmp_path):
    folder = stand_in(tmp_path / "cuda", ["jax", "jax-cuda12-plugin"])
    assert folder is not None and stand_in(folder, ["jax-cuda12-plugin"]) == folder
    tool, out = folder / "bin" / "ptxas", tmp_path / "a file.cubin"
    subprocess.run([tool, "kernel.ptx", "-o", out, "-arch=sm_90a"], check=True)
    assert out.read_bytes() == b""
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True)
    assert "release 12.9" in said.stdout


def test_where_no_script_can_run_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # as on a disk mounted noexec
    assert stand_in(tmp_path, ["jax-cuda13-plugin"]) is None


@pytest.mark.parametrize("name", ["__gpu$xla.gpu.triton", "mosaic_gpu_v2"])
def test_kernels_of_the_program_itself_are_assembled(name):
    assert has_own_kernels(b"ML\xefR" + name.encode())
    assert not has_own_kernels(b"ML\xefR stablehlo.dot_general")


def test_the_program_is_the_same(step, tmp_path, monkeypatch):
    flags = {"xla_gpu_autotune_level": 0}
    assembled = compilation(f"{step}:build", on="8xH200", flags=flags)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    class Watched(Workers):
        def ask(self, job, do, **request):
            asked.append(request.get("options", {}))
            return super().ask(job, do, **request)

    with (
        Watched() as workers,
        combinations(f"{step}:build", "8xH200", workers=workers) as session,
    ):
        found = session.compile({}, flags)
        assert asked[-1]["xla_gpu_cuda_data_dir"] == str(workers.tools)
        assert asked[-1]["xla_backend_optimization_level"] == "0"
    assert not found.is_cached
    assert found.proto.read_bytes() == assembled.proto.read_bytes()
    assert (found.memory, found.flags) == (assembled.memory, assembled.flags)
    assert [m.code for m in found.messages] == [m.code for m in assembled.messages]

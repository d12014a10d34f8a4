"""Real compiles of tiny programs: every kind of target gives the same program."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from slipstream.compiler.cache import cache_folder
from slipstream.compiler.compilation import Compilation, MemoryUse
from slipstream.compiler.compile import compilation, compiler
from slipstream.compiler.compile import compile as compile_program
from slipstream.compiler.memory_pool import pool_share
from slipstream.compiler.session import _own_messages
from slipstream.costs.table import Cost, CostTable, ProgramCosts
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.outputs.terminal.compiled.compile import render_compile
from slipstream.profile.semantics.backend_config import call_attributes
from slipstream.units import format_bytes

COLLECTIVES = {"all-gather"}


def kinds(program):
    return {one.collective.kind for one in program.scheduled if one.collective is not None}


def codes(found):
    return [message.code for message in found.messages]


def test_a_python_target(step, quick):
    found = compilation(f"{step}:build", on="8xH200", flags=quick)

    assert kinds(found.program) == COLLECTIVES
    assert (found.devices, found.machine.spec, found.target) == (8, "8xH200", f"{step}:build")
    assert found.program.fingerprint is not None and found.program.is_scheduled
    # Two matrices of 512 × 512 bfloat16, each cut in eight, and a result like them.
    piece = 512 * 512 * 2 // 8
    memory = found.memory
    assert (memory.arguments_bytes, memory.outputs_bytes) == (2 * piece, piece)
    assert memory.peak_bytes == 3 * piece + memory.temporaries_bytes
    assert memory.fits and memory.capacity_bytes == machine("8xH200").gpu.memory_bytes
    assert found.flags["xla_gpu_enable_triton_gemm"] == "False"
    assert set(found.versions) == {"python", "jax", "jaxlib", "jax-cuda13-plugin"}
    assert not any(message.severity == "error" for message in found.messages)


def test_a_mesh_gives_the_same_program(step, quick):
    by_devices = compile_program(f"{step}:build", flags=quick)
    assert compile_program(f"{step}:with_mesh", flags=quick).fingerprint == by_devices.fingerprint


def test_a_repeat_comes_from_the_cache_without_jax(step, quick):
    first = compilation(f"{step}:build", flags=quick)
    script = (
        "import sys; from slipstream.compiler.compile import compilation\n"
        f"found = compilation({step + ':build'!r}, flags={quick!r})\n"
        "print(found.is_cached, found.program.fingerprint, 'jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout.split() == ["True", first.program.fingerprint, "False"], done.stderr


def test_what_a_target_reads_is_part_of_the_key(step_folder, tmp_path, quick, monkeypatch):
    """Its own file, the modules it imports, and the variables it looks at."""
    shutil.copytree(step_folder, tmp_path, dirs_exist_ok=True)
    target = f"{tmp_path}/step.py:build"

    def arguments_bytes():
        found = compilation(target, flags=quick)
        return found.memory.arguments_bytes, found.is_cached

    whole = 2 * 512 * 512 * 2 // 8
    assert arguments_bytes() == (whole, False)
    (tmp_path / "sizes.py").write_text("WIDTH = 1024\n")
    assert arguments_bytes() == (4 * whole, False)
    monkeypatch.setenv("STEP_WIDTH", "256")
    assert arguments_bytes() == (whole // 4, False)
    monkeypatch.delenv("STEP_WIDTH")
    (tmp_path / "sizes.py").write_text("WIDTH = 512\n")
    assert arguments_bytes() == (whole, True)


def test_keywords_go_to_the_function(step, quick):
    found = compilation(f"{step}:build", {"width": 256}, flags=quick)
    assert found.memory.arguments_bytes == 2 * 256 * 256 * 2 // 8


def test_a_function_and_what_its_lowering_wrote(step, quick, tmp_path):
    """A function, a file of StableHLO as text, and bytecode in memory: one program."""
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    expected = compile_program(f"{step}:build", flags=quick)
    cut = NamedSharding(AbstractMesh((8,), ("data",)), PartitionSpec("data"))

    def step_function(weights, batch):
        return jnp.tanh(batch @ weights) @ weights

    step_function.__name__ = "step"  # a program's name is part of its fingerprint
    jitted = jax.jit(step_function, in_shardings=(cut, cut), out_shardings=cut)
    matrix = jax.ShapeDtypeStruct((512, 512), jnp.bfloat16)
    lowered = jitted.trace(matrix, matrix).lower(lowering_platforms=("cuda",))
    file = tmp_path / "step.mlir"
    file.write_text(lowered.as_text())

    from_function = compile_program(jitted, (matrix, matrix), flags=quick)
    from_file = compile_program(str(file), flags=quick)
    from_lowered = compile_program(lowered, flags=quick)
    found = {p.fingerprint for p in (from_function, from_file, from_lowered)}
    assert found == {expected.fingerprint}


def test_a_plain_function_runs_on_one_device(quick):
    import jax
    import jax.numpy as jnp

    def scale(x):
        return 2 * x

    found = compilation(scale, (jax.ShapeDtypeStruct((64,), jnp.float32),), flags=quick)
    assert (found.devices, codes(found)) == (1, ["few-devices"])
    assert "1 of the 8 devices of 8xH200" in found.messages[0].text
    alone = compilation(scale, (jnp.zeros(64),), on="H200", flags=quick)
    assert codes(alone) == []


def damage_entry(made: Compilation) -> None:
    """Leave nothing in the cache's entry but the names of its files."""
    for file in cache_folder().glob("*.json"):
        if (entry := json.loads(file.read_text())).get("proto") == made.proto.name:
            file.write_text(json.dumps({name: entry[name] for name in ("proto", "log")}))


def test_a_session_lowers_once_and_compiles_often(step, quick):
    stages = []
    with compiler(f"{step}:build", on="4xH200", progress=stages.append) as session:
        plain = session.compile(flags=quick)
        sync = session.compile(flags={**quick, "xla_gpu_disable_async_collectives": "ALLGATHER"})
        again = session.compile(flags=quick)
        damage_entry(plain)
        mended = session.compile(flags=quick)
        estimator = "xla_gpu_analytical_latency_estimator_options"
        slow = session.compile(flags={**quick, estimator: "nic_speed_gbps=1"})
    found = [one.is_cached for one in (plain, sync, again, mended, slow)]
    assert found == [False, False, True, False, False]
    assert again.program.content_hash == plain.program.content_hash
    gathers = [one.collective for one in sync.program.scheduled if one.collective is not None]
    assert gathers and all(one.is_sync for one in gathers)
    # The last one's flag is a map, which only XLA_FLAGS can hold: another process.
    lowering = [stage for stage in stages if stage.startswith("lowering")]
    starting = [stage for stage in stages if stage == "starting XLA"]
    assert (len(lowering), len(starting)) == (1, 2)


def test_costs_reach_the_scheduler(step, quick, tmp_path):
    known = compile_program(f"{step}:build", flags=quick)
    work = next(one for one in known.scheduled if one.opcode in ("fusion", "custom-call"))
    name = work.scheduling_name or work.name
    costs = {"nothing": Cost("nothing", 1.0), name: Cost(name, 900.0)}
    table = CostTable((ProgramCosts(known.fingerprint, known.name, costs),))
    found = compilation(f"{step}:build", flags=quick, costs=table)
    texts = {message.code: message.text for message in found.messages}
    assert texts["pgle-found"] == "1 instructions have a cost in the file"
    assert "have no cost in the file: " in texts["pgle-missing"]
    assert "pgle-used" in texts

    file = tmp_path / "costs.pb"
    table.write(file)
    same = compilation(f"{step}:build", flags=quick, costs=file)
    assert same.is_cached
    assert f"the scheduler uses the costs in {file}" in [one.text for one in same.messages]
    other = CostTable((ProgramCosts(None, "any", {name: Cost(name, 1.0)}),))
    other.write(file)
    assert not compilation(f"{step}:build", flags=quick, costs=file).is_cached


def test_a_program_that_does_not_fit_is_compiled_and_says_so(step, quick):
    found = compilation(f"{step}:too_big", on="8xA100", flags=quick)
    assert not found.memory.fits
    first = found.messages[0]
    assert (first.code, first.severity) == ("memory-does-not-fit", "error")
    has = format_bytes(machine("8xA100").gpu.memory_bytes)
    assert first.text.startswith("needs ") and f" of {has} on each A100: reduce" in first.text
    assert "memory-not-reduced" in codes(found)


def test_a_program_at_the_limit_of_xlas_scheduler_says_so():
    """80% of the memory, less what lasts, times the flag's 95%: (0.8 · 100 − 10) · 0.95 = 66.5."""
    gb = 10**9

    def said(temporaries, flags=()):
        use = MemoryUse(8 * gb, 5 * gb, temporaries * gb, 0, 3 * gb, 100 * gb)
        messages = _own_messages(machine("8xH100"), use, 8, dict(flags))
        return [message.code for message in messages if message.code != "environment"]

    assert said(66) == ["memory-limit"]
    assert said(60) == []
    assert said(60, [("xla_gpu_memory_limit_slop_factor", "85")]) == ["memory-limit"]
    assert said(95) == ["memory-does-not-fit"]


def test_xla_plans_with_the_pool_that_the_job_will_have(step, quick, monkeypatch):
    """XLA's warning adds outputs to the limit, whose reader allocates them."""

    def limit():
        found = compilation(f"{step}:too_big", on="8xA100", flags=quick)
        (said,) = re.findall(r"reduce memory use below \S+ \((\d+) bytes\)", found.log.read_text())
        return int(said), found.memory

    monkeypatch.delenv("XLA_PYTHON_CLIENT_MEM_FRACTION", raising=False)
    for set_to, share in ((None, 0.75), ("0.9", 0.9)):
        if set_to is not None:
            monkeypatch.setenv("XLA_PYTHON_CLIENT_MEM_FRACTION", set_to)
        stated, memory = limit()
        planned = memory.planned_bytes(share * memory.capacity_bytes)
        assert stated == pytest.approx(planned + memory.outputs_bytes, rel=1e-3)


def test_a_job_whose_pool_is_too_small_is_warned():
    gb = 10**9
    use = MemoryUse(8 * gb, 5 * gb, 70 * gb, 0, 3 * gb, 100 * gb)
    for pool, expected in ((75 * gb, ["memory-limit", "memory-pool"]), (95 * gb, [])):
        messages = _own_messages(machine("8xH100"), use, 8, {}, pool)
        assert [one.code for one in messages if one.code != "environment"] == expected
    (said,) = (one.text for one in _own_messages(machine("8xH100"), use, 8, {}, 75 * gb)[1:2])
    assert said == (
        "needs 80 GB of 100 GB, and JAX's allocator takes 75 GB: the job would run out of memory; "
        "export XLA_PYTHON_CLIENT_MEM_FRACTION=.95, here and in the job"
    )


@pytest.mark.parametrize(
    ("environment", "share"),
    [
        ({}, 0.75),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": ".9"}, 0.9),
        ({"XLA_CLIENT_MEM_FRACTION": "0.5"}, 0.5),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "most"}, None),
        ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "1.2"}, None),
        ({"XLA_PYTHON_CLIENT_ALLOCATOR": "platform"}, None),
    ],
)
def test_the_share_of_a_gpu_that_jax_takes(environment, share):
    assert pool_share(environment) == share


def test_a_kernel_that_is_not_here_needs_only_its_name(quick):
    """A user's own call is compiled for a GPU where its library is missing."""
    import jax
    import jax.numpy as jnp

    shape = jax.ShapeDtypeStruct((64, 64), jnp.float32)

    def step(x):
        return jax.ffi.ffi_call("my_kernel_ffi", shape)(x * 2, heads=4) + 1

    found = compile_program(jax.jit(step), (shape,), on="H200", flags=quick)
    (call,) = (one for one in found.scheduled if one.opcode == "custom-call")
    assert call.custom_call_target == "my_kernel_ffi"
    assert call_attributes(call) == {"heads": 4}


def test_optimiser_state_on_the_host_is_copied_from_there_and_back(step, quick):
    found = compilation(f"{step}:offloaded", on="8xH100", flags=quick)
    abstract = compilation(f"{step}:offloaded", {"is_abstract": True}, on="8xH100", flags=quick)
    for one in (found, abstract):
        copies = [i for i in one.program.scheduled if i.opcode == "copy-start"]
        assert len(copies) == 2 and codes(one) == []
        # Float32 moments of 512 × 512, cut in eight.
        assert one.memory.host_bytes == 512 * 512 * 4 // 8
    with pytest.raises(BadInput, match="can address the following memory kinds: device, pinned_h"):
        compilation(f"{step}:offloaded", {"kind": "unpinned_host"}, on="8xH100", flags=quick)


def test_a_target_that_needs_jaxs_own_devices_loses_memory_kinds_and_is_told(step, quick):
    found = compilation(f"{step}:in_default_place", on="8xH100", flags=quick)
    (message,) = found.messages
    assert (message.code, message.severity) == ("memory-kinds", "warning")
    assert "(ValueError: jax.default_device must be passed either a Device" in message.text
    assert found.memory.host_bytes == 0


def test_more_devices_than_there_are(quick):
    import jax
    import jax.numpy as jnp
    from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

    cut = NamedSharding(AbstractMesh((16,), ("data",)), PartitionSpec("data"))
    jitted = jax.jit(lambda x: x + 1, in_shardings=cut)
    with pytest.raises(BadInput) as error:
        compilation(jitted, (jax.ShapeDtypeStruct((64,), jnp.float32),), on="8xH200", flags=quick)
    assert "needs 16 devices, but 8xH200 has 8; compile it for 16: --on 2x8xH200" in str(
        error.value
    )


def test_flags_that_a_target_sets_too_late(tmp_path, step_folder, quick):
    shutil.copytree(step_folder, tmp_path, dirs_exist_ok=True)
    step = tmp_path / "step.py"
    setting = "import os; os.environ['XLA_FLAGS'] = '--xla_gpu_enable_command_buffer='\n"
    step.write_text(setting + step.read_text())
    (message,) = compilation(f"{step}:build", on="2xH200", flags=quick).messages
    assert message.code == "flags-too-late"
    assert "pass them with: --flags '--xla_gpu_enable_command_buffer='" in message.text


def test_a_program_whose_results_are_wrong_is_told_of(step, quick):
    """XLA's pass mixes up the types of what it sums; without the pass, nothing is wrong."""
    without = {**quick, "xla_disable_hlo_passes": "all-reduce-contiguous"}
    with compiler(f"{step}:mixed", on="2xH200") as session:
        found, sound = session.compile(flags=quick), session.compile(flags=without)

    (message,) = found.messages
    assert (message.code, message.severity) == ("wrong-results", "error")
    assert "reads bf16[2,512] (2.05 kB) as f32[1024] (4.1 kB)" in message.text
    assert message.text.endswith("XLA_FLAGS=--xla_disable_hlo_passes=all-reduce-contiguous")
    assert found.program.instruction(message.instruction).opcode == "bitcast"
    assert render_compile(found).plain.count("✗ the program's results are wrong: ") == 1
    assert sound.messages == () and kinds(sound.program) == {"all-reduce"}

"""XLA's compiler for TPUs, with no TPU: libtpu in worker processes."""

import json
import re
from importlib.util import find_spec
from types import SimpleNamespace

import pytest

from slipstream.compiler import versions
from slipstream.compiler.compile import compilation, compiler, known_config
from slipstream.compiler.options import tpu_flags
from slipstream.compiler.session import CompilerSession
from slipstream.compiler.targets import identify
from slipstream.compiler.worker.process import WorkerProcess
from slipstream.compiler.worker.xla import memory_of
from slipstream.compiler.workers import Workers
from slipstream.errors import BadInput, Missing
from slipstream.machines.topology import machine
from slipstream.machines.tpu.instructions import tpu_estimate
from slipstream.machines.tpu.slices import is_slice_transfer
from slipstream.outputs.terminal.compiled.compile import render_compile
from slipstream.profile.semantics.attention import attention_of
from slipstream.profile.semantics.backend_config import TPU_KERNEL

KERNELS = """
import jax, jax.numpy as jnp
from jax.experimental import pallas as pl

SHAPE = jax.ShapeDtypeStruct((8, 256), jnp.float32)

def double(x, out):
    out[...] = x[...] * 2

def triton(devices):
    from jax.experimental.pallas import triton as gpu
    params = gpu.CompilerParams(num_warps=4)
    return pl.pallas_call(double, out_shape=SHAPE, compiler_params=params), SHAPE

def cudnn(devices):
    def attend(q):
        return jax.nn.dot_product_attention(q, q, q, implementation="cudnn")
    return attend, jax.ShapeDtypeStruct((4, 128, 8, 64), jnp.bfloat16)

def mosaic(devices):
    import inspect
    from jax.experimental.pallas import mosaic_gpu
    names = inspect.signature(mosaic_gpu.kernel).parameters
    made = {"out_type" if "out_type" in names else "out_shape": SHAPE}  # JAX 0.12
    return mosaic_gpu.kernel(double, **made), SHAPE

def callback(devices):
    def step(x):
        y = jax.pure_callback(lambda one: one, SHAPE, x)
        jax.debug.print("{}", y[0, 0])
        return y @ y.T
    return step, SHAPE

def lanes(devices):
    from jax.experimental.pallas import tpu
    def step(x):
        shape = jax.ShapeDtypeStruct((8, 2 * tpu.get_tpu_info().num_lanes), jnp.float32)
        return pl.pallas_call(double, out_shape=shape)(x)
    return step, SHAPE

def too_big(devices):
    return lambda x: x + 1, jax.ShapeDtypeStruct((40, 1024, 1024, 1024), jnp.int8)
"""
ATTENTION = """
import jax, jax.numpy as jnp
from jax.experimental.pallas.ops.tpu.flash_attention import flash_attention

def build(devices):
    def loss(x):
        return sum(
            jnp.sum(flash_attention(x, x, x, causal=causal).astype(jnp.float32))
            for causal in (False, True)
        )
    return jax.grad(loss), jax.ShapeDtypeStruct((1, 1, 256, 128), jnp.bfloat16)
"""
REFUSED = {
    "triton": "has a Pallas kernel for Triton, which is for GPUs only; on TPUs use",
    "mosaic": "has a Pallas kernel for Mosaic GPU, which is for GPUs only; on TPUs use",
    "cudnn": "has cuDNN's attention, which is for GPUs only; on TPUs use",
    "too_big": "does not fit in the memory of one v5e (it needs 80.00GiB of 15.75GiB)",
}
needs_libtpu = pytest.mark.skipif(
    find_spec("libtpu") is None, reason="libtpu is missing: pip install 'slipstream[tpu]'"
)


@needs_libtpu
def test_two_slices(step):
    found = compilation(f"{step}:build", on="2xv5e-4")

    assert (found.devices, found.program.is_scheduled) == (8, True)
    assert set(found.versions) == {"python", "jax", "jaxlib", "libtpu"}
    assert 0 < found.memory.peak_bytes < found.memory.capacity_bytes == 16911433728
    kinds = {one.opcode for one in found.program.instructions}
    assert {"send", "recv"} <= kinds  # through the hosts, by Megascale
    assert found.log.read_text() == ""
    assert f"libtpu {found.versions['libtpu']}, no TPU needed" in str(render_compile(found, 80))
    assert [one.code for one in found.messages] == []
    assert compilation(f"{step}:build", on="2xv5e-4").is_cached


@needs_libtpu
def test_flags(step, monkeypatch):
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_tpu_enable_latency_hiding_scheduler=true")
    with compiler(f"{step}:build", on="v5e-4") as session:
        found = session.compile({"xla_tpu_scoped_vmem_limit_kib": 32768})
        assert found.flags == {"xla_tpu_scoped_vmem_limit_kib": "32768"}
        assert [one.text for one in found.messages] == [
            "LIBTPU_INIT_ARGS is also applied: --xla_tpu_enable_latency_hiding_scheduler=true"
        ]
        with pytest.raises(BadInput, match="libtpu has no flag xla_tpu_nothing"):
            session.compile({"xla_tpu_nothing": 1})
        with pytest.raises(BadInput, match="did you mean xla_tpu_rwb_fusion\\?"):
            session.compile({"xla_tpu_rwb_fuson": 1})
        much = "_limit_kib is 'much', which libtpu can't read; expected a whole number"
        with pytest.raises(BadInput, match=much):
            session.compile("--xla_tpu_scoped_vmem_limit_kib=much")
        with pytest.raises(BadInput, match="XLA:TPU takes no costs, and v5e-4 has TPUs"):
            session.compile(costs="costs.pb")


@needs_libtpu
def test_kernels_and_programs_that_tpus_refuse(tmp_path):
    file, on = tmp_path / "kernels.py", machine("v5e-4")
    file.write_text(KERNELS)
    with Workers() as workers:

        def compiled(function):
            target = identify(f"{file}:{function}")
            with CompilerSession(target, on, known_config(on), workers=workers) as session:
                return session.compile()

        for function, message in REFUSED.items():
            with pytest.raises(BadInput) as raised:
                compiled(function)
            assert f"kernels.py:{function} {message}" in str(raised.value)
        calls = {one.custom_call_target for one in compiled("lanes").program.instructions}
        assert "tpu_custom_call" in calls
        program = compiled("callback").program
    whys = {
        one.opcode: tpu_estimate(on, program, one).why
        for one in program.instructions
        if one.opcode in ("send", "recv") and one.shape.bytes > 16
    }
    assert set(whys) == {"send", "recv"}
    assert all(
        "over the host's link; what the host does is not known" in why for why in whys.values()
    )
    assert not any(is_slice_transfer(one) for one in program.instructions)


@needs_libtpu
def test_programs_for_more_devices(step):
    with compiler(f"{step}:build", on="v5e-8") as session:
        target = session.portable_target()
    with pytest.raises(BadInput, match="needs 8 devices, but v5e-4 has 4; .* --on v5e-8$"):
        compilation(target, on="v5e-4")


@needs_libtpu
def test_topologies_have_as_many_devices_as_machines():
    process = WorkerProcess("")
    try:
        for spec in ("v4-8", "v5e-1", "v5e:4x8", "v5p-128", "v6e-256", "tpu7x-8", "2xv5e-256"):
            on = machine(spec)
            facts = {"topology": on.topology, "target_config": known_config(on)}
            answer, log = process.ask("start", **facts, use_gpu=False)
            assert answer["devices"] == on.devices, spec
            assert not re.search(r"^[WEF]\d|WARNING", log, re.MULTILINE), log
    finally:
        process.close()


def test_the_target_configuration_is_jaxs_options():
    assert json.loads(known_config(machine("2xv5e:8x16"))) == {
        "platform": "tpu",
        "device_kind": "TPU v5 lite",
        "cores": 1,
        "options": {
            "topology_name": "v5e:8x16",
            "num_slices": 2,
            "chip_config_name": "default",
            "chips_per_host_bounds": [2, 2, 1],
            "wrap": [False, True, False],
        },
    }
    assert '"chip_config_name": "megacore"' in known_config(machine("v4-8"))
    assert '"chips_per_host_bounds": [1, 1, 1]' in known_config(machine("v6e-1"))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"xla_gpu_enable_triton_gemm": 1}, "is a flag for GPUs and changes nothing on TPUs"),
        ("--megascale_port=1", "environment: LIBTPU_INIT_ARGS=--megascale_port=1"),
        ({"nothing": 1}, "there is no flag nothing; flags of XLA:TPU are called xla_tpu_…"),
        ({"optimization_level": "x"}, "expected a number"),
    ],
)
def test_flags_of_other_places(flags, message):
    with pytest.raises(BadInput) as raised:
        tpu_flags(flags)
    assert message in str(raised.value)


def test_temporaries_that_are_never_alive_at_once_need_no_memory():
    """As libtpu 0.0.42.1 states them for a step that it accepts for 16.9 GB."""
    stats = SimpleNamespace(
        argument_size_in_bytes=1530060800,
        output_size_in_bytes=1530029056,
        alias_size_in_bytes=1530028032,
        temp_size_in_bytes=18280803328,
        generated_code_size_in_bytes=39931904,
        peak_memory_in_bytes=13207524864,
    )
    lasting = 1530060800 + 1530029056 - 1530028032

    assert memory_of(stats, "tpu")["temporaries_bytes"] == 13207524864 - lasting
    assert memory_of(stats, "cuda")["temporaries_bytes"] == 18280803328
    stats.peak_memory_in_bytes = 10**12
    assert memory_of(stats, "tpu")["temporaries_bytes"] == 18280803328


@needs_libtpu
def test_the_code_of_flash_attention_says_whether_it_has_a_mask(tmp_path):
    (tmp_path / "attention.py").write_text(ATTENTION)
    program = compilation(f"{tmp_path / 'attention.py'}:build", on="v5e-1").program
    calls = [one for one in program.runnable if one.custom_call_target == TPU_KERNEL]
    found = [
        attention_of(call, [operand.shape for operand in program.operands(call)]) for call in calls
    ]
    # Forward, and both parts of the backward pass.
    assert sorted((one.products, one.is_causal) for one in found if one) == [
        *((2, False), (2, True), (3, False), (3, True), (4, False), (4, True)),
    ]


def test_libtpu_may_be_missing(monkeypatch):
    releases = {"jax": "0.10.2", "jaxlib": "0.10.2", "jax-cuda13-plugin": "0.10.2"}
    monkeypatch.setattr(versions, "_release", releases.get)
    with pytest.raises(Missing, match=r"needs the package libtpu.*pip install 'slipstream\[tpu\]'"):
        versions.installed_versions.__wrapped__("tpu")


def test_tpus_need_no_autotuning(step):
    with pytest.raises(BadInput, match="v5e-4 has TPUs, which need no autotuning"):
        compilation(f"{step}:build", on="v5e-4", use_gpu=True)

"""Tracing cuDNN attention for GPUs that are not here."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from slipstream.jaxhooks import compat, private_api
from slipstream.jaxhooks.target_device import (
    TargetGpu,
    abstract_device,
    answering_for,
    with_memories,
)

pytestmark = pytest.mark.usefixtures("fresh")
PARTS = (
    private_api.CUDNN_VERSION,
    private_api.CAPABILITY_AT_LEAST,
    private_api.CAPABILITY_EQUAL,
    private_api.DEFAULT_DEVICE,
    private_api.LOWERING_BACKEND,
)
HOPPER = TargetGpu("NVIDIA H200", (9, 0), 132, 91900)
AMPERE = TargetGpu("NVIDIA A100-SXM4-80GB", (8, 0), 108, 91900)


def attention(head: int):
    """The calls that an attention with this head dimension is lowered to."""
    shape = jax.ShapeDtypeStruct((2, 128, 4, head), jnp.bfloat16)

    def attend(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, implementation="cudnn")

    traced = jax.jit(attend).trace(shape, shape, shape)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


def test_attention_lowers_for_the_target_without_cudnn():
    before = [part.get() for part in PARTS]
    with answering_for(HOPPER):
        assert "__cudnn$fmhaSoftmax" in attention(256)
    assert [part.get() for part in PARTS] == before


def test_what_the_target_cannot_do_is_jaxs_own_error():
    with pytest.raises(NotImplementedError, match="head dim must be <= 128"):  # noqa: SIM117
        with answering_for(AMPERE):
            attention(192)
    with pytest.raises(NotImplementedError, match="10.3 requires cuDNN"):  # noqa: SIM117
        with answering_for(TargetGpu("NVIDIA B300", (10, 3), 148, 91000)):
            attention(64)


def test_other_functions_are_lowered_where_jax_has_changed(monkeypatch, warnings):
    def missing(part, locate=compat._locate):
        if part is private_api.CAPABILITY_EQUAL:
            raise AttributeError(part.path)
        return locate(part)

    monkeypatch.setattr(compat, "_locate", missing)
    before = private_api.CUDNN_VERSION.get()
    with answering_for(HOPPER):
        assert private_api.CUDNN_VERSION.get() is before
    assert "is_cuda_compute_capability_equal is missing in JAX" in warnings()[0]


def test_kernels_ask_the_target_for_its_cores():
    from jax.extend import backend

    with answering_for(HOPPER):
        device = backend.get_default_device()
        assert (device.core_count, device.compute_capability) == (132, "9.0")


def test_callbacks_into_python_are_lowered():
    shape = jax.ShapeDtypeStruct((4,), jnp.float32)

    def step(x):
        jax.debug.print("x is {}", x)
        return jax.pure_callback(lambda x: x, shape, x)

    traced = jax.jit(step).trace(shape)
    with answering_for(HOPPER):
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert text.count("@xla_ffi_python_gpu_callback") == 2


def test_a_mesh_names_the_target():
    with abstract_device(HOPPER):
        device = jax.sharding.get_abstract_mesh().abstract_device
        assert (device.device_kind, device.num_cores) == ("NVIDIA H200", 132)
        assert "tanh" in jax.jit(jnp.tanh).lower(1.0).as_text()


class Bare:
    """A GPU as XLA's client that only compiles has it."""

    platform, device_kind, process_index, id = "gpu", "NVIDIA H200", 0, 3
    client = SimpleNamespace(process_index=lambda: 0)
    memories: tuple[str, ...] = ()

    def addressable_memories(self):
        return list(self.memories)


def test_memory_kinds_of_shardings_stay_on_devices_that_are_not_here():
    (device,) = with_memories([Bare()])
    on = jax.sharding.SingleDeviceSharding
    assert (on(device).memory_kind, on(device, memory_kind="pinned_host").memory_kind) == (
        "device",
        "pinned_host",
    )
    mesh = jax.sharding.Mesh(np.array([device]), ("data",))
    cut = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(), memory_kind="pinned_host")
    assert cut.memory_kind == "pinned_host" != cut.with_memory_kind("device").memory_kind
    with pytest.raises(ValueError, match="memory kinds: device, pinned_host. Got .*: hbm"):
        on(device, memory_kind="hbm")
    assert (device.id, device.device_kind, hasattr(device, "coords")) == (3, "NVIDIA H200", False)
    assert [memory.kind for memory in device.addressable_memories()] == ["device", "pinned_host"]


def test_devices_that_have_memories_stay_as_they_are(monkeypatch):
    assert with_memories(jax.devices()) == jax.devices()
    monkeypatch.setattr(Bare, "memories", ("device",))
    device = Bare()
    assert with_memories([device]) == [device]


def test_a_jax_that_takes_no_other_devices_is_named(monkeypatch):
    monkeypatch.setattr(jax.sharding, "SingleDeviceSharding", lambda *_, **__: jax.devices()[0])
    with pytest.raises(compat.JaxChanged, match="keeping the memory kinds of shardings .* is off"):
        with_memories([Bare()])

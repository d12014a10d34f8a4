"""Compiles of tiny programs, kept apart from the user's cache."""

from collections.abc import Iterator
from pathlib import Path

import pytest

STEP = """
import os
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import sizes

def build(devices, width=sizes.WIDTH):
    width = int(os.environ.get("STEP_WIDTH", width))
    mesh = Mesh(np.array(devices), ("data",))
    cut = lambda *spec: NamedSharding(mesh, P(*spec))

    def step(weights, batch):
        return jnp.tanh(batch @ weights) @ weights

    matrix = jax.ShapeDtypeStruct((width, width), jnp.bfloat16)
    jitted = jax.jit(step, in_shardings=(cut("data"), cut("data")), out_shardings=cut("data"))
    return jitted, matrix, matrix

def with_mesh(mesh):
    print("what targets print is not an answer")
    return build(list(mesh.devices.flat))[0], build(list(mesh.devices.flat))[1:]

def raises(devices):
    raise ValueError("no such layer")

def not_traceable(devices):
    return jax.jit(lambda x: x.reshape(7)), jax.ShapeDtypeStruct((8,), jnp.float32)

def number(devices):
    return 3

def too_few(devices):
    return build(devices)[:2]

def wants_more(rate):
    return build(rate)

def too_big(devices):
    return build(devices, 3 * 2**16)

def mixed(devices):
    # Gradients in float32 and in bfloat16, which XLA sums by one all-reduce.
    mesh = Mesh(np.array(devices), ("data",))
    whole = NamedSharding(mesh, P())

    def loss(final, scale, x):
        small = scale.astype(jnp.bfloat16)
        return jnp.mean(jnp.sin(jnp.tanh(x * small[0]) * small[1]) * final)

    shapes = [(512,), (2, 512), (64, 512)]
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    cut = (whole, whole, NamedSharding(mesh, P("data")))
    step = jax.jit(jax.grad(loss, (0, 1)), in_shardings=cut, out_shardings=whole)
    return step, *arguments

def offloaded(devices, kind="pinned_host", is_abstract=False):
    # The optimiser's state lives on the host.
    real = Mesh(np.array(devices), ("data",))
    mesh = jax.sharding.AbstractMesh((len(devices),), ("data",)) if is_abstract else real
    here = NamedSharding(mesh, P("data"), memory_kind="device")
    there = here.with_memory_kind(kind)

    def step(weights, moments, batch):
        gradient = jax.grad(lambda w: jnp.sum(jnp.tanh(batch @ w)))(weights)
        moments = 0.9 * jax.device_put(moments, here) + gradient
        return weights - moments, jax.device_put(moments, there)

    cut = {"in_shardings": (here, there, here), "out_shardings": (here, there)}
    matrix = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    return jax.jit(step, donate_argnums=(0, 1), **cut), matrix, matrix, matrix

def in_default_place(devices):
    # JAX takes only devices of its own type here.
    with jax.default_device(devices[0]):
        return offloaded(devices)
"""
QUICK = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
"""machine code is not what these tests look at, and takes most of the time"""


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that the tests share, and nobody else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(session_cache))
    for name in ("XLA_FLAGS", "STEP_WIDTH"):
        monkeypatch.delenv(name, raising=False)
    return session_cache / "slipstream" / "compile"


@pytest.fixture(scope="session")
def step_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("target")
    (folder / "step.py").write_text(STEP)
    (folder / "sizes.py").write_text("WIDTH = 512\n")
    yield folder


@pytest.fixture
def step(step_folder: Path) -> str:
    """`step.py`, which `:build` and others can be asked of."""
    return str(step_folder / "step.py")


@pytest.fixture
def quick() -> dict[str, object]:
    return dict(QUICK)

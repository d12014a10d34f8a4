"""A tiny sharded step, a cache of its own, and settings that compile in a moment."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

QUICK = "--xla_backend_optimization_level=0 --xla_gpu_enable_triton_gemm=false"
STEP = """
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

def build(devices, layers=2, width=256):
    mesh = Mesh(np.array(devices), ("data",))
    cut = lambda *spec: NamedSharding(mesh, P(*spec))

    def block(hidden, weights):
        return jnp.tanh(hidden @ weights["up"]) @ weights["down"], None

    def loss(params, batch):
        hidden, _ = jax.lax.scan(block, batch, params)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    def step(params, batch):
        gradients = jax.grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 0.01 * g, params, gradients)

    weights = {"up": (layers, width, 2 * width), "down": (layers, 2 * width, width)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16, sharding=cut(None, "data"))
              for k, s in weights.items()}
    batch = jax.ShapeDtypeStruct((8 * len(devices), width), jnp.bfloat16, sharding=cut("data"))
    shardings = jax.tree.map(lambda leaf: leaf.sharding, params)
    jitted = jax.jit(step, in_shardings=(shardings, cut("data")), out_shardings=shardings,
                     donate_argnums=0)
    return jitted, params, batch
"""


@pytest.fixture(scope="session")
def quick() -> str:
    """Machine code is not what these tests look at, and takes most of the time."""
    return QUICK


@pytest.fixture(scope="session")
def session_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(session_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that the tests share, and nobody else."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(session_cache))
    monkeypatch.setenv("XLA_FLAGS", QUICK)
    return session_cache


@pytest.fixture(scope="session")
def step_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    file = tmp_path_factory.mktemp("target") / "step.py"
    file.write_text(STEP)
    yield str(file)


@pytest.fixture
def target(step_file: str) -> str:
    return f"{step_file}:build"


@pytest.fixture
def environment(session_cache: Path) -> dict[str, str]:
    """For processes that a test starts."""
    return {**os.environ, "XDG_CACHE_HOME": str(session_cache)}

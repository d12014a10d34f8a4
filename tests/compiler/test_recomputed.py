"""Products that XLA recomputes only without a GPU: compiled as calls of cuBLAS instead."""

import re

import jax
import jax.numpy as jnp
import pytest

from slipstream.compiler.compile import compiler, known_config, machine_of
from slipstream.compiler.recomputed import recomputed_products

ROWS, WIDTH, WORDS = 1024, 256, 16384


def loss(x, head, label):
    """Its logits, of 64 MB, are needed early and late."""
    logits = jnp.dot(x, head, preferred_element_type=jnp.float32)
    total = jax.nn.logsumexp(logits, axis=-1)
    mixed = jnp.sin(x).astype(jnp.float32)
    for _ in range(3):
        mixed = jnp.tanh(mixed @ mixed.T) @ mixed
    return (total[:, None] * mixed).mean() - logits[jnp.arange(ROWS), label].mean()


ARGS = (
    jax.ShapeDtypeStruct((ROWS, WIDTH), jnp.bfloat16),
    jax.ShapeDtypeStruct((WIDTH, WORDS), jnp.bfloat16),
    jax.ShapeDtypeStruct((ROWS,), jnp.int32),
)


@pytest.fixture(scope="module")
def session():
    """On a GPU whose memory is too small for the logits."""
    machine = machine_of("H200")
    small = re.sub(
        r"device_memory_size: \d+", "device_memory_size: 100000000", known_config(machine)
    )
    step = jax.jit(jax.grad(loss, argnums=(0, 1)))
    with compiler(step, ARGS, on=machine, target_config=small, program_only=True) as session:
        yield session


def test_products_that_would_be_recomputed_are_calls_of_cublas(session):
    found = session.compile()
    assert recomputed_products(found.program) == []
    message = next(one for one in found.logged if one.code == "recomputed-products")
    assert "--xla_gpu_enable_triton_gemm=false" in message.text


def test_who_asks_for_triton_gets_it(session):
    found = session.compile("--xla_gpu_enable_triton_gemm=true")
    assert recomputed_products(found.program) != []
    assert all(one.code != "recomputed-products" for one in found.logged)

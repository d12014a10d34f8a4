"""A small step for TPUs, which compiles in seconds: four layers with remat, FSDP in each slice.

slipstream tune benchmarks/tpu_step.py:build --on v5p-8 --trials 32
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, INNER, TOKENS = 4, 2048, 8192, 8192


def build(devices):
    """The jitted step and its abstract arguments."""
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    mesh = Mesh(np.array(devices).reshape(slices, -1), ("data", "fsdp"))

    def array(shape, dtype, *spec):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def layer(hidden, weights):
        cast = {name: weight.astype(hidden.dtype) for name, weight in weights.items()}
        return hidden + jax.nn.gelu(hidden @ cast["up"]) @ cast["down"], None

    def loss(params, hidden):
        hidden, _ = jax.lax.scan(jax.checkpoint(layer), hidden, params)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    def step(params, hidden):
        grads = jax.grad(loss)(params, hidden)
        return jax.tree.map(lambda weight, grad: weight - 1e-3 * grad, params, grads)

    params = {
        "up": array((LAYERS, WIDTH, INNER), jnp.float32, None, "fsdp"),
        "down": array((LAYERS, INNER, WIDTH), jnp.float32, None, None, "fsdp"),
    }
    hidden = array((len(devices) * TOKENS, WIDTH), jnp.bfloat16, ("data", "fsdp"))
    return jax.jit(step, donate_argnums=0), (params, hidden)

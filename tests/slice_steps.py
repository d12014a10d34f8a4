"""Steps of two slices: one without a trouble, and one for each trouble that can be planted.

slipstream predict tests/slice_steps.py:late --on 2xv5e-4 --timeline late.xplane.pb

Each chip of a slice has its own expert, so all that is sent goes between the slices: the gradient
of the step before, which has the whole step to arrive.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

WIDTH = 8192


def loss(weight, x):
    return jnp.mean(jnp.tanh(x @ weight).astype(jnp.float32))


def hidden_step(weight, momentum, before, x):
    """The gradient of the step before arrives while this one computes its own."""
    return 0.9 * momentum + lax.psum(before, "slice"), jax.grad(loss)(weight, x)


def late_step(weight, momentum, before, x):
    """The gradient is sent as soon as it exists, which is the end of the step."""
    grad = jax.grad(loss)(weight, x)
    return 0.9 * momentum + lax.psum(grad, "slice"), before


def copied_step(weight, momentum, before, x):
    """A slice keeps half of the columns; what is sent to it has to be contiguous."""
    part = lax.psum_scatter(before, "slice", scatter_dimension=1, tiled=True)
    return 0.9 * momentum + part, jax.grad(loss)(weight, x)


def split_step(weight, momentum, before, x):
    """A slice keeps half of the rows, which are contiguous: an axis of their own says so."""
    halves = before.reshape(2, WIDTH // 2, WIDTH)
    part = lax.psum_scatter(halves, "slice", scatter_dimension=0)
    return 0.9 * momentum + part, jax.grad(loss)(weight, x)


def built(step, devices, tokens, *kept):
    """The jitted step, with so many tokens for each chip, and its abstract arguments."""
    mesh = Mesh(np.array(devices).reshape(2, -1), ("slice", "chip"))
    everywhere = P(("slice", "chip"))

    def array(rows, spec):
        sharding = NamedSharding(mesh, spec)
        return jax.ShapeDtypeStruct((rows, WIDTH), jnp.bfloat16, sharding=sharding)

    specs = (P("chip"), P(*kept), everywhere, everywhere)
    stepped = jax.shard_map(step, mesh=mesh, in_specs=specs, out_specs=specs[1:3], check_vma=False)
    chips = len(devices)
    rows = (WIDTH * chips // 2, WIDTH * chips // 2, WIDTH * chips, tokens * chips)
    return jax.jit(stepped), tuple(map(array, rows, specs))


def hidden(devices):
    """No trouble."""
    return built(hidden_step, devices, 49152, "chip")


def late(devices):
    """The gradient is sent too late to hide it."""
    return built(late_step, devices, 49152, "chip")


def large(devices):
    """The gradient is too large for the network: the batch is a sixth."""
    return built(hidden_step, devices, 8192, "chip")


def copied(devices):
    """The gradient is copied before it is sent."""
    return built(copied_step, devices, 20480, "chip", "slice")


def split(devices):
    """The same share of the gradient, without a copy."""
    return built(split_step, devices, 20480, ("chip", "slice"))

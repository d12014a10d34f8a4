"""A build function with every kind of choice, and some that go wrong."""

import time
from enum import Enum
from typing import Literal

import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from slipstream import Divisor, Range


class Keep(Enum):
    ALL = "all"
    NOTHING = "nothing"


def build(
    devices,
    *,
    data: Divisor = 1,
    tensor: Divisor[1, 2] = 1,
    batch: Range[1, 4] = 1,
    keep: Keep = Keep.ALL,
    unused: bool = False,
    width: int = 256,
    goes_wrong: Literal["no", "raises", "dies", "hangs", "large"] = "no",
):
    if goes_wrong == "raises":
        raise ValueError(f"batch {batch} is not what I want")
    if goes_wrong == "dies":
        import os

        os._exit(3)
    if goes_wrong == "hangs":
        time.sleep(600)
    width = 1 << 20 if goes_wrong == "large" else width
    mesh = Mesh([[d for d in devices[i::data]] for i in range(data)], ("data", "tensor"))

    def abstract(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    def layer(hidden, weight):
        return jnp.tanh(hidden @ weight)

    if keep is Keep.NOTHING:
        layer = jax.checkpoint(layer)

    def loss(weight, tokens):
        hidden = jax.nn.one_hot(tokens, width)
        for _ in range(2):
            hidden = layer(hidden, weight)
        return jnp.mean(hidden**2)

    @jax.jit
    def step(weight, tokens):
        value, gradient = jax.value_and_grad(loss)(weight, tokens)
        return weight - 0.1 * gradient, value

    weight = abstract((width, width), None, "tensor")
    tokens = abstract((batch * data, 32), "data", dtype=jnp.int32)
    return step, weight, tokens


def nothing(devices, steps: int = 3):
    return build(devices)

"""Fully sharded data parallelism by `jax.shard_map`: gather weights, scatter their gradients."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

BATCH, WIDTH, LAYERS = 64, 128, 3
mesh = jax.make_mesh((jax.device_count(),), ("data",))


def loss_fn(shards, x, y):
    for shard in shards:
        x = jnp.tanh(x @ jax.lax.all_gather(shard, "data", tiled=True))
    return jnp.mean((x.sum(-1) - y) ** 2)


@functools.partial(jax.jit, donate_argnums=0)
@functools.partial(
    jax.shard_map, mesh=mesh, in_specs=(P("data"), P("data"), P("data")), out_specs=(P("data"), P())
)
def train_step(shards, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(shards, x, y)
    shards = jax.tree.map(lambda p, g: p - 0.01 / mesh.size * g, shards, grads)
    return shards, jax.lax.pmean(loss, "data")


def main(steps):
    rng = np.random.default_rng(0)
    sharding = NamedSharding(mesh, P("data"))
    weights = [
        rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) * WIDTH**-0.5 for _ in range(LAYERS)
    ]
    shards = jax.device_put(weights, sharding)
    print(f"{mesh.size} devices")
    for step in range(steps):
        time.sleep(0.01)  # as long as a batch takes to read
        x = rng.normal(size=(BATCH, WIDTH)).astype(np.float32)
        batch = jax.device_put((x, np.sin(x[:, 0])), sharding)
        shards, loss = train_step(shards, *batch)
        print(f"step {step} loss {float(loss)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

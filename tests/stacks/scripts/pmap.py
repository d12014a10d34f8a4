"""Data parallelism by `jax.pmap`, as older code has it: every device has its own state."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDTH = 32, 128


def loss_fn(params, x, y):
    hidden = jnp.tanh(x @ params["in"])
    return jnp.mean((jnp.tanh(hidden @ params["mid"]) @ params["out"] - y) ** 2)


@functools.partial(jax.pmap, axis_name="devices", donate_argnums=0)
def train_step(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    loss, grads = jax.lax.pmean((loss, grads), "devices")
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), loss


def main(steps):
    count = jax.local_device_count()
    rng = np.random.default_rng(0)
    params = {
        "in": rng.normal(size=(16, WIDTH)).astype(np.float32) / 4,
        "mid": rng.normal(size=(WIDTH, WIDTH)).astype(np.float32) * WIDTH**-0.5,
        "out": rng.normal(size=(WIDTH, 1)).astype(np.float32) * WIDTH**-0.5,
    }
    params = jax.tree.map(lambda leaf: np.stack([leaf] * count), params)
    print(f"{count} devices")
    for step in range(steps):
        time.sleep(0.01)  # as long as a batch takes to read
        x = rng.normal(size=(count, BATCH, 16)).astype(np.float32)
        params, loss = train_step(params, x, np.sin(x.sum(-1, keepdims=True)))
        print(f"step {step} loss {float(jax.device_get(loss)[0])!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

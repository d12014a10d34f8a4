"""Gradient and update are functions of their own, each jitted: two programs a step."""

import argparse
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDTH = 128, 256


def loss_fn(params, x, y):
    for w in params[:-1]:
        x = jax.nn.gelu(x @ w)
    return jnp.mean((x @ params[-1] - y) ** 2)


@jax.jit
def compute_gradients(params, x, y):
    return jax.value_and_grad(loss_fn)(params, x, y)


@jax.jit
def apply_update(params, moments, grads, step):
    """Adam."""
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], grads)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], grads)
    rate = 1e-3 * jnp.sqrt(1 - 0.999**step) / (1 - 0.9**step)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), params, first, second
    )
    return params, (first, second)


def main(steps):
    rng = np.random.default_rng(0)
    sizes = [32, WIDTH, WIDTH, WIDTH, 1]
    params = [
        jnp.asarray(rng.normal(size=(m, n)).astype(np.float32) * m**-0.5)
        for m, n in zip(sizes[:-1], sizes[1:], strict=True)
    ]
    zeros = jax.tree.map(jnp.zeros_like, params)
    moments = (zeros, zeros)
    for step in range(1, steps + 1):
        time.sleep(0.01)  # as long as a batch takes to read
        x = rng.normal(size=(BATCH, 32)).astype(np.float32)
        loss, grads = compute_gradients(params, x, np.sin(x[:, :1]))
        params, moments = apply_update(params, moments, grads, float(step))
        if step % 10 == 0:
            norm = np.sqrt(sum(np.square(g).sum() for g in map(np.asarray, grads)))
            print(f"step {step} loss {float(loss)!r} gradient {float(norm)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

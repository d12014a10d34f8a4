"""A classifier in plain JAX: one jitted step that donates its state, momentum by hand."""

import argparse
import functools
import json
import time

import jax
import jax.numpy as jnp
import numpy as np

BATCH, WIDTH = 256, 256


def init(key):
    sizes = [64, WIDTH, WIDTH, 10]
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        {"w": jax.random.normal(k, (m, n)) * (2 / m) ** 0.5, "b": jnp.zeros(n)}
        for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)
    ]


def loss_fn(params, images, labels):
    for layer in params[:-1]:
        images = jax.nn.relu(images @ layer["w"] + layer["b"])
    logits = images @ params[-1]["w"] + params[-1]["b"]
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1).mean()


@functools.partial(jax.jit, donate_argnums=(0, 1))
def train_step(params, momentum, images, labels):
    loss, grads = jax.value_and_grad(loss_fn)(params, images, labels)
    momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
    params = jax.tree.map(lambda p, m: p - 0.01 * m, params, momentum)
    return params, momentum, loss


def batches(seed):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(10, 64)).astype(np.float32)
    while True:
        time.sleep(0.01)  # as long as a batch takes to read
        labels = rng.integers(0, 10, BATCH)
        noise = rng.normal(size=(BATCH, 64)).astype(np.float32)
        yield centers[labels] + 2 * noise, labels


def main(steps):
    params = init(jax.random.key(0))
    momentum = jax.tree.map(jnp.zeros_like, params)
    data = batches(0)
    log = []
    for step in range(steps):
        params, momentum, loss = train_step(params, momentum, *next(data))
        if step % 10 == 0:
            log.append(float(loss))
            print(f"step {step} loss {log[-1]!r}")
    with open("losses.json", "w") as file:
        json.dump(log, file)
    np.savez("params.npz", *jax.tree.leaves(params))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

"""Periodic evaluation: on more data than a training batch, and once before training starts."""

import argparse
import csv
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

EVERY, BATCH, WIDTH = 50, 128, 256


def forward(params, x):
    for w in params[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ params[-1]


def loss_fn(params, x, y):
    return jnp.mean((forward(params, x) - y) ** 2)


@jax.jit
def eval_step(params, x, y):
    return loss_fn(params, x, y), jnp.abs(forward(params, x) - y).max()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, x, y):
    loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
    return jax.tree.map(lambda p, g: p - 0.02 * g, params, grads), loss


def make(rng, size):
    time.sleep(0.01)  # as long as a batch takes to read
    x = rng.normal(size=(size, 16)).astype(np.float32)
    return x, np.tanh(x[:, :1] * x[:, 1:2])


def evaluate(params, held_out):
    results = [eval_step(params, x, y) for x, y in held_out]
    return float(np.mean([loss for loss, _ in results])), float(max(worst for _, worst in results))


def main(steps):
    rng = np.random.default_rng(0)
    sizes = [16, WIDTH, WIDTH, 1]
    params = [
        rng.normal(size=(m, n)).astype(np.float32) * m**-0.5
        for m, n in zip(sizes[:-1], sizes[1:], strict=True)
    ]
    held_out = [make(rng, 8 * BATCH) for _ in range(5)]
    with open("evaluation.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["step", *evaluate(params, held_out)])
        for step in range(1, steps + 1):
            params, loss = train_step(params, *make(rng, BATCH))
            if step % EVERY == 0:
                table.writerow([step, *evaluate(params, held_out)])
            if step % 10 == 0:
                print(f"step {step} loss {float(loss)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

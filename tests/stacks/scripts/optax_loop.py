"""A plain loop with Optax: a schedule, clipping, masked weight decay, averaged weights."""

import argparse

import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, WIDTH = 128, 256


def init(rng):
    sizes = [16, WIDTH, WIDTH, 1]
    return [
        {"w": rng.normal(size=(m, n)).astype(np.float32) * m**-0.5, "b": np.zeros(n, np.float32)}
        for m, n in zip(sizes[:-1], sizes[1:], strict=True)
    ]


def loss_fn(params, x, y):
    for layer in params[:-1]:
        x = jax.nn.silu(x @ layer["w"] + layer["b"])
    return optax.huber_loss(x @ params[-1]["w"] + params[-1]["b"], y).mean()


def main(steps):
    rng = np.random.default_rng(0)
    params = init(rng)
    schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-3, steps // 10, steps)
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(
            schedule, weight_decay=1e-4, mask=lambda tree: jax.tree.map(lambda p: p.ndim > 1, tree)
        ),
    )

    @jax.jit
    def step(params, average, state, x, y):
        loss, grads = jax.value_and_grad(loss_fn)(params, x, y)
        updates, state = optimizer.update(grads, state, params)
        params = optax.apply_updates(params, updates)
        return params, optax.incremental_update(params, average, 0.01), state, loss

    state, average = jax.jit(optimizer.init)(params), params
    for number in range(steps):
        x = rng.normal(size=(BATCH, 16)).astype(np.float32)
        y = np.sin(x[:, :1]) * x[:, 1:2]
        params, average, state, loss = step(params, average, state, x, y)
        if number % 10 == 0:
            print(f"step {number} loss {float(loss)!r} rate {float(schedule(number))!r}")
    print(f"loss of the average {float(loss_fn(average, jnp.asarray(x), y))!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

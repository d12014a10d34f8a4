"""A language model whose layers are one `lax.scan`, and whose step scans over micro-batches."""

import argparse
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

MICRO, BATCH, TOKENS, WORDS, WIDTH, LAYERS = 2, 4, 32, 64, 64, 4


def init(key):
    embed, mix, up, down = jax.random.split(key, 4)
    scale = WIDTH**-0.5
    return {
        "embed": jax.random.normal(embed, (WORDS, WIDTH)),
        "layers": {
            "mix": jax.random.normal(mix, (LAYERS, TOKENS, TOKENS)) * 0.1,
            "up": jax.random.normal(up, (LAYERS, WIDTH, 4 * WIDTH)) * scale,
            "down": jax.random.normal(down, (LAYERS, 4 * WIDTH, WIDTH)) * scale / 2,
        },
    }


def model(params, tokens):
    causal = jnp.tril(jnp.ones((TOKENS, TOKENS)))

    @jax.checkpoint
    def layer(x, weights):
        x = x + jnp.einsum("st,btd->bsd", weights["mix"] * causal, x)
        x = x + jax.nn.gelu(x @ weights["up"]) @ weights["down"]
        return x / (1e-6 + jnp.linalg.norm(x, axis=-1, keepdims=True)) * WIDTH**0.5, None

    x, _ = jax.lax.scan(layer, params["embed"][tokens], params["layers"])
    return x @ params["embed"].T


def loss_fn(params, tokens):
    logits = jax.nn.log_softmax(model(params, tokens[:, :-1]))
    return -jnp.take_along_axis(logits, tokens[:, 1:, None], axis=-1).mean()


@functools.partial(jax.jit, donate_argnums=0)
def train_step(params, micro_batches):
    def accumulate(grads, tokens):
        loss, more = jax.value_and_grad(loss_fn)(params, tokens)
        return jax.tree.map(jnp.add, grads, more), loss

    grads, losses = jax.lax.scan(accumulate, jax.tree.map(jnp.zeros_like, params), micro_batches)
    params = jax.tree.map(lambda p, g: p - 0.05 / MICRO * g, params, grads)
    return params, losses.mean()


def main(steps):
    rng = np.random.default_rng(0)
    params = init(jax.random.key(0))
    for step in range(steps):
        time.sleep(0.01)  # as long as a batch takes to read
        start = rng.integers(0, WORDS, (MICRO, BATCH, 1))
        micro_batches = (start + np.arange(TOKENS + 1) * rng.integers(1, 4)) % WORDS
        params, loss = train_step(params, micro_batches)
        print(f"step {step} loss {float(loss)!r}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

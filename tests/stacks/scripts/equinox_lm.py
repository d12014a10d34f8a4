"""A small transformer in Equinox: `eqx.filter_jit`, modules as trees, leaves saved at the end."""

import argparse

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

BATCH, TOKENS, WORDS, WIDTH, HEADS, BLOCKS = 8, 32, 64, 64, 4, 2


class Block(eqx.Module):
    attention: eqx.nn.MultiheadAttention
    mlp: eqx.nn.MLP
    norms: list[eqx.nn.LayerNorm]

    def __init__(self, key):
        first, second = jax.random.split(key)
        self.attention = eqx.nn.MultiheadAttention(HEADS, WIDTH, key=first)
        self.mlp = eqx.nn.MLP(WIDTH, WIDTH, 4 * WIDTH, 1, jax.nn.gelu, key=second)
        self.norms = [eqx.nn.LayerNorm(WIDTH) for _ in range(2)]

    def __call__(self, x, mask):
        y = jax.vmap(self.norms[0])(x)
        x = x + self.attention(y, y, y, mask)
        return x + jax.vmap(self.mlp)(jax.vmap(self.norms[1])(x))


class Model(eqx.Module):
    embed: eqx.nn.Embedding
    blocks: list[Block]
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, BLOCKS + 2)
        self.embed = eqx.nn.Embedding(WORDS, WIDTH, key=keys[0])
        self.blocks = [Block(k) for k in keys[2:]]
        self.head = eqx.nn.Linear(WIDTH, WORDS, key=keys[1])

    def __call__(self, tokens):
        mask = jnp.tril(jnp.ones((len(tokens), len(tokens)), bool))
        x = jax.vmap(self.embed)(tokens)
        for block in self.blocks:
            x = block(x, mask)
        return jax.vmap(self.head)(x)


def loss_fn(model, tokens):
    logits = jax.vmap(model)(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def main(steps):
    rng = np.random.default_rng(0)
    model = Model(jax.random.key(0))
    optimizer = optax.adam(1e-3)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))

    @eqx.filter_jit(donate="all")
    def make_step(model, state, tokens):
        loss, grads = eqx.filter_value_and_grad(loss_fn)(model, tokens)
        updates, state = optimizer.update(grads, state, eqx.filter(model, eqx.is_inexact_array))
        return eqx.apply_updates(model, updates), state, loss

    for step in range(steps):
        start = rng.integers(0, WORDS, (BATCH, 1))
        tokens = (start + np.arange(TOKENS + 1) * rng.integers(1, 4, (BATCH, 1))) % WORDS
        model, state, loss = make_step(model, state, jnp.asarray(tokens))
        if step % 10 == 0:
            print(f"step {step} loss {loss.item()!r}")
    eqx.tree_serialise_leaves("model.eqx", model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, required=True)
    main(parser.parse_args().steps)

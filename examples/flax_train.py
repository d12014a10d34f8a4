"""A small language model in Flax, trained with Optax: a script as people write it.

    python examples/flax_train.py --steps 200
    slipstream run -- python examples/flax_train.py --steps 400

It knows nothing of Slipstream. Sizes are small on a CPU and fill a GPU for some milliseconds a step
there; every size is an option.
"""

from __future__ import annotations

import argparse
import time

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax.training import train_state


class Block(nn.Module):
    heads: int
    dtype: jnp.dtype

    @nn.compact
    def __call__(self, hidden, mask):
        width = hidden.shape[-1]
        normal = nn.LayerNorm(dtype=self.dtype)(hidden)
        hidden += nn.SelfAttention(num_heads=self.heads, dtype=self.dtype)(normal, mask)
        normal = nn.LayerNorm(dtype=self.dtype)(hidden)
        inner = nn.gelu(nn.Dense(4 * width, dtype=self.dtype)(normal))
        return hidden + nn.Dense(width, dtype=self.dtype)(inner)


class Model(nn.Module):
    words: int
    width: int
    heads: int
    layers: int
    dtype: jnp.dtype = jnp.bfloat16

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(self.words, self.width, dtype=self.dtype)
        place = nn.Embed(tokens.shape[-1], self.width, dtype=self.dtype)
        hidden = embed(tokens) + place(jnp.arange(tokens.shape[-1]))
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            hidden = Block(self.heads, self.dtype)(hidden, mask)
        hidden = nn.LayerNorm(dtype=self.dtype)(hidden)
        return embed.attend(hidden).astype(jnp.float32)


@jax.jit
def train_step(state, tokens):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, tokens[:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:])
        return losses.mean()

    loss, gradients = jax.value_and_grad(loss_of)(state.params)
    return state.apply_gradients(grads=gradients), loss


def batches(seed, size, tokens, words):
    """Sequences with something to learn: each word is the one before it plus a step of its own."""
    key = jax.random.key(seed)
    while True:
        key, start_key, step_key = jax.random.split(key, 3)
        start = jax.random.randint(start_key, (size, 1), 0, words)
        step = jax.random.randint(step_key, (size, 1), 1, 4)
        yield (start + step * jnp.arange(tokens + 1)) % words


def options():
    small = jax.default_backend() == "cpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4 if small else 16)
    parser.add_argument("--tokens", type=int, default=64 if small else 1024)
    parser.add_argument("--words", type=int, default=128 if small else 32768)
    parser.add_argument("--width", type=int, default=64 if small else 1024)
    parser.add_argument("--heads", type=int, default=4 if small else 16)
    parser.add_argument("--layers", type=int, default=2 if small else 12)
    parser.add_argument("--rate", type=float, default=3e-3 if small else 3e-4)
    parser.add_argument("--log-every", type=int, default=10)
    return parser.parse_args()


def main():
    given = options()
    model = Model(given.words, given.width, given.heads, given.layers)
    data = batches(1, given.batch, given.tokens, given.words)
    params = jax.jit(model.init)(jax.random.key(0), next(data)[:, :-1])["params"]
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"{jax.devices()[0].device_kind}: {count / 1e6:.1f} million parameters")
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(given.rate))
    state = train_state.TrainState.create(apply_fn=model.apply, params=params, tx=optimizer)
    began = time.perf_counter()
    for number in range(1, given.steps + 1):
        state, loss = train_step(state, next(data))
        if number % given.log_every == 0 or number == given.steps:
            seconds, began = time.perf_counter() - began, time.perf_counter()
            print(f"step {number:5}   loss {float(loss):.6f}   {seconds:.2f} s", flush=True)


if __name__ == "__main__":
    main()

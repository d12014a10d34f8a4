"""The demo: train a small model with JAX, record three steps, and see where they went.

Runs anywhere; without a GPU it records XLA's CPU backend.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp

LAYERS, WIDTH, BATCH, TOKENS, WORDS = 4, 256, 8, 128, 512


def block(hidden, weights):
    with jax.named_scope("attention"):
        query, key, value = jnp.split(hidden @ weights["qkv"], 3, -1)
        scores = jax.nn.softmax(query @ key.swapaxes(-1, -2) / WIDTH**0.5)
        hidden = hidden + scores @ value
    with jax.named_scope("mlp"):
        return hidden + jax.nn.gelu(hidden @ weights["up"]) @ weights["down"], None


def loss(params, tokens):
    hidden = params["embedding"][tokens[:, :-1]]
    hidden, _ = jax.lax.scan(jax.checkpoint(block), hidden, params["blocks"])
    logits = jax.nn.log_softmax(hidden @ params["embedding"].T)
    return -jnp.mean(jnp.take_along_axis(logits, tokens[:, 1:, None], -1))


@jax.jit
def train_step(params, tokens):
    value, gradients = jax.value_and_grad(loss)(params, tokens)
    with jax.named_scope("optimizer"):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, gradients), value


def initial_params(key):
    shapes = {"qkv": (WIDTH, 3 * WIDTH), "up": (WIDTH, 4 * WIDTH), "down": (4 * WIDTH, WIDTH)}
    blocks = {n: 0.02 * jax.random.normal(key, (LAYERS, *s)) for n, s in shapes.items()}
    return {"embedding": 0.02 * jax.random.normal(key, (WORDS, WIDTH)), "blocks": blocks}


def record(folder: str) -> None:
    """Three annotated training steps under JAX's profiler, after two to warm up."""
    key = jax.random.key(0)
    params = initial_params(key)
    tokens = jax.random.randint(key, (BATCH, TOKENS + 1), 0, WORDS)
    for _ in range(2):
        params, value = train_step(params, tokens)
    jax.block_until_ready(params)
    with jax.profiler.trace(folder):
        for step in range(3):
            with jax.profiler.StepTraceAnnotation("train", step_num=step):
                params, value = train_step(params, tokens)
                jax.block_until_ready(params)
    print(f"recorded 3 training steps on {jax.devices()[0].device_kind}, loss {value:.3f}\n")


def show(*arguments: str) -> None:
    """Run a command as a person would, and show what was typed."""
    print("$ slipstream", *arguments[:1], "run/", *arguments[2:], flush=True)
    subprocess.run([sys.executable, "-m", "slipstream", *arguments], check=True)
    print(flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        record(folder)
        show("summary", folder)
        show("ops", folder, "--by", "scope", "--top", "6")


if __name__ == "__main__":
    main()

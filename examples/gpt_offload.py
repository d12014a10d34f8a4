"""A GPT whose residual stream waits in host memory between forward and backward.

Wide models and long sequences run out of device memory for activations. Host memory is large, and
the copies can hide behind compute, if the scheduler places them well and CUDA graphs let them.

`python examples/gpt_offload.py` trains for a few steps on the device that is here; `build` is what
`slipstream predict examples/gpt_offload.py:build --on H200` wants. GPT_STEPS says how many steps,
GPT_BATCH how many sequences.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name

RATE = 1e-3


@dataclass(frozen=True)
class Model:
    layers: int = 8
    width: int = 4096
    heads: int = 32
    words: int = 16384
    tokens: int = 1024
    batch: int = 16

    @property
    def shapes(self):
        layers, width = self.layers, self.width
        return {
            "embedding": (self.words, width),
            "qkv": (layers, width, 3 * width),
            "out": (layers, width, width),
            "up": (layers, width, 4 * width),
            "down": (layers, 4 * width, width),
            "norm1": (layers, width),
            "norm2": (layers, width),
        }


TINY = Model(layers=3, width=64, heads=4, words=256, tokens=32, batch=2)


def normalised(hidden, scale):
    wide = hidden.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide * wide, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(jnp.bfloat16)


def block(model, hidden, weights):
    small = {name: weight.astype(jnp.bfloat16) for name, weight in weights.items()}
    inner = normalised(hidden, weights["norm1"]) @ small["qkv"]
    heads = (*inner.shape[:2], model.heads, -1)
    query, key, value = (part.reshape(heads) for part in jnp.split(inner, 3, -1))
    mixed = jax.nn.dot_product_attention(query, key, value, is_causal=True)
    hidden = hidden + mixed.reshape(hidden.shape) @ small["out"]
    inner = normalised(hidden, weights["norm2"])
    return hidden + jax.nn.gelu(inner @ small["up"]) @ small["down"]


def offloaded(model, hidden, layers):
    """All layers; what enters each goes to the host, and comes back for its gradient."""
    policy = jax.checkpoint_policies.save_and_offload_only_these_names(
        names_which_can_be_saved=[],
        names_which_can_be_offloaded=["hidden"],
        offload_src="device",
        offload_dst="pinned_host",
    )

    def layer(hidden, weights):
        return block(model, checkpoint_name(hidden, "hidden"), weights), None

    unroll = os.environ.get("GPT_UNROLL") == "1"
    return jax.lax.scan(jax.checkpoint(layer, policy=policy), hidden, layers, unroll=unroll)[0]


def loss_of(model, params, tokens):
    embedding = params["embedding"].astype(jnp.bfloat16)
    layers = {name: weight for name, weight in params.items() if name != "embedding"}
    hidden = offloaded(model, embedding[tokens[:, :-1]], layers)
    logits = (hidden @ embedding.T).astype(jnp.float32)
    right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
    return jnp.mean(jax.nn.logsumexp(logits, -1) - right)


def build(devices):
    """The jitted step and its abstract arguments, for one device."""
    model = TINY if devices[0].platform == "cpu" else Model()
    if sequences := os.environ.get("GPT_BATCH"):
        model = replace(model, batch=int(sequences))
    place = jax.sharding.SingleDeviceSharding(devices[0])

    def step(params, tokens):
        loss, gradients = jax.value_and_grad(lambda p: loss_of(model, p, tokens))(params)
        return jax.tree.map(lambda p, g: p - RATE * g, params, gradients), loss

    params = {
        name: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=place)
        for name, shape in model.shapes.items()
    }
    shape = (model.batch, model.tokens + 1)
    return (
        jax.jit(step, donate_argnums=0),
        params,
        jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place),
    )


def main() -> None:
    step, abstract, tokens = build(jax.devices())
    keys = iter(jax.random.split(jax.random.key(0), len(abstract)))
    params = {
        name: 0.02 * jax.random.normal(next(keys), leaf.shape) for name, leaf in abstract.items()
    }
    params = jax.device_put(params, tokens.sharding)
    batch = jax.random.randint(jax.random.key(1), tokens.shape, 0, 256)
    batch = jax.device_put(batch, tokens.sharding)
    for number in range(int(os.environ.get("GPT_STEPS", "20"))):
        began = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            params, loss = step(params, batch)
            loss = float(loss)
        print(f"step {number:3}   loss {loss:7.4f}   {1e3 * (time.perf_counter() - began):8.1f} ms")


if __name__ == "__main__":
    main()

"""MaxText's decoder models of July 2024, in plain JAX, for `benchmarks/tpu.py`.

Sizes are those of MaxText's `base.yml` (AI-Hypercomputer/maxtext) times `global_parameter_scale`:
bf16 on f32 weights, Adam, layers in a scan, splash attention, the embedding as a product (iota),
logits in f32.  The mesh has slices × FSDP × tensor devices, in the order of the torus.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TOKENS, WORDS, HEAD = 2048, 32000, 128
BATCH = ("data", "fsdp")


@dataclass(frozen=True)
class Model:
    width: int
    heads: int
    inner: int
    layers: int

    @property
    def layer_weights(self) -> int:
        return self.width * (4 * self.heads * HEAD + 3 * self.inner)

    def step_flops(self, batch: int) -> float:
        """As MaxText counts a device's step: without recomputation, attention without its mask."""
        tokens = batch * TOKENS
        products = 2 * tokens * (self.layers * self.layer_weights + self.width * WORDS)
        attention = 4 * tokens * TOKENS * self.heads * HEAD * self.layers
        return 3.0 * (products + attention)


def scaled(scale: int) -> Model:
    """The model of `global_parameter_scale`, about as many billions of weights."""
    thirds, rest = divmod(round(math.log2(scale)), 3)
    wide = thirds + (rest > 0)
    return Model(
        width=2048 << (thirds + (rest > 1)),
        heads=16 << wide,
        inner=7168 << wide,
        layers=16 << thirds,
    )


def mesh_of(devices, tensor: int) -> Mesh:
    slices = len({getattr(device, "slice_index", 0) for device in devices})
    each = len(devices) // slices
    if slices > 1:
        grid = mesh_utils.create_hybrid_device_mesh(
            (1, each // tensor, tensor), (slices, 1, 1), devices
        )
    else:
        grid = mesh_utils.create_device_mesh((1, each // tensor, tensor), devices)
    return Mesh(np.asarray(grid), ("data", "fsdp", "tensor"))


def table(model: Model):
    """The shape of each weight, and the mesh axes that cut it."""
    heads = model.heads * HEAD
    count = model.layers
    return {
        "embedding": ((WORDS, model.width), ("tensor", "fsdp")),
        "head": ((model.width, WORDS), ("fsdp", "tensor")),
        "norm": ((model.width,), (None,)),
        "layers": {
            "query": ((count, model.width, heads), (None, "fsdp", "tensor")),
            "key": ((count, model.width, heads), (None, "fsdp", "tensor")),
            "value": ((count, model.width, heads), (None, "fsdp", "tensor")),
            "out": ((count, heads, model.width), (None, "tensor", "fsdp")),
            "gate": ((count, model.width, model.inner), (None, "fsdp", "tensor")),
            "up": ((count, model.width, model.inner), (None, "fsdp", "tensor")),
            "down": ((count, model.inner, model.width), (None, "tensor", "fsdp")),
            "norm_attention": ((count, model.width), (None, None)),
            "norm_mlp": ((count, model.width), (None, None)),
        },
    }


def normalised(hidden, scale):
    wide = hidden.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(hidden.dtype)


def rotated(heads):
    tokens, size = heads.shape[1], heads.shape[-1]
    speeds = 10_000.0 ** (-jnp.arange(0, size, 2) / size)
    angles = (jnp.arange(tokens)[:, None] * speeds)[:, None]
    left, right = jnp.split(heads.astype(jnp.float32), 2, -1)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    turned = (left * cosine - right * sine, right * cosine + left * sine)
    return jnp.concatenate(turned, -1).astype(heads.dtype)


def attend(mesh, query, key, value):
    """Splash attention, which skips what the causal mask hides."""
    spec = P(BATCH, "tensor", None, None)

    def mix(query, key, value):
        heads = query.shape[1]
        mask = masks.MultiHeadMask([masks.CausalMask((TOKENS, TOKENS))] * heads)
        sizes = splash.BlockSizes(
            block_q=512, block_kv=512, block_kv_compute=512, block_q_dkv=512, block_kv_dkv=512,
            block_kv_dkv_compute=512, block_q_dq=512, block_kv_dq=512,
        )  # fmt: skip
        kernel = splash.make_splash_mha(mask, head_shards=1, q_seq_shards=1, block_sizes=sizes)
        return jax.vmap(kernel)(query * HEAD**-0.5, key, value)

    mixed = jax.shard_map(mix, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)
    turned = (jnp.swapaxes(one, 1, 2) for one in (query, key, value))
    return jnp.swapaxes(mixed(*turned), 1, 2)


def layer(mesh, model, keep, hidden, weights):
    cast = {name: weight.astype(hidden.dtype) for name, weight in weights.items()}
    normed = normalised(hidden, weights["norm_attention"])
    batch, tokens, _ = hidden.shape
    query, key, value = (
        (normed @ cast[name]).reshape(batch, tokens, model.heads, HEAD)
        for name in ("query", "key", "value")
    )
    mixed = attend(mesh, rotated(query), rotated(key), value)
    hidden = keep(hidden + mixed.reshape(batch, tokens, -1) @ cast["out"])
    normed = normalised(hidden, weights["norm_mlp"])
    gated = jax.nn.silu(normed @ cast["gate"]) * (normed @ cast["up"])
    return keep(hidden + gated @ cast["down"])


def build(devices):
    """The jitted step and its abstract arguments; TPU_SCALE, TPU_BATCH, TPU_TENSOR, TPU_REMAT."""
    setting = os.environ.get
    scale, batch, tensor = (
        int(setting(f"TPU_{name}", usual))
        for name, usual in (("SCALE", "16"), ("BATCH", "6"), ("TENSOR", "1"))
    )
    model, mesh = scaled(scale), mesh_of(devices, tensor)

    def place(*spec):
        return NamedSharding(mesh, P(*spec))

    def keep(array):
        return jax.lax.with_sharding_constraint(array, place(BATCH, None, "tensor"))

    def run(hidden, weights):
        return layer(mesh, model, keep, hidden, weights), None

    saved = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    again = jax.checkpoint(run, policy=saved if setting("TPU_REMAT") == "minimal" else None)

    def loss(params, tokens):
        embedding, head = (params[name].astype(jnp.bfloat16) for name in ("embedding", "head"))
        hidden = keep(jax.nn.one_hot(tokens, WORDS, dtype=jnp.bfloat16) @ embedding)
        hidden, _ = jax.lax.scan(again, hidden, params["layers"])
        hidden = normalised(hidden, params["norm"])
        logits = jnp.einsum("btd,dv->btv", hidden, head, preferred_element_type=jnp.float32)
        right = jnp.sum(jax.nn.one_hot(tokens, WORDS) * jax.nn.log_softmax(logits), -1)
        return -jnp.mean(right)

    def adam(weight, first, second):
        return weight - 3e-5 * (first / (jnp.sqrt(second) + 1e-8) + 0.1 * weight)

    def step(state, tokens):
        params, first, second = state
        value, grads = jax.value_and_grad(loss)(params, tokens)
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, grads)
        second = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, second, grads)
        return (jax.tree.map(adam, params, first, second), first, second), value

    params = jax.tree.map(
        lambda row: jax.ShapeDtypeStruct(row[0], jnp.float32, sharding=place(*row[1])),
        table(model),
        is_leaf=lambda one: isinstance(one, tuple),
    )
    rows = batch * len(devices)
    tokens = jax.ShapeDtypeStruct((rows, TOKENS), jnp.int32, sharding=place(BATCH, None))
    return jax.jit(step, donate_argnums=0), ((params, params, params), tokens)

"""MaxText's decoder models, in plain JAX, for `benchmarks/tpu.py`.

Sizes are those of MaxText's `base.yml` (AI-Hypercomputer/maxtext) times `global_parameter_scale`:
bf16 on f32 weights, Adam, layers in a scan, the embedding as a product (iota), logits in f32.  The
mesh has slices × FSDP × tensor devices, in the order of the torus.

There are two: that of December 2023, when the tables of v5e and v5p were published (wide heads, an
MLP with relu beside the attention, one table for words and logits), and that of July 2024.
"""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import mesh_utils
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as splash
from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

TOKENS = 2048
BATCH = ("data", "fsdp")


@dataclass(frozen=True)
class Model:
    width: int
    heads: int
    inner: int
    layers: int
    head: int
    words: int
    is_first: bool
    """that of December 2023: MLP beside attention, no gate, norms of queries, keys and values"""

    @property
    def layer_weights(self) -> int:
        products = 2 if self.is_first else 3
        return self.width * (4 * self.heads * self.head + products * self.inner)

    def step_flops(self, batch: int) -> float:
        """As MaxText counts a device's step: without recomputation, attention without its mask."""
        tokens = batch * TOKENS
        products = 2 * tokens * (self.layers * self.layer_weights + self.width * self.words)
        attention = 4 * tokens * TOKENS * self.heads * self.head * self.layers
        return 3.0 * (products + attention)


BASES = {
    "2023": Model(2560, 8, 8192, 16, 256, 32768, is_first=True),
    "2024": Model(2048, 16, 7168, 16, 128, 32000, is_first=False),
}
"""`base.yml` of December 2023 and of July 2024"""


def scaled(scale: int, base: str = "2024") -> Model:
    """The model of `global_parameter_scale`, about as many billions of weights."""
    thirds, rest = divmod(round(math.log2(scale)), 3)
    wide = thirds + (rest > 0)
    one = BASES[base]
    return replace(
        one,
        width=one.width << (thirds + (rest > 1)),
        heads=one.heads << wide,
        inner=one.inner << wide,
        layers=one.layers << thirds,
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
    heads = model.heads * model.head
    count = model.layers

    def norm(size, cut=None):
        return (count, size), (None, cut)

    layers = {
        "query": ((count, model.width, heads), (None, "fsdp", "tensor")),
        "key": ((count, model.width, heads), (None, "fsdp", "tensor")),
        "value": ((count, model.width, heads), (None, "fsdp", "tensor")),
        "out": ((count, heads, model.width), (None, "tensor", "fsdp")),
        "up": ((count, model.width, model.inner), (None, "fsdp", "tensor")),
        "down": ((count, model.inner, model.width), (None, "tensor", "fsdp")),
        "norm_attention": norm(model.width),
    }
    found = {
        "embedding": ((model.words, model.width), ("tensor", "fsdp")),
        "norm": ((model.width,), (None,)),
        "layers": layers,
    }
    if model.is_first:
        layers |= {f"norm_{name}": norm(model.head) for name in ("query", "key", "value")}
    else:
        found["head"] = ((model.width, model.words), ("fsdp", "tensor"))
        layers["gate"] = ((count, model.width, model.inner), (None, "fsdp", "tensor"))
        layers["norm_mlp"] = norm(model.width)
    return found


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
        return jax.vmap(kernel)(query * query.shape[-1] ** -0.5, key, value)

    mixed = jax.shard_map(mix, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)
    turned = (jnp.swapaxes(one, 1, 2) for one in (query, key, value))
    return jnp.swapaxes(mixed(*turned), 1, 2)


def paired(heads):
    """Rotary embedding of neighbours, as in December 2023."""
    tokens, size = heads.shape[1], heads.shape[-1]
    speeds = 10_000.0 ** (-jnp.arange(0, size, 2) / size)
    angles = (jnp.arange(tokens)[:, None] * speeds)[:, None]
    pairs = heads.astype(jnp.float32).reshape(*heads.shape[:-1], -1, 2)
    left, right = pairs[..., 0], pairs[..., 1]
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    turned = (left * cosine - right * sine, right * cosine + left * sine)
    return jnp.stack(turned, -1).reshape(heads.shape).astype(heads.dtype)


def attend_at_once(query, key, value):
    """Attention whose scores are an array."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key)
    seen = jnp.tril(jnp.ones((TOKENS, TOKENS), bool))
    scores += jnp.where(seen, 0.0, -1e10).astype(scores.dtype)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)


def layer_of_2023(attention, model, keep, hidden, weights):
    """Attention and MLP side by side, on one norm."""
    cast = {name: weight.astype(hidden.dtype) for name, weight in weights.items()}
    normed = keep(normalised(hidden, weights["norm_attention"]))
    batch, tokens, _ = hidden.shape
    query, key, value = (
        (normed @ cast[name]).reshape(batch, tokens, model.heads, model.head)
        for name in ("query", "key", "value")
    )
    mixed = attention(
        normalised(paired(query), weights["norm_query"]),
        normalised(paired(key), weights["norm_key"]),
        normalised(value, weights["norm_value"]),
    )
    attended = keep(mixed.reshape(batch, tokens, -1) @ cast["out"])
    inner = jax.nn.relu(normed @ cast["up"])
    return keep(keep(inner @ cast["down"]) + attended + hidden)


def layer_of_2024(attention, model, keep, hidden, weights):
    cast = {name: weight.astype(hidden.dtype) for name, weight in weights.items()}
    normed = normalised(hidden, weights["norm_attention"])
    batch, tokens, _ = hidden.shape
    query, key, value = (
        (normed @ cast[name]).reshape(batch, tokens, model.heads, model.head)
        for name in ("query", "key", "value")
    )
    mixed = attention(rotated(query), rotated(key), value)
    hidden = keep(hidden + mixed.reshape(batch, tokens, -1) @ cast["out"])
    normed = normalised(hidden, weights["norm_mlp"])
    gated = jax.nn.silu(normed @ cast["gate"]) * (normed @ cast["up"])
    return keep(hidden + gated @ cast["down"])


def clipped(grads):
    """Gradients with a norm of 1 at most."""
    norm = jnp.sqrt(sum(jnp.sum(grad**2) for grad in jax.tree.leaves(grads)))
    return jax.tree.map(lambda grad: grad * jnp.minimum(1.0, 1.0 / norm), grads)


def build(devices):
    """The jitted step and its abstract arguments.

    TPU_SCALE, TPU_BATCH, TPU_TENSOR, TPU_REMAT (full, minimal), TPU_ATTENTION (flash, plain),
    TPU_BASE (2023, 2024).
    """
    setting = os.environ.get
    scale, batch, tensor = (
        int(setting(f"TPU_{name}", usual))
        for name, usual in (("SCALE", "16"), ("BATCH", "6"), ("TENSOR", "1"))
    )
    model, mesh = scaled(scale, setting("TPU_BASE", "2024")), mesh_of(devices, tensor)
    is_plain = setting("TPU_ATTENTION") == "plain"
    attention = attend_at_once if is_plain else functools.partial(attend, mesh)
    layer = layer_of_2023 if model.is_first else layer_of_2024

    def place(*spec):
        return NamedSharding(mesh, P(*spec))

    def keep(array):
        return jax.lax.with_sharding_constraint(array, place(BATCH, None, "tensor"))

    def run(hidden, weights):
        return layer(attention, model, keep, hidden, weights), None

    saved = jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    again = jax.checkpoint(run, policy=saved if setting("TPU_REMAT") == "minimal" else None)

    def loss(params, tokens):
        words = params["embedding"]
        head = params.get("head", words.T)
        one_hot = jax.nn.one_hot(tokens, model.words, dtype=jnp.bfloat16)
        hidden = keep(one_hot @ words.astype(jnp.bfloat16))
        hidden, _ = jax.lax.scan(again, hidden, params["layers"])
        hidden = normalised(hidden, params["norm"])
        logits = jnp.einsum(
            "btd,dv->btv", hidden, head.astype(jnp.bfloat16), preferred_element_type=jnp.float32
        )
        right = jnp.sum(jax.nn.one_hot(tokens, model.words) * jax.nn.log_softmax(logits), -1)
        return -jnp.mean(right)

    def adam(weight, first, second):
        return weight - 3e-5 * (first / (jnp.sqrt(second) + 1e-8) + 0.1 * weight)

    def step(state, tokens):
        params, first, second = state
        value, grads = jax.value_and_grad(loss)(params, tokens)
        if model.is_first:
            grads = clipped(grads)
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

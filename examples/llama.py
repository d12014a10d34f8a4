"""A Llama-like model, its training step, and the choices that decide how fast it trains.

    data, fsdp, context, tensor   the mesh: ways to cut the batch, the weights, tokens and heads
    pipeline                      stages that the layers are dealt out to, also an axis of the mesh
    remat                         what the backward pass computes again
    attention                     XLA's or cuDNN's
    layers                        in a scan, or unrolled
    batch                         sequences for each of the data × fsdp groups
    microbatches                  of the pipeline; by default one for each of these sequences

`build` takes a list of devices, which need not exist, and these choices. It returns the jitted step
and its abstract arguments, which is what Slipstream compiles:

    LLAMA_SIZE=8b slipstream plan examples/llama.py:build --on 8xH200,64xH200

`python examples/llama.py` trains for a few steps on the devices that are here. LLAMA_SIZE is tiny,
1b, 8b or 70b. LLAMA_LAYERS, LLAMA_WIDTH, LLAMA_HEADS, LLAMA_KV_HEADS, LLAMA_INNER, LLAMA_WORDS and
LLAMA_TOKENS each change one size, LLAMA_STEPS the number of steps.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from slipstream import Divisor, Range

RATE, DECAY_1, DECAY_2 = 3e-4, 0.9, 0.95


@dataclass(frozen=True)
class Model:
    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    words: int
    tokens: int


SIZES = {
    "tiny": Model(2, 64, 8, 4, 128, 256, 64),
    "1b": Model(16, 2048, 32, 8, 8192, 128256, 8192),
    "8b": Model(32, 4096, 32, 8, 14336, 128256, 8192),
    "70b": Model(80, 8192, 64, 8, 28672, 128256, 8192),
}


def sized(sizes, prefix, devices):
    """The model that the environment asks for; by default tiny on a CPU, 1b elsewhere."""
    default = "tiny" if devices[0].platform == "cpu" else "1b"
    size = os.environ.get(f"{prefix}_SIZE", default)
    if size not in sizes:
        raise ValueError(f"{prefix}_SIZE is {size!r}; expected one of {', '.join(sizes)}")
    model = sizes[size]
    given = {one.name: os.environ.get(f"{prefix}_{one.name.upper()}") for one in fields(model)}
    return replace(model, **{name: int(value) for name, value in given.items() if value})


# Weights: the shape of each, and the mesh axis that cuts each dimension.


def attention_weights(model, fsdp="fsdp"):
    width, keys = model.width, model.width // model.heads * model.kv_heads
    return {
        "norm_attention": ((width,), ()),
        "query": ((width, width), (fsdp, "tensor")),
        "key": ((width, keys), (fsdp, "tensor")),
        "value": ((width, keys), (fsdp, "tensor")),
        "out": ((width, width), ("tensor", fsdp)),
    }


def mlp_weights(model):
    width, inner = model.width, model.inner
    return {
        "norm_mlp": ((width,), ()),
        "gate": ((width, inner), ("fsdp", "tensor")),
        "up": ((width, inner), ("fsdp", "tensor")),
        "down": ((inner, width), ("tensor", "fsdp")),
    }


def outer_weights(model, fsdp="fsdp"):
    return {
        "embedding": ((model.words, model.width), ("tensor", fsdp)),
        "norm": ((model.width,), ()),
        "head": ((model.width, model.words), (fsdp, "tensor")),
    }


# The mesh.


def mesh_of(devices, **axes):
    """Devices as a grid; an axis of None takes all devices that the others leave."""
    given = {name: size for name, size in axes.items() if size is not None}
    product, count = math.prod(given.values()), len(devices)
    shown = " × ".join(f"{name} {size}" for name, size in given.items())
    if len(given) < len(axes) and count % product:
        raise ValueError(f"{shown} = {product} does not divide the number of devices, {count}")
    if len(given) == len(axes) and product != count:
        raise ValueError(f"{shown} = {product} devices; expected {count}, all that there are")
    shape = [count // product if size is None else size for size in axes.values()]
    return Mesh(np.array(devices).reshape(shape), tuple(axes))


@dataclass(frozen=True)
class Layout:
    """Where things are."""

    mesh: Mesh
    batch: tuple[str, ...]
    """the mesh axes that cut the batch"""
    around: tuple[str, ...] = ("context",)
    """the mesh axes that cut the tokens before and after the layers"""

    def place(self, *spec):
        return NamedSharding(self.mesh, P(*spec))

    def keep(self, array, *spec):
        return jax.lax.with_sharding_constraint(array, self.place(*spec))

    def gather(self, weights, table):
        """Weights for use: whole along the axes that only store them in pieces (FSDP)."""

        return {name: self.whole(weight, table[name][1]) for name, weight in weights.items()}

    def whole(self, weight, spec):
        used = tuple(axis if axis in ("tensor", "expert") else None for axis in spec)

        def gather(weight):
            # Still in pieces here; otherwise an unrolled layer would be gathered once, and kept.
            return self.keep(self.keep(weight, *spec), *used)

        # By itself the gradient would become whole too, before it is cut.
        gathered = jax.custom_vjp(gather)
        gathered.defvjp(lambda weight: (gather(weight), None), lambda _, g: (self.keep(g, *spec),))
        return gathered(weight)


# The model.


def product(hidden, weight):
    """With a weight; by its name, `remat="dots"` knows what to save."""
    return checkpoint_name(hidden @ weight, "dots")


def normalised(hidden, scale):
    wide = hidden.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-5)
    return (wide * scale).astype(hidden.dtype)


def rotated(heads):
    """Rotary positions: each pair of features turns with the position of its token."""
    _, tokens, _, size = heads.shape
    speeds = 500_000.0 ** (-jnp.arange(0, size, 2) / size)
    angles = (jnp.arange(tokens)[:, None] * speeds)[:, None]
    left, right = jnp.split(heads.astype(jnp.float32), 2, -1)
    sine, cosine = jnp.sin(angles), jnp.cos(angles)
    turned = (left * cosine - right * sine, right * cosine + left * sine)
    return jnp.concatenate(turned, -1).astype(heads.dtype)


def attention(model, layout, kind, hidden, weights):
    batch, tokens, width = hidden.shape
    query, key, value = (
        product(hidden, weights[name]).reshape(batch, tokens, -1, width // model.heads)
        for name in ("query", "key", "value")
    )
    mixed = attend(layout, kind, query, key, value)
    return product(mixed.reshape(batch, tokens, width), weights["out"])


def attend(layout, kind, query, key, value):
    """Tokens are cut over `context` before and after; in between, heads are, by an all-to-all."""
    by_token = layout.batch, "context", "tensor"
    by_head = P(layout.batch, None, ("tensor", "context"))
    query, key, value = (layout.keep(heads, *by_token) for heads in (query, key, value))
    query, key = (layout.keep(rotated(heads), *by_token) for heads in (query, key))
    mix = jax.shard_map(
        partial(jax.nn.dot_product_attention, is_causal=True, implementation=kind),
        mesh=layout.mesh,
        in_specs=(by_head, by_head, by_head),
        out_specs=by_head,
        check_vma=False,
    )
    return layout.keep(mix(query, key, value), *by_token)


def mlp(hidden, weights):
    gate, up = (product(hidden, weights[name]) for name in ("gate", "up"))
    return product(jax.nn.silu(gate) * up, weights["down"])


def block_of(model, layout, kind):
    def block(hidden, weights):
        with jax.named_scope("attention"):
            inputs = normalised(hidden, weights["norm_attention"])
            hidden += attention(model, layout, kind, inputs, weights)
            hidden = layout.keep(hidden, layout.batch, "context")
        with jax.named_scope("mlp"):
            hidden += mlp(normalised(hidden, weights["norm_mlp"]), weights)
            return layout.keep(hidden, layout.batch, "context"), 0.0

    return block


def all_but_gathered(primitive, *_, **__):
    # Gathered weights, if they were saved, would undo FSDP.
    return primitive.name != "sharding_constraint"


REMAT = {
    "none": all_but_gathered,
    "dots": jax.checkpoint_policies.save_only_these_names("dots"),
    "full": jax.checkpoint_policies.nothing_saveable,
}
"""what the forward pass saves for the backward pass"""


def layers_in_turn(block, gather, remat, layers):
    """A function of activations and all layers' weights; also returns the blocks' own losses."""
    scan = layers == "scan"

    # A loop keeps the backward pass apart from the forward pass; elsewhere, XLA would merge them.
    @partial(jax.checkpoint, policy=REMAT[remat], prevent_cse=not scan)
    def layer(hidden, weights):
        return block(hidden, gather(weights))

    def run(hidden, weights):
        if scan:
            hidden, losses = jax.lax.scan(layer, hidden, weights)
            return hidden, jnp.sum(losses)
        total = 0.0
        for number in range(len(weights["query"])):
            hidden, loss = layer(hidden, jax.tree.map(lambda leaf, at=number: leaf[at], weights))
            total += loss
        return hidden, total

    return run


def pipelined(stage, gather, layout, microbatches):
    """Layers as stages in a row. Each works on one microbatch and hands it to the next stage:

    turn      0   1   2   3   4   5
    stage 0   a   b   c   d
    stage 1       a   b   c   d
    stage 2           a   b   c   d
    """
    stages = layout.mesh.shape["pipeline"]
    groups = math.prod(layout.mesh.shape[axis] for axis in layout.batch)
    place = "pipeline", layout.batch, None, "context"

    def copies(weights):
        return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (groups, *leaf.shape)), weights)

    def only(number, parts):
        return jnp.where(jnp.arange(stages).reshape(-1, 1, 1, 1, 1) == number, parts, 0)

    # For all groups of the batch and all stages at once, each on its own devices.
    everywhere = jax.vmap(jax.vmap(stage, spmd_axis_name=layout.batch), spmd_axis_name="pipeline")

    def run(hidden, weights):
        # Gathered once for all microbatches. With a copy for each group, gradients are added up
        # where they are made, and reduced once too.
        weights = jax.tree.map(lambda leaf: leaf.reshape(stages, -1, *leaf.shape[1:]), weights)
        weights = jax.vmap(jax.vmap(gather), spmd_axis_name="pipeline")(weights)
        weights = jax.vmap(copies)(weights)
        parts = hidden.reshape(groups, microbatches, -1, *hidden.shape[1:]).swapaxes(0, 1)
        parts = layout.keep(parts, None, layout.batch, None, "context")
        entering = jnp.pad(only(0, parts[:, None]), [(0, stages - 1)] + 5 * [(0, 0)])
        entering = layout.keep(entering, None, *place)

        def turn(before, entering):
            # A shift by padding becomes one transfer to the next stage, backwards too.
            moved = jnp.pad(before, [(1, 0)] + 4 * [(0, 0)])[:stages]
            after, _ = everywhere(layout.keep(moved + entering, *place), weights)
            return layout.keep(after, *place), after

        _, after = jax.lax.scan(turn, jnp.zeros_like(entering[0]), entering)
        done = jax.lax.reduce_sum(only(stages - 1, after[stages - 1 :]), [1])
        done = layout.keep(done, None, layout.batch, None, layout.around)
        return done.swapaxes(0, 1).reshape(hidden.shape), 0.0

    return run


def loss_of(layout, outer, run):
    def loss(params, tokens):
        small = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), params)
        around = layout.gather({name: small[name] for name in ("norm", "head")}, outer)
        with jax.named_scope("embedding"):
            # Not by `gather`: cut like the weight, the gradient would need all tokens everywhere.
            embedding = layout.keep(small["embedding"], "tensor")
            hidden = layout.keep(embedding[tokens[:, :-1]], layout.batch, layout.around)
        hidden, blocks_loss = run(hidden, small["layers"])
        with jax.named_scope("head"):
            hidden = layout.keep(hidden, layout.batch, layout.around)
            logits = normalised(hidden, around["norm"]) @ around["head"]
            logits = layout.keep(logits, layout.batch, layout.around, "tensor").astype(jnp.float32)
            right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - right) + blocks_loss

    return loss


# The training step: Adam.


def adam(state, gradients):
    count = state["count"] + 1
    first = jax.tree.map(lambda m, g: DECAY_1 * m + (1 - DECAY_1) * g, state["first"], gradients)
    second = jax.tree.map(
        lambda v, g: DECAY_2 * v + (1 - DECAY_2) * g**2, state["second"], gradients
    )
    rate = RATE * jnp.sqrt(1 - DECAY_2**count) / (1 - DECAY_1**count)
    params = jax.tree.map(
        lambda p, m, v: p - rate * m / (jnp.sqrt(v) + 1e-8), state["params"], first, second
    )
    return {"params": params, "first": first, "second": second, "count": count}


def abstract_tokens(model, layout, batch):
    sequences = batch * math.prod(layout.mesh.shape[axis] for axis in layout.batch)
    place = layout.place(layout.batch)
    return jax.ShapeDtypeStruct((sequences, model.tokens + 1), jnp.int32, sharding=place)


def jitted(model, layout, loss, outer, layer, batch):
    """The step, and its arguments: shapes and shardings, nothing is allocated."""

    def abstract(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=layout.place(*spec))

    stage = "pipeline" if "pipeline" in layout.mesh.shape else None
    params = {name: abstract(shape, spec) for name, (shape, spec) in outer.items()}
    params["layers"] = {
        name: abstract((model.layers, *shape), (stage, *spec))
        for name, (shape, spec) in layer.items()
    }
    count = abstract((), (), jnp.int32)
    state = {"params": params, "first": params, "second": params, "count": count}
    tokens = abstract_tokens(model, layout, batch)

    def step(state, tokens):
        value, gradients = jax.value_and_grad(loss)(state["params"], tokens)
        with jax.named_scope("optimizer"):
            return adam(state, gradients), value

    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = jax.jit(
        step,
        in_shardings=(shardings, tokens.sharding),
        out_shardings=(shardings, layout.place()),
        donate_argnums=0,
    )
    return step, state, tokens


def build(
    devices,
    *,
    data: Divisor = 1,
    fsdp: Divisor | None = None,
    pipeline: Divisor[1, 4, 8] = 1,
    context: Divisor[1, 4] = 1,
    tensor: Divisor[1, 2, 4, 8] = 1,
    remat: Literal["none", "dots", "full"] = "full",
    attention: Literal["xla", "cudnn"] = "cudnn",
    layers: Literal["scan", "unrolled"] = "scan",
    batch: Range[1, 16] = 1,
    microbatches: int | None = None,
):
    """The step on pipeline × data × fsdp × context × tensor devices; `fsdp` takes what is left."""
    model = sized(SIZES, "LLAMA", devices)
    axes = dict(pipeline=pipeline, data=data, fsdp=fsdp, context=context, tensor=tensor)
    layout = Layout(mesh_of(devices, **axes), ("data", "fsdp"), ("pipeline", "context"))
    check_heads(model, context * tensor)
    check_pipeline(model, pipeline, batch, microbatches)
    outer = outer_weights(model, ("fsdp", "pipeline"))
    layer = attention_weights(model) | mlp_weights(model)
    gather = partial(layout.gather, table=layer)
    kind = runnable(attention, devices)
    if pipeline == 1:
        run = layers_in_turn(block_of(model, layout, kind), gather, remat, layers)
    else:
        block = block_of(model, replace(layout, batch=None), kind)
        stage = layers_in_turn(block, lambda weights: weights, remat, layers)
        run = pipelined(stage, gather, layout, microbatches or batch)
    return jitted(model, layout, loss_of(layout, outer, run), outer, layer, batch)


def check_pipeline(model, stages, batch, microbatches):
    if model.layers % stages:
        raise ValueError(f"pipeline = {stages} does not divide the {model.layers} layers")
    if stages == 1 and microbatches is not None:
        raise ValueError(f"microbatches = {microbatches} without a pipeline; leave them out")
    if batch % (microbatches or batch):
        raise ValueError(f"microbatches = {microbatches} do not divide the batch of {batch}")


def check_heads(model, ways):
    if model.kv_heads % ways:
        raise ValueError(
            f"context × tensor = {ways} does not divide the {model.kv_heads} key and value heads"
        )


def runnable(attention, devices):
    """cuDNN needs a GPU, which need not be here."""
    return "xla" if devices[0].platform in ("cpu", "tpu") else attention


# Training on the devices that are here.


def initial_state(state):
    """Random weights, each made on the device that will hold it."""

    def make():
        leaves, tree = jax.tree.flatten_with_path(state["params"])
        keys = jax.random.split(jax.random.key(0), len(leaves))
        params = [
            jnp.ones(leaf.shape)
            if path[-1].key.startswith("norm")
            else 0.02 * jax.random.normal(key, leaf.shape)
            for key, (path, leaf) in zip(keys, leaves, strict=True)
        ]
        params = jax.tree.unflatten(tree, params)
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {"params": params, "first": zeros, "second": zeros, "count": jnp.int32(0)}

    return jax.jit(make, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, state))()


def random_batch(tokens, words):
    make = partial(jax.random.randint, jax.random.key(1), tokens.shape, 0, words)
    return jax.jit(make, out_shardings=tokens.sharding)()


def train(step, state, tokens, words, steps):
    print(f"{jax.device_count()} × {jax.devices()[0].device_kind}, {tokens.shape[0]} sequences")
    # One batch, learnt by heart: the loss must fall.
    batch = random_batch(tokens, words)
    for number in range(steps):
        began = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, batch)
            loss = float(loss)
        print(f"step {number:3}   loss {loss:7.4f}   {1e3 * (time.perf_counter() - began):8.1f} ms")


def main(step, abstract, tokens, steps):
    words = abstract["params"]["embedding"].shape[0]
    train(step, initial_state(abstract), tokens, words, int(steps))


if __name__ == "__main__":
    main(*build(jax.devices()), steps=os.environ.get("LLAMA_STEPS", "20"))

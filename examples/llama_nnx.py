"""The Llama-like model of `llama.py` in Flax NNX, trained with Optax.

Sizes, layouts and choices are those of `llama.py`, apart from its pipeline. `build` takes a list of
devices, which need not exist, and the choices. It returns the jitted step and its abstract
arguments; no weight is allocated:

    LLAMA_SIZE=8b slipstream plan examples/llama_nnx.py:build --on 8xH200

`python examples/llama_nnx.py` trains for a few steps on the devices that are here, with the sizes
that the environment says as for `llama.py`.
"""

from __future__ import annotations

import os
import shutil
from functools import partial
from typing import Literal

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import llama
import optax
from flax import nnx

from slipstream import Divisor, Range

LAYERS = {nnx.PARTITION_NAME: None}
"""the mesh axis of the dimension that stacks layers: none"""


class Linear(nnx.Module):
    """A product with a weight that is stored in pieces, and gathered for use in bfloat16."""

    def __init__(self, inputs, outputs, spec, layout, rngs):
        init = nnx.with_partitioning(nnx.initializers.normal(0.02), spec)
        self.kernel = nnx.Param(init(rngs.params(), (inputs, outputs)))
        self.layout, self.spec = layout, spec

    def __call__(self, hidden):
        kernel = self.layout.whole(self.kernel[...].astype(hidden.dtype), self.spec)
        return llama.product(hidden, kernel)


class Block(nnx.Module):
    def __init__(self, model, layout, kind, rngs):
        self.size, self.layout, self.kind = model.width // model.heads, layout, kind
        width, keys, inner = model.width, self.size * model.kv_heads, model.inner
        into, out_of = ("fsdp", "tensor"), ("tensor", "fsdp")
        linear = partial(Linear, layout=layout, rngs=rngs)
        self.norm_attention = norm(width, rngs)
        self.query = linear(width, width, into)
        self.key = linear(width, keys, into)
        self.value = linear(width, keys, into)
        self.out = linear(width, width, out_of)
        self.norm_mlp = norm(width, rngs)
        self.gate = linear(width, inner, into)
        self.up = linear(width, inner, into)
        self.down = linear(inner, width, out_of)

    def __call__(self, hidden):
        with jax.named_scope("attention"):
            hidden = self.keep(hidden + self.attention(self.norm_attention(hidden)))
        with jax.named_scope("mlp"):
            inputs = self.norm_mlp(hidden)
            return self.keep(hidden + self.down(nnx.silu(self.gate(inputs)) * self.up(inputs)))

    def attention(self, hidden):
        heads = (*hidden.shape[:2], -1, self.size)
        made = (one(hidden).reshape(heads) for one in (self.query, self.key, self.value))
        return self.out(llama.attend(self.layout, self.kind, *made).reshape(hidden.shape))

    def keep(self, hidden):
        return self.layout.keep(hidden, self.layout.batch, "context")


class Llama(nnx.Module):
    def __init__(self, model, layout, kind, remat, layers, rngs):
        self.layout, self.remat, self.is_loop = layout, remat, layers == "scan"
        init = nnx.with_partitioning(nnx.initializers.normal(0.02), ("tensor", "fsdp"))
        self.embedding = nnx.Param(init(rngs.params(), (model.words, model.width)))
        blocks = nnx.vmap(partial(Block, model, layout, kind), transform_metadata=LAYERS)
        self.layers = nnx.split_rngs(splits=model.layers)(blocks)(rngs)
        self.norm = norm(model.width, rngs)
        self.head = Linear(model.width, model.words, ("fsdp", "tensor"), layout, rngs)

    def __call__(self, tokens):
        layout = self.layout
        with jax.named_scope("embedding"):
            embedding = layout.keep(self.embedding[...].astype(jnp.bfloat16), "tensor")
            hidden = layout.keep(embedding[tokens], layout.batch, "context")
        hidden = self.blocks(hidden)
        with jax.named_scope("head"):
            logits = self.head(self.norm(hidden))
            return layout.keep(logits, layout.batch, "context", "tensor").astype(jnp.float32)

    def blocks(self, hidden):
        # A loop keeps the backward pass apart from the forward pass; elsewhere, XLA merges them.
        @partial(nnx.remat, policy=llama.REMAT[self.remat], prevent_cse=not self.is_loop)
        def forward(hidden, block):
            return block(hidden)

        axes = dict(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry, transform_metadata=LAYERS)
        return nnx.scan(forward, unroll=not self.is_loop, **axes)(hidden, self.layers)


def norm(width, rngs):
    return nnx.RMSNorm(width, epsilon=1e-5, dtype=jnp.bfloat16, rngs=rngs)


def loss_of(model, tokens):
    logits = model(tokens[:, :-1])
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def jitted(create, layout, tokens):
    """The step as a function of arrays, and its arguments: nothing is allocated."""
    graph, state = nnx.get_abstract_model(create, layout.mesh)

    def step(state, tokens):
        model, optimizer = nnx.merge(graph, state)
        loss, gradients = nnx.value_and_grad(loss_of)(model, tokens)
        with jax.named_scope("optimizer"):
            optimizer.update(model, gradients)
        return nnx.state((model, optimizer)), loss

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
    context: Divisor[1, 4] = 1,
    tensor: Divisor[1, 2, 4, 8] = 1,
    remat: Literal["none", "dots", "full"] = "full",
    attention: Literal["xla", "cudnn"] = "cudnn",
    layers: Literal["scan", "unrolled"] = "scan",
    batch: Range[1, 16] = 1,
):
    """The step on data × fsdp × context × tensor devices; `fsdp` takes what the others leave."""
    model = llama.sized(llama.SIZES, "LLAMA", devices)
    mesh = llama.mesh_of(devices, data=data, fsdp=fsdp, context=context, tensor=tensor)
    llama.check_heads(model, context * tensor)
    layout = llama.Layout(mesh, ("data", "fsdp"))
    kind = llama.runnable(attention, devices)
    create = partial(created, model, layout, kind, remat, layers)
    return jitted(create, layout, llama.abstract_tokens(model, layout, batch))


def created(model, layout, kind, remat, layers):
    """The model with random weights, and its optimizer."""
    module = Llama(model, layout, kind, remat, layers, nnx.Rngs(0))
    adam = optax.adam(llama.RATE, llama.DECAY_1, llama.DECAY_2)
    return module, nnx.Optimizer(module, adam, wrt=nnx.Param)


# Training on the devices that are here.


def initial_state(abstract):
    """Random weights, each made on the device that will hold it."""
    model = llama.sized(llama.SIZES, "LLAMA", jax.devices())

    def make():
        # Weights depend on neither the layout nor the other choices.
        return nnx.state(created(model, None, "xla", "full", "scan"))

    shardings = jax.tree.map(lambda leaf: leaf.sharding, abstract)
    with jax.set_mesh(jax.tree.leaves(shardings)[0].mesh):
        return jax.jit(make, out_shardings=shardings)()


if __name__ == "__main__":
    step, abstract, tokens = build(jax.devices())
    words, steps = abstract[0]["embedding"].shape[0], int(os.environ.get("LLAMA_STEPS", "20"))
    llama.train(step, initial_state(abstract), tokens, words, steps)

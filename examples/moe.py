"""A mixture of experts, its training step, and the choices that decide how fast it trains.

The attention, the optimizer and the loop are those of `llama.py`. In place of its MLP, each token
goes to two of several experts, which live on different devices:

    tokens ─► router ─► all-to-all ─► experts ─► all-to-all ─► tokens

Each expert has places for a fixed number of tokens of a sequence; what finds no place skips the
layer. `build` takes a list of devices, which need not exist, and choices:

    data, fsdp, expert, tensor   the mesh: ways to cut the batch, the weights, experts and heads
    capacity                     places, relative to what tokens that spread evenly would need
    remat, attention, layers     as in `llama.py`
    batch                        sequences for each of the data × fsdp × expert groups

    MOE_SIZE=8x7b slipstream predict examples/moe.py:build --on 8xH200

`python examples/moe.py` trains for a few steps on the devices that are here. MOE_SIZE is tiny, 1b
or 8x7b. MOE_LAYERS, MOE_WIDTH, MOE_HEADS, MOE_KV_HEADS, MOE_INNER, MOE_WORDS, MOE_TOKENS and
MOE_EXPERTS each change one size, MOE_STEPS the number of steps.
"""

from __future__ import annotations

import math
import os
import shutil
from dataclasses import dataclass
from functools import partial
from typing import Literal

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import llama
from jax.sharding import PartitionSpec as P

from slipstream import Divisor, Range

CHOSEN = 2
"""experts for each token"""

BALANCE = 0.01
"""weight of the loss that spreads tokens evenly"""


@dataclass(frozen=True)
class Model(llama.Model):
    experts: int


SIZES = {
    "tiny": Model(2, 64, 8, 4, 64, 256, 64, experts=8),
    "1b": Model(12, 1024, 16, 8, 2816, 32000, 4096, experts=8),
    "8x7b": Model(32, 4096, 32, 8, 14336, 32000, 4096, experts=8),
}

EVERYWHERE = ("fsdp", "expert")
"""what is no expert's is stored in pieces over both axes"""


def expert_weights(model):
    experts, width, inner = model.experts, model.width, model.inner
    return {
        "norm_mlp": ((width,), ()),
        "router": ((width, experts), ()),
        "gate": ((experts, width, inner), ("expert", "fsdp", "tensor")),
        "up": ((experts, width, inner), ("expert", "fsdp", "tensor")),
        "down": ((experts, inner, width), ("expert", "tensor", "fsdp")),
    }


def routes(odds, places):
    """How much of each token goes to which place of which expert: sequence, token, expert, place.

    Second choices queue behind all first choices; who comes after the last place goes nowhere.
    """
    sequences, tokens, experts = odds.shape
    shares, chosen = jax.lax.top_k(odds, CHOSEN)
    shares /= jnp.sum(shares, -1, keepdims=True)
    wanted = jax.nn.one_hot(chosen.swapaxes(1, 2), experts, dtype=jnp.int32)
    queue = wanted.reshape(sequences, CHOSEN * tokens, experts)
    before = (jnp.cumsum(queue, 1) - queue).reshape(wanted.shape)
    place = jax.nn.one_hot(jnp.sum(before * wanted, -1), places)
    return jnp.einsum("btk,bkte,bktp->btep", shares, wanted.astype(jnp.float32), place)


def balance(odds):
    """1 if all experts are chosen as often as each other, more otherwise."""
    experts = odds.shape[-1]
    first = jax.nn.one_hot(jnp.argmax(odds, -1), experts)
    return experts * jnp.sum(jnp.mean(first, (0, 1)) * jnp.mean(odds, (0, 1)))


def exchange(layout, array, to_experts):
    """From where sequences are to where experts are, or back; the first two dimensions."""
    sequences, experts = P(None, layout.batch), P("expert", ("data", "fsdp"))
    split, joined = (0, 1) if to_experts else (1, 0)
    send = partial(
        jax.lax.all_to_all, axis_name="expert", split_axis=split, concat_axis=joined, tiled=True
    )
    before, after = (sequences, experts) if to_experts else (experts, sequences)
    return jax.shard_map(
        send, mesh=layout.mesh, in_specs=before, out_specs=after, axis_names=set(layout.batch)
    )(array)


def mixture(model, layout, capacity, hidden, weights):
    with jax.named_scope("router"):
        logits = llama.product(hidden, weights["router"]).astype(jnp.float32)
        odds = jax.nn.softmax(logits)
        places = math.ceil(capacity * CHOSEN * hidden.shape[1] / model.experts)
        share = routes(odds, places).astype(hidden.dtype)
    with jax.named_scope("dispatch"):
        sent = (share > 0).astype(hidden.dtype)
        inputs = jnp.einsum("btep,btw->ebpw", sent, hidden)
        inputs = exchange(layout, inputs, to_experts=True)
    with jax.named_scope("experts"):
        gate = jax.nn.silu(jnp.einsum("ebpw,ewi->ebpi", inputs, weights["gate"]))
        inner = gate * jnp.einsum("ebpw,ewi->ebpi", inputs, weights["up"])
        outputs = jnp.einsum("ebpi,eiw->ebpw", inner, weights["down"])
    with jax.named_scope("combine"):
        outputs = exchange(layout, outputs, to_experts=False)
        return jnp.einsum("btep,ebpw->btw", share, outputs), BALANCE * balance(odds)


def block_of(model, layout, kind, capacity):
    def block(hidden, weights):
        with jax.named_scope("attention"):
            inputs = llama.normalised(hidden, weights["norm_attention"])
            hidden += llama.attention(model, layout, kind, inputs, weights)
            hidden = layout.keep(hidden, layout.batch)
        with jax.named_scope("mixture"):
            inputs = llama.normalised(hidden, weights["norm_mlp"])
            change, loss = mixture(model, layout, capacity, inputs, weights)
            return layout.keep(hidden + change, layout.batch), loss

    return block


def build(
    devices,
    *,
    data: Divisor = 1,
    fsdp: Divisor | None = None,
    expert: Divisor[1, 2, 4, 8] = 1,
    tensor: Divisor[1, 2, 4, 8] = 1,
    capacity: float = 1.25,
    remat: Literal["none", "dots", "full"] = "full",
    attention: Literal["xla", "cudnn"] = "cudnn",
    layers: Literal["scan", "unrolled"] = "scan",
    batch: Range[1, 16] = 1,
):
    """The step on data × fsdp × expert × tensor devices; `fsdp` takes what the others leave."""
    model = llama.sized(SIZES, "MOE", devices)
    mesh = llama.mesh_of(devices, data=data, fsdp=fsdp, expert=expert, context=1, tensor=tensor)
    llama.check_heads(model, tensor)
    if model.experts % expert:
        raise ValueError(f"expert = {expert} does not divide the {model.experts} experts")
    layout = llama.Layout(mesh, ("data", "fsdp", "expert"))
    outer = llama.outer_weights(model, EVERYWHERE)
    layer = llama.attention_weights(model, EVERYWHERE) | expert_weights(model)
    block = block_of(model, layout, llama.runnable(attention, devices), capacity)
    run = llama.layers_in_turn(block, partial(layout.gather, table=layer), remat, layers)
    return llama.jitted(model, layout, llama.loss_of(layout, outer, run), outer, layer, batch)


if __name__ == "__main__":
    llama.main(*build(jax.devices()), steps=os.environ.get("MOE_STEPS", "20"))

"""A GPT, its training step, and four ways to spread that over GPUs.

    build            FSDP inside a host, data parallel between hosts
    build_data       data parallel: weights whole on every device, gradients summed
    build_fsdp       every weight cut over all devices, gathered layer by layer
    build_tensor     each layer cut over the GPUs of a host, data parallel between hosts
    build_pipeline   layers dealt out to stages, microbatches flow through them

Each takes a list of devices, which need not exist, and returns the jitted step and its abstract
arguments, which is what Slipstream compiles:

    slipstream compile examples/gpt.py:build --on 8xH200

`build` also takes choices that decide how fast it trains:

    attention   as written here, for XLA to fuse, or cuDNN's
    remat       what the backward pass computes again
    layers      in a scan, or unrolled
    batch       sequences for each device

    slipstream plan examples/gpt.py:build --on 8xH200

`python examples/gpt.py` trains for a few steps on the devices that are here. Sizes come from the
environment: GPT_LAYERS, GPT_WIDTH, GPT_HEADS, GPT_WORDS, GPT_TOKENS, GPT_BATCH (sequences a
device), GPT_STAGES, GPT_MICROBATCHES, GPT_STEPS. GPT_RANK, GPT_RANKS and GPT_MEET (an address) make
it one of several processes.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass, replace
from typing import Literal

if shutil.which("nvidia-smi") is None:
    # Where JAX's GPU plugin is installed and no GPU is, JAX complains before it goes on.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from slipstream import Range

RATE, DECAY_1, DECAY_2 = 3e-4, 0.9, 0.95

BATCH = int(os.environ.get("GPT_BATCH", "2"))

PIPELINE_FLAGS = {
    # The scheduler moves the transfer to the next stage behind this stage's work …
    "xla_gpu_enable_latency_hiding_scheduler": "true",
    # … which CUDA graphs would put in line again …
    "xla_gpu_enable_command_buffer": "",
    # … and which needs each transfer to stay in the turn that it was written in.
    "xla_disable_hlo_passes": "collective-permute-motion",
    "xla_gpu_experimental_pipeline_parallelism_opt_level": "PIPELINE_PARALLELISM_OPT_LEVEL_ENABLE",
}
"""what JAX's guide recommends for `build_pipeline`
(https://docs.jax.dev/en/latest/gpu_performance_tips.html)"""


@dataclass(frozen=True)
class Model:
    """Sizes; `batch` is sequences for each device."""

    layers: int = 8
    width: int = 2048
    heads: int = 16
    words: int = 32768
    tokens: int = 2048
    batch: int = BATCH
    stages: int = 4
    microbatches: int = 8

    @classmethod
    def for_devices(cls, devices) -> Model:
        """The defaults, tiny on a CPU, and what the environment says instead."""
        tiny = dict(layers=4, width=64, heads=4, words=256, tokens=64, stages=2)
        sizes = tiny if devices[0].platform == "cpu" else {}
        for name in cls.__dataclass_fields__:
            if given := os.environ.get(f"GPT_{name.upper()}"):
                sizes[name] = int(given)
        return cls(**sizes)

    @property
    def shapes(self):
        """Weights of one layer, then those around the layers."""
        width = self.width
        layer = {
            "norm": (2, width),
            "qkv": (width, 3 * width),
            "out": (width, width),
            "up": (width, 4 * width),
            "down": (4 * width, width),
        }
        return layer, {"embedding": (self.words, width), "final": (width,)}


# The model.


def normalised(hidden, scale):
    wide = hidden.astype(jnp.float32)
    wide = wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True) + 1e-6)
    return (wide * scale).astype(hidden.dtype)


def attention(model, hidden, weights, kind):
    batch, tokens, width = hidden.shape
    heads = (batch, tokens, model.heads, width // model.heads)
    query, key, value = (part.reshape(heads) for part in jnp.split(hidden @ weights["qkv"], 3, -1))
    if kind == "cudnn":
        mixed = jax.nn.dot_product_attention(
            query, key, value, is_causal=True, implementation="cudnn"
        )
        return mixed.reshape(batch, tokens, width) @ weights["out"]
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * (width // model.heads) ** -0.5
    past = jnp.tril(jnp.ones((tokens, tokens), bool))
    scores = jnp.where(past, scores.astype(jnp.float32), -1e30)
    mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(value.dtype), value)
    return mixed.reshape(batch, tokens, width) @ weights["out"]


def block(model, hidden, weights, kind="xla"):
    with jax.named_scope("attention"):
        hidden = hidden + attention(model, normalised(hidden, weights["norm"][0]), weights, kind)
    with jax.named_scope("mlp"):
        inner = jax.nn.gelu(normalised(hidden, weights["norm"][1]) @ weights["up"])
        return hidden + inner @ weights["down"]


REMAT = {
    "none": jax.checkpoint_policies.everything_saveable,
    "dots": jax.checkpoint_policies.dots_with_no_batch_dims_saveable,
    "full": jax.checkpoint_policies.nothing_saveable,
}
"""what the forward pass saves for the backward pass"""


def layers_in_turn(model, keep, kind="xla", remat="full", layers="scan"):
    """One layer after the other; `keep` holds activations in their place between them."""

    def step(hidden, weights):
        return keep(block(model, hidden, weights, kind)), None

    step = jax.checkpoint(step, policy=REMAT[remat])

    def run(hidden, weights):
        hidden = keep(hidden)
        if layers == "scan":
            return jax.lax.scan(step, hidden, weights)[0]
        for number in range(model.layers):
            hidden, _ = step(hidden, {name: leaf[number] for name, leaf in weights.items()})
        return hidden

    return run


def loss_of(run, keep, gather):
    """`keep` holds activations in their place, `gather` makes the embedding whole for its uses."""

    def loss(params, tokens):
        small = jax.tree.map(lambda weight: weight.astype(jnp.bfloat16), params)
        with jax.named_scope("embedding"):
            embedding = gather(small["embedding"])
            hidden = keep(embedding[tokens[:, :-1]])
        hidden = normalised(run(hidden, small["layers"]), small["final"])
        with jax.named_scope("head"):
            logits = (hidden @ embedding.T).astype(jnp.float32)
            right = jnp.take_along_axis(logits, tokens[:, 1:, None], -1)[..., 0]
            return jnp.mean(jax.nn.logsumexp(logits, -1) - right)

    return loss


# The training step: Adam.


def step_of(loss):
    def step(state, tokens):
        value, gradients = jax.value_and_grad(loss)(state["params"], tokens)
        with jax.named_scope("optimizer"):
            return adam(state, gradients), value

    return step


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


def abstract_state(model, specs, mesh, leading=None):
    """Shapes and shardings of all that a step carries on; nothing is allocated."""
    layer, around = model.shapes
    leading = leading or (model.layers,)

    def abstract(shape, spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    params = {name: abstract(shape, specs[name]) for name, shape in around.items()}
    params["layers"] = {
        name: abstract((*leading, *shape), specs[name]) for name, shape in layer.items()
    }
    return {"params": params, "first": params, "second": params, "count": abstract((), (), "int32")}


def jitted(model, mesh, specs, batch_axes, run=None, leading=None, **choices):
    """The step for a mesh, with its arguments; choices are those of `layers_in_turn`."""
    devices = mesh.devices.size
    place = NamedSharding(mesh, P(batch_axes))
    state = abstract_state(model, specs, mesh, leading)
    shape = (model.batch * devices, model.tokens + 1)
    tokens = jax.ShapeDtypeStruct(shape, jnp.int32, sharding=place)

    def keep(hidden):
        return jax.lax.with_sharding_constraint(hidden, place)

    def gather(weight):
        # Words are looked up and scored where their batch is; a cut by words stays.
        spec = specs["embedding"]
        whole = P() if spec and spec[0] is None else P(*spec)
        return jax.lax.with_sharding_constraint(weight, NamedSharding(mesh, whole))

    shardings = jax.tree.map(lambda leaf: leaf.sharding, state)
    step = jax.jit(
        step_of(loss_of(run or layers_in_turn(model, keep, **choices), keep, gather)),
        in_shardings=(shardings, place),
        out_shardings=(shardings, NamedSharding(mesh, P())),
        donate_argnums=0,
    )
    return step, state, tokens


# Ways to spread it. A spec has one entry for each dimension; the first of a layer's is the layer.

WHOLE = {name: () for name in ("norm", "qkv", "out", "up", "down", "embedding", "final")}


def cut_over(axes):
    """Each matrix in pieces over `axes`, along the side that is not summed over first."""
    return WHOLE | {
        "qkv": (None, axes),
        "out": (None, None, axes),
        "up": (None, axes),
        "down": (None, None, axes),
        "embedding": (None, axes),
    }


def by_host(devices):
    """Devices as hosts × GPUs of a host."""
    hosts = len({device.process_index for device in devices})
    return np.array(devices).reshape(hosts, -1)


def build(
    devices,
    *,
    attention: Literal["xla", "cudnn"] = "xla",
    remat: Literal["none", "dots", "full"] = "full",
    layers: Literal["scan", "unrolled"] = "scan",
    batch: Range[1, 32] = BATCH,
):
    """FSDP inside each host, where links are fast; data parallel between hosts."""
    model = replace(Model.for_devices(devices), batch=batch)
    mesh = Mesh(by_host(devices), ("host", "gpu"))
    # cuDNN needs a GPU, which need not be here.
    choices = {"kind": "xla" if devices[0].platform == "cpu" else attention}
    choices |= {"remat": remat, "layers": layers}
    return jitted(model, mesh, cut_over("gpu"), ("host", "gpu"), **choices)


def build_data(devices):
    """Every device has all weights; gradients are summed over all."""
    model = Model.for_devices(devices)
    return jitted(model, Mesh(np.array(devices), ("data",)), WHOLE, "data")


def build_fsdp(devices):
    """Every weight is cut over all devices."""
    model = Model.for_devices(devices)
    return jitted(model, Mesh(np.array(devices), ("data",)), cut_over("data"), "data")


def build_tensor(devices):
    """Megatron's cut: heads and inner features over a host's GPUs, sequences too in between."""
    model = Model.for_devices(devices)
    mesh = Mesh(by_host(devices), ("data", "model"))
    specs = WHOLE | {
        "qkv": (None, None, "model"),
        "out": (None, "model"),
        "up": (None, None, "model"),
        "down": (None, "model"),
        "embedding": ("model",),
    }
    spread = NamedSharding(mesh, P("data", "model"))

    def keep(hidden):
        return jax.lax.with_sharding_constraint(hidden, spread)

    return jitted(model, mesh, specs, "data", layers_in_turn(model, keep))


def build_pipeline(devices):
    """Stages in a row; every turn, each works on one microbatch and hands it to the next.

    Compile it with PIPELINE_FLAGS.

        turn      0   1   2   3   4   5
        stage 0   a   b   c   d
        stage 1       a   b   c   d
        stage 2           a   b   c   d
    """
    model = Model.for_devices(devices)
    stages = min(model.stages, len(devices))
    mesh = Mesh(np.array(devices).reshape(stages, -1), ("stage", "data"))
    leading = (stages, model.layers // stages)
    specs = {name: ("stage",) for name in WHOLE} | {"embedding": (), "final": ()}
    return jitted(model, mesh, specs, "data", pipeline(model, mesh, stages), leading)


def pipeline(model, mesh, stages):
    place = NamedSharding(mesh, P("stage", "data"))

    def keep(hidden):
        return jax.lax.with_sharding_constraint(hidden, place)

    def stage(hidden, weights):
        step = jax.checkpoint(lambda hidden, weights: (block(model, hidden, weights), None))
        return jax.lax.scan(step, hidden, weights)[0]

    def run(hidden, weights):
        # Every microbatch takes rows from each device's batch, so that nothing has to move.
        parts = hidden.reshape(-1, model.microbatches, *hidden.shape[1:]).swapaxes(0, 1)
        idle = jnp.zeros((stages - 1, *parts.shape[1:]), parts.dtype)
        entering = jnp.concatenate([parts, idle])

        def turn(carry, part):
            # A shift by padding becomes one transfer to the next stage, backwards too.
            moved = jax.lax.slice_in_dim(jnp.pad(carry, _BEFORE), 0, stages)
            first = jax.lax.broadcasted_iota("int32", moved.shape, 0) == 0
            done = jax.vmap(stage)(keep(jnp.where(first, part, moved)), weights)
            return keep(done), done

        start = keep(jnp.zeros((stages, *parts.shape[1:]), parts.dtype))
        _, done = jax.lax.scan(turn, start, entering)
        # What leaves the last stage, from the turn on in which the first microbatch does.
        return done[stages - 1 :, -1].swapaxes(0, 1).reshape(hidden.shape)

    return run


_BEFORE = ((1, 0), (0, 0), (0, 0), (0, 0))


# Training on the devices that are here.


def initial_state(state):
    """Random weights, each made on the device that will hold it."""

    def make():
        keys = iter(jax.random.split(jax.random.key(0), 64))
        params = jax.tree.map(
            lambda leaf: 0.02 * jax.random.normal(next(keys), leaf.shape), state["params"]
        )
        params["layers"]["norm"] = jnp.ones_like(params["layers"]["norm"])
        params["final"] = jnp.ones_like(params["final"])
        zeros = jax.tree.map(jnp.zeros_like, params)
        return {"params": params, "first": zeros, "second": zeros, "count": jnp.int32(0)}

    return jax.jit(make, out_shardings=jax.tree.map(lambda leaf: leaf.sharding, state))()


def join_others() -> None:
    """Several processes that train together: GPT_RANK of GPT_RANKS, which meet at GPT_MEET."""
    if "GPT_RANKS" in os.environ:
        rank, ranks = int(os.environ["GPT_RANK"]), int(os.environ["GPT_RANKS"])
        meet = os.environ.get("GPT_MEET", "127.0.0.1:9911")
        jax.distributed.initialize(meet, ranks, rank, local_device_ids=[0])


def main() -> None:
    join_others()
    steps = int(os.environ.get("GPT_STEPS", "20"))
    devices = jax.devices()
    step, abstract, tokens = build(devices)
    print(
        f"{len(devices)} × {devices[0].device_kind}, {tokens.shape[0]} × {tokens.shape[1]} tokens"
    )
    state = initial_state(abstract)
    words = abstract["params"]["embedding"].shape[0]
    # One batch, learnt by heart: the loss must fall.
    make = jax.jit(
        lambda: jax.random.randint(jax.random.key(1), tokens.shape, 0, words),
        out_shardings=tokens.sharding,
    )
    batch = make()
    for number in range(steps):
        began = time.perf_counter()
        with jax.profiler.StepTraceAnnotation("train", step_num=number):
            state, loss = step(state, batch)
            loss = float(loss)
        print(f"step {number:3}   loss {loss:7.4f}   {1e3 * (time.perf_counter() - began):8.1f} ms")


if __name__ == "__main__":
    main()

"""Programs that the real XLA:TPU compiler makes, without a TPU: tests/data/tpu.

    pip install 'jax[tpu]'
    python tests/record/tpu_programs.py tests/data/tpu

Each compiles for about two minutes on two cores.
"""

import gzip
import os
import sys
from pathlib import Path

os.environ |= {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1"}
os.environ["TPU_WORKER_HOSTNAMES"] = "localhost"

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

LAYERS, WIDTH, INNER, WORDS, TOKENS, HEADS = 4, 2048, 8192, 32000, 2048, 16
PROGRAMS = {
    "v5p_fsdp.hlo.gz": ("v5p:2x2x2", 1, "fsdp"),
    "v5p_tensor.hlo.pb.gz": ("v5p:2x2x1", 1, "tensor"),
    "v5e_2slices.hlo.gz": ("v5e:4x4", 2, "fsdp"),
}
BATCH = ("data", "fsdp")


def mesh_of(topology: str, slices: int, kind: str) -> Mesh:
    several = {"num_slices": slices} if slices > 1 else {}
    found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **several)
    each = len(found.devices) // slices
    shape = (slices, each, 1) if kind == "fsdp" else (slices, 1, each)
    return Mesh(np.array(found.devices).reshape(shape), ("data", "fsdp", "tensor"))


def weights(mesh: Mesh):
    def weight(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    return {
        "embedding": weight((WORDS, WIDTH), "tensor", "fsdp"),
        "head": weight((WIDTH, WORDS), "fsdp", "tensor"),
        "layers": {
            "qkv": weight((LAYERS, WIDTH, 3 * WIDTH), None, "fsdp", "tensor"),
            "out": weight((LAYERS, WIDTH, WIDTH), None, "tensor", "fsdp"),
            "up": weight((LAYERS, WIDTH, INNER), None, "fsdp", "tensor"),
            "down": weight((LAYERS, INNER, WIDTH), None, "tensor", "fsdp"),
            "norm": weight((LAYERS, WIDTH)),
        },
    }


def layer(hidden, weights):
    cast = {name: weight.astype(hidden.dtype) for name, weight in weights.items()}
    scale = jax.lax.rsqrt(jnp.mean(hidden.astype(jnp.float32) ** 2, -1, keepdims=True) + 1e-5)
    normed = hidden * scale.astype(hidden.dtype) * cast["norm"]
    batch, tokens, width = normed.shape
    heads = (
        one.reshape(batch, tokens, HEADS, width // HEADS)
        for one in jnp.split(normed @ cast["qkv"], 3, -1)
    )
    mixed = jax.nn.dot_product_attention(*heads, is_causal=True).reshape(batch, tokens, width)
    hidden = hidden + mixed @ cast["out"]
    return hidden + jax.nn.gelu(hidden @ cast["up"]) @ cast["down"]


def compiled(topology: str, slices: int, kind: str):
    mesh = mesh_of(topology, slices, kind)
    rows = NamedSharding(mesh, P(BATCH, None, None))

    def body(hidden, weights):
        return jax.lax.with_sharding_constraint(layer(hidden, weights), rows)

    def loss(params, tokens):
        hidden = params["embedding"].astype(jnp.bfloat16)[tokens]
        hidden = jax.lax.with_sharding_constraint(hidden, rows)
        step = jax.checkpoint(body)
        hidden, _ = jax.lax.scan(lambda h, w: (step(h, w), None), hidden, params["layers"])
        logits = (hidden @ params["head"].astype(hidden.dtype)).astype(jnp.float32)
        chosen = jnp.where(jnp.arange(WORDS) == tokens[..., None], jax.nn.log_softmax(logits), 0)
        return -jnp.mean(jnp.sum(chosen, -1))

    def step(params, momentum, tokens):
        value, grads = jax.value_and_grad(loss)(params, tokens)
        momentum = jax.tree.map(lambda m, g: 0.9 * m + g, momentum, grads)
        return jax.tree.map(lambda p, m: p - 1e-3 * m, params, momentum), momentum, value

    count = 2 * mesh.devices.size if kind == "fsdp" else 4 * slices
    spread = NamedSharding(mesh, P(BATCH))
    tokens = jax.ShapeDtypeStruct((count, TOKENS), jnp.int32, sharding=spread)
    traced = jax.jit(step, donate_argnums=(0, 1)).trace(weights(mesh), weights(mesh), tokens)
    return traced.lower(lowering_platforms=("tpu",)).compile()


def main(folder: str) -> None:
    for name, arguments in PROGRAMS.items():
        found = compiled(*arguments)
        data = found.as_text().replace(__file__, "train.py").encode()
        if ".pb" in name:
            [module] = found.runtime_executable().hlo_modules()
            data = module.as_serialized_hlo_module_proto()
        (Path(folder) / name).write_bytes(gzip.compress(data, 9, mtime=0))
        print(name, len(data))


if __name__ == "__main__":
    main(sys.argv[1])

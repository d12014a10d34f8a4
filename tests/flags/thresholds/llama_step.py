"""A training step of Llama 2 7B, compiled for eight H200 with no GPU at hand.

Run as a script, in a process of its own,
`python tests/flags/thresholds/llama_step.py TARGET_CONFIG OUT` writes OUT, a serialized
HloModuleProto.  Only shapes go in: nothing of 13 GB is ever allocated.
"""

import os
import subprocess
import sys
from pathlib import Path

LAYERS, WIDTH, HIDDEN, WORDS, HEADS = 32, 4096, 11008, 32000, 32
TOKENS = 256


def layer_shapes(*stack):
    square = {name: (*stack, WIDTH, WIDTH) for name in ("q", "k", "v", "o")}
    wide = {name: (*stack, WIDTH, HIDDEN) for name in ("gate", "up")}
    norms = {name: (*stack, WIDTH) for name in ("attention_norm", "mlp_norm")}
    return {**square, **wide, **norms, "down": (*stack, HIDDEN, WIDTH)}


def model_shapes(layers):
    embeddings = {"embedding": (WORDS, WIDTH), "norm": (WIDTH,), "head": (WIDTH, WORDS)}
    return {**embeddings, "layers": layers}


def compiled(target: Path, out: Path) -> None:
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, __file__, str(target), str(out)],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def main(target: str, out: str) -> None:
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    topology = topologies.get_topology_desc(
        topology_name="",
        platform="cuda",
        topology="1x1x8",
        target_config=Path(target).read_text(),
    )
    mesh = Mesh(np.array(topology.devices), ("data",))
    whole = NamedSharding(mesh, PartitionSpec())

    def norm(x, scale):
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt(jnp.mean(wide**2, -1, keepdims=True))).astype(x.dtype) * scale

    def gathered(weights):
        """FSDP: weights lie in pieces, and are whole where they are used."""
        return jax.tree.map(lambda w: jax.lax.with_sharding_constraint(w, whole), weights)

    def block(x, w):
        w = gathered(w)
        normed = norm(x, w["attention_norm"])
        heads = [(normed @ w[k]).reshape(*x.shape[:2], HEADS, -1) for k in ("q", "k", "v")]
        scores = jnp.einsum("bqhd,bkhd->bhqk", heads[0], heads[1]) * (WIDTH // HEADS) ** -0.5
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), heads[2])
        x = x + mixed.reshape(x.shape) @ w["o"]
        normed = norm(x, w["mlp_norm"])
        return x + (jax.nn.silu(normed @ w["gate"]) * (normed @ w["up"])) @ w["down"], None

    def loss(params, tokens):
        outer = gathered({key: params[key] for key in ("embedding", "norm", "head")})
        hidden, _ = jax.lax.scan(block, outer["embedding"][tokens], params["layers"])
        logits = norm(hidden, outer["norm"]) @ outer["head"]
        return jnp.mean(jax.nn.logsumexp(logits.astype(jnp.float32), -1))

    def step(params, tokens):
        gradients = jax.grad(loss)(params, tokens)
        return jax.tree.map(lambda p, g: p - p.dtype.type(1e-3) * g, params, gradients)

    def sharding(shape):
        return NamedSharding(mesh, PartitionSpec(*(None,) * (len(shape) - 1), "data"))

    shapes = model_shapes(layer_shapes(LAYERS))
    is_shape = {"is_leaf": lambda leaf: isinstance(leaf, tuple)}
    shardings = jax.tree.map(sharding, shapes, **is_shape)
    params = jax.tree.map(lambda s: jax.ShapeDtypeStruct(s, jnp.bfloat16), shapes, **is_shape)
    tokens = jax.ShapeDtypeStruct((8, TOKENS), jnp.int32)
    batches = NamedSharding(mesh, PartitionSpec("data"))
    jitted = jax.jit(step, in_shardings=(shardings, batches), out_shardings=shardings)
    # Machine code is not what is looked at, and takes most of the time.
    quick = {"xla_gpu_enable_triton_gemm": False, "xla_backend_optimization_level": 0}
    executable = jitted.lower(params, tokens).compile(compiler_options=quick)
    (module,) = executable.runtime_executable().hlo_modules()
    Path(out).write_bytes(module.as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])

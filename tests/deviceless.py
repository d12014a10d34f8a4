"""The real XLA GPU compiler with no GPU: compiles a small FSDP step for eight H200.

Run as a script, in a process of its own, so that what XLA logs can be read:
`python tests/deviceless.py TARGET_CONFIG OUT [COSTS]` writes OUT (a serialized HloModuleProto).
"""

import os
import subprocess
import sys
from pathlib import Path

LAYERS, WIDTH = 4, 1024


def compiled(target: Path, out: Path, costs: Path | None = None) -> str:
    """Compile in a process of its own; returns what XLA logged."""
    arguments = [str(target), str(out), *([str(costs)] if costs else [])]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "0"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, __file__, *arguments], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def main(target: str, out: str, costs: str | None = None) -> None:
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

    def block(hidden, weights):
        return hidden + jax.nn.gelu(hidden @ weights["up"]) @ weights["down"], None

    def loss(params, batch):
        hidden, _ = jax.lax.scan(block, batch, params)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    def step(params, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value

    sharded = NamedSharding(mesh, PartitionSpec(None, "data", None))
    shardings = {"up": sharded, "down": sharded}
    batches = NamedSharding(mesh, PartitionSpec("data", None, None))
    whole = NamedSharding(mesh, PartitionSpec())
    shapes = {"up": (LAYERS, WIDTH, 4 * WIDTH), "down": (LAYERS, 4 * WIDTH, WIDTH)}
    params = {k: jax.ShapeDtypeStruct(s, jnp.bfloat16) for k, s in shapes.items()}
    batch = jax.ShapeDtypeStruct((64, 512, WIDTH), jnp.bfloat16)
    options = {
        "xla_gpu_enable_latency_hiding_scheduler": True,
        # Machine code is not what is looked at, and takes most of the time.
        "xla_gpu_enable_triton_gemm": False,
        "xla_backend_optimization_level": 0,
    }
    if costs:
        options["xla_gpu_pgle_profile_file_or_directory_path"] = costs
    jitted = jax.jit(step, in_shardings=(shardings, batches), out_shardings=(shardings, whole))
    executable = jitted.lower(params, batch).compile(compiler_options=options)
    (module,) = executable.runtime_executable().hlo_modules()
    Path(out).write_bytes(module.as_serialized_hlo_module_proto())


if __name__ == "__main__":
    main(*sys.argv[1:])

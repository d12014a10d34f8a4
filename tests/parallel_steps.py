"""Training steps for eight H200, compiled by the real XLA GPU compiler with no GPU.

fsdp       every weight cut in eight, layers in a scan: gathered before use, gradients scattered
tensor     a layer cut by features, activations by sequence: a gather before it, a scatter behind
pipeline   eight stages in a ring, one layer each; activations move on after every turn

Run as a script, in a process of its own: `python tests/parallel_steps.py TARGET OUT STEP VARIANTS`
writes OUT/<variant>.pb (a serialized HloModuleProto) for each entry of the JSON in VARIANTS,
{variant: {flag: value}}.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

LAYERS, WIDTH, BATCH, SEQUENCE = 8, 2048, 2, 256
DEVICES, MICROBATCHES = 8, 16
# Machine code is not what the tests look at, and takes most of the time.
QUICK = {"xla_gpu_enable_triton_gemm": "False", "xla_backend_optimization_level": "0"}

Variants = Mapping[str, Mapping[str, str]]


def compile_step(
    target: Path, out: Path, step: str, variants: Variants, xla_flags: str = ""
) -> str:
    """Compile a step in every variant, in one process of its own; returns what XLA logged."""
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": xla_flags}
    command = [sys.executable, __file__, str(target), str(out), step, json.dumps(variants)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def main(target: str, out: str, step: str, variants: str) -> None:
    from jax.experimental import topologies

    topology = topologies.get_topology_desc(
        topology_name="",
        platform="cuda",
        topology=f"1x1x{DEVICES}",
        target_config=Path(target).read_text(),
    )
    lowered = STEPS[step](topology.devices)
    # Most kernels of one variant are those of another, in this process or one before.
    quick = {**QUICK, "xla_gpu_kernel_cache_file": str(Path(out).parent / "kernels")}
    for name, flags in json.loads(variants).items():
        executable = lowered.compile(compiler_options={**quick, **flags})
        (module,) = executable.runtime_executable().hlo_modules()
        (Path(out) / f"{name}.pb").write_bytes(module.as_serialized_hlo_module_proto())


def fsdp(devices: Any) -> Any:
    """A gated layer of four matrices and a scale, cut along different dimensions."""
    import jax
    import jax.numpy as jnp

    def block(hidden, weights):
        normal = hidden * weights["scale"]
        mixed = hidden + (normal @ weights["mix"])
        gated = jax.nn.silu(mixed @ weights["gate"]) * (mixed @ weights["up"])
        return mixed + gated @ weights["down"], None

    def loss(params, batch):
        hidden, _ = jax.lax.scan(block, batch, params)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    shapes = {
        "scale": (LAYERS, WIDTH),
        "mix": (LAYERS, WIDTH, WIDTH),
        "gate": (LAYERS, WIDTH, 4 * WIDTH),
        "up": (LAYERS, WIDTH, 4 * WIDTH),
        "down": (LAYERS, 4 * WIDTH, WIDTH),
    }
    specs = {
        "scale": (),
        "mix": (None, "data"),
        "gate": (None, "data"),
        "up": (None, "data"),
        "down": (None, None, "data"),
    }
    batch = (DEVICES * BATCH, SEQUENCE, WIDTH)
    return _lower(devices, ("data",), (8,), loss, shapes, specs, batch, ("data",))


def tensor(devices: Any) -> Any:
    """Megatron's layer with sequence parallelism, twice."""
    import jax
    import jax.numpy as jnp

    def loss(params, batch):
        hidden = batch
        for place in range(2):
            hidden = hidden + jax.nn.gelu(hidden @ params[f"up{place}"]) @ params[f"down{place}"]
            hidden = jax.lax.with_sharding_constraint(hidden, spread)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    spread = _sharding(devices, ("model",), (8,), (None, "model"))
    # Weights must outweigh activations, or XLA gathers the weights instead.
    shapes = {"up0": (WIDTH, 8 * WIDTH), "down0": (8 * WIDTH, WIDTH)}
    shapes |= {"up1": shapes["up0"], "down1": shapes["down0"]}
    specs = {name: (None, "model") if "up" in name else ("model",) for name in shapes}
    batch = (BATCH, 8 * SEQUENCE, WIDTH)
    return _lower(devices, ("model",), (8,), loss, shapes, specs, batch, (None, "model"))


def pipeline(devices: Any) -> Any:
    """Eight stages; each turn shifts the activations to the next, as in JAX's guide."""
    import jax
    import jax.numpy as jnp

    def loss(params, batch):
        def turn(carry, place):
            moved = jnp.pad(carry, [[1, 0], [0, 0], [0, 0]])[:DEVICES]
            entering = jax.lax.dynamic_index_in_dim(batch, place % MICROBATCHES, 1, False)
            first = jax.lax.broadcasted_iota("int32", moved.shape, 0) == 0
            hidden = jnp.where(first, entering, moved)
            for _ in range(4):
                hidden = jnp.einsum("sbd,sde->sbe", hidden, params["stage"])
            return hidden, None

        start = jnp.zeros((DEVICES, SEQUENCE, WIDTH), jnp.bfloat16)
        turns = jnp.arange(MICROBATCHES + DEVICES - 1)
        hidden, _ = jax.lax.scan(turn, start, turns)
        return jnp.mean(hidden.astype(jnp.float32) ** 2)

    shapes = {"stage": (DEVICES, WIDTH, WIDTH)}
    batch = (DEVICES, MICROBATCHES, SEQUENCE, WIDTH)
    return _lower(devices, ("stage",), (8,), loss, shapes, {"stage": ("stage",)}, batch, ("stage",))


def _lower(
    devices: Any,
    names: tuple[str, ...],
    sizes: tuple[int, ...],
    loss: Callable[[Any, Any], Any],
    shapes: Mapping[str, tuple[int, ...]],
    specs: Mapping[str, tuple[str | None, ...]],
    batch: tuple[int, ...],
    batch_spec: tuple[str | None, ...],
) -> Any:
    """A step of gradient descent, lowered for a mesh of `sizes` by `names`."""
    import jax
    import jax.numpy as jnp

    def step(params, batch):
        value, gradients = jax.value_and_grad(loss)(params, batch)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value

    shardings = {key: _sharding(devices, names, sizes, spec) for key, spec in specs.items()}
    batches = _sharding(devices, names, sizes, batch_spec)
    whole = _sharding(devices, names, sizes, ())
    params = {key: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for key, shape in shapes.items()}
    jitted = jax.jit(step, in_shardings=(shardings, batches), out_shardings=(shardings, whole))
    return jitted.lower(params, jax.ShapeDtypeStruct(batch, jnp.bfloat16))


def _sharding(
    devices: Any, names: tuple[str, ...], sizes: tuple[int, ...], spec: tuple[str | None, ...]
) -> Any:
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    return NamedSharding(Mesh(np.array(devices).reshape(sizes), names), PartitionSpec(*spec))


STEPS: Mapping[str, Callable[[Any], Any]] = {
    "fsdp": fsdp,
    "tensor": tensor,
    "pipeline": pipeline,
}


if __name__ == "__main__":
    main(*sys.argv[1:])

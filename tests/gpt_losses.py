"""The losses of two steps of examples/gpt.py, built in every way, on four pretended devices.

Run as a script, in a process of its own: prints {name: [loss, loss]} as JSON.
"""

import json
import os
import sys
from pathlib import Path

from slipstream.flags.catalogue.catalogue import installed_catalogue

SIZES = {"LAYERS": 4, "WIDTH": 32, "HEADS": 4, "WORDS": 64, "TOKENS": 16, "BATCH": 2}
SIZES |= {"STAGES": 4, "MICROBATCHES": 4}
BUILDERS = ("build", "build_data", "build_tensor", "build_pipeline")


def quick_flags() -> str:
    """What is computed counts here, not how fast: code that is made in a third of the time."""
    wanted = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": "false"}
    # Newer releases have only the emitters that take long.
    known = installed_catalogue().flags
    return " ".join(f"--{name}={value}" for name, value in wanted.items() if name in known)


def main() -> None:
    os.environ |= {f"GPT_{name}": str(size) for name, size in SIZES.items()}
    devices = "--xla_force_host_platform_device_count=4"
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{devices} {quick_flags()}"}
    sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
    import gpt
    import jax

    built = {name: getattr(gpt, name)(jax.devices()) for name in BUILDERS}
    built["chosen"] = gpt.build(jax.devices(), remat="dots", layers="unrolled", batch=2)
    # The same weights for all; a pipeline has the same layers, dealt out to stages.
    state = jax.device_get(gpt.initial_state(built["build_data"][1]))
    print(json.dumps({name: losses(state, *one) for name, one in built.items()}))


def losses(state, step, abstract, tokens) -> list[float]:
    import jax

    state = jax.tree.map(
        lambda value, leaf: jax.device_put(value.reshape(leaf.shape), leaf.sharding),
        state,
        abstract,
    )
    batch = jax.random.randint(jax.random.key(1), tokens.shape, 0, SIZES["WORDS"])
    batch = jax.device_put(batch, tokens.sharding)
    state, first = step(state, batch)
    _, second = step(state, batch)
    return [float(first), float(second)]


if __name__ == "__main__":
    main()

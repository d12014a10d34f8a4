"""The losses of examples/llama.py, llama_nnx.py or moe.py in layouts, on eight pretended devices.

`python tests/layout_losses.py llama`, in a process of its own: runs the example as a script, builds
it for one device and for meshes of three axes, and prints {layout: [loss, …]} as JSON; for each
mesh also the relative difference of each weight's gradients from those on one device, and the
number of products in the step with and without those that are computed again.
"""

import contextlib
import importlib
import io
import json
import os
import re
import runpy
import sys
from pathlib import Path

from gpt_losses import quick_flags

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STEPS = 20

LAYOUTS = {
    "llama": {
        "mixed": dict(fsdp=2, context=2, tensor=2, remat="none", layers="unrolled", batch=4),
        "pipelined": dict(fsdp=2, pipeline=2, context=2, remat="dots", batch=4, microbatches=2),
    },
    "llama_nnx": {
        "mixed": dict(fsdp=2, context=2, tensor=2, remat="none", layers="unrolled", batch=4),
    },
    "moe": {"mixed": dict(fsdp=2, expert=2, tensor=2, remat="dots", layers="unrolled", batch=2)},
}


def main(name: str) -> None:
    os.environ |= {"LLAMA_STEPS": str(STEPS), "MOE_STEPS": str(STEPS)}
    devices = "--xla_force_host_platform_device_count=8"
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{devices} {quick_flags()}"}
    sys.path.insert(0, str(EXAMPLES))
    import jax

    example = importlib.import_module(name)
    found = {"script": script_losses(name), "products": []}
    if name == "llama":
        found["products"] = [products(example, {}), products(example, {"pipeline": 2})]
    one = example.build(jax.devices()[:1], batch=8)
    state, batch = start(example, *one[1:])
    found["one"], gradients = losses(one[0], *placed((state, batch), one[1:]))
    for layout, choices in LAYOUTS[name].items():
        step, *abstract = example.build(jax.devices(), **choices)
        found[layout], others = losses(step, *placed((state, batch), tuple(abstract)))
        found[f"{layout} gradients"] = differences(gradients, others)
    print(json.dumps(found))


def script_losses(name):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return [float(loss) for loss in re.findall(r"loss +([\d.]+) +[\d.]+ ms", printed.getvalue())]


def start(example, abstract, tokens):
    """Weights and batch as the script makes them, on the host."""
    import jax
    import llama

    initial_state = getattr(example, "initial_state", llama.initial_state)
    batch = llama.random_batch(tokens, words=llama.SIZES["tiny"].words)
    return jax.device_get((initial_state(abstract), batch))


def placed(values, abstract):
    import jax

    return jax.tree.map(lambda value, leaf: jax.device_put(value, leaf.sharding), values, abstract)


def losses(step, state, batch):
    """Of two steps; and the gradients of the first, as Adam keeps them."""
    import jax

    state, first = step(state, batch)
    gradients = jax.device_get(state["first"] if "first" in state else first_moments(state))
    _, second = step(state, batch)
    return [float(first), float(second)], gradients


def first_moments(state):
    """Of Optax's Adam."""
    return state[1]["opt_state"][0]["mu"]


def products(example, choices):
    """How many the step computes if everything is computed again, and if products are saved."""
    import jax

    steps = [
        example.build(jax.devices(), **choices, batch=2, remat=one) for one in ("full", "dots")
    ]
    return [str(step.trace(*given).jaxpr).count("dot_general") for step, *given in steps]


def differences(expected, found):
    import jax
    import numpy as np

    norm = np.linalg.norm
    both = zip(jax.tree.leaves(expected), jax.tree.leaves(found), strict=True)
    return [float(norm(other - one) / norm(one)) for one, other in both]


if __name__ == "__main__":
    main(*sys.argv[1:])

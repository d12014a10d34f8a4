"""The losses of examples/llama.py or moe.py, in several layouts, on eight pretended devices.

`python tests/layout_losses.py llama`, in a process of its own: runs the example as a script, builds
it for one device and for a mesh of three axes, and prints {layout: [loss, …]} as JSON.
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

MIXED = {
    "llama": {"fsdp": 2, "context": 2, "tensor": 2, "remat": "none", "layers": "unrolled"},
    "moe": {"fsdp": 2, "expert": 2, "tensor": 2, "remat": "dots", "layers": "unrolled"},
}


def main(name: str) -> None:
    os.environ[f"{name.upper()}_STEPS"] = str(STEPS)
    devices = "--xla_force_host_platform_device_count=8"
    os.environ |= {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": f"{devices} {quick_flags()}"}
    sys.path.insert(0, str(EXAMPLES))
    import jax

    example = importlib.import_module(name)
    found = {"script": script_losses(name)}
    one = example.build(jax.devices()[:1], batch=8)
    state, batch = start(*one[1:])
    mixed = example.build(jax.devices(), **MIXED[name], batch=8 // (2 if name == "llama" else 4))
    for layout, (step, abstract, tokens) in {"one": one, "mixed": mixed}.items():
        found[layout] = losses(step, *placed((state, batch), (abstract, tokens)))
    print(json.dumps(found))


def script_losses(name):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    return [float(loss) for loss in re.findall(r"loss +([\d.]+) +[\d.]+ ms", printed.getvalue())]


def start(abstract, tokens):
    """Weights and batch as the script makes them, on the host."""
    import jax
    import llama

    words = abstract["params"]["embedding"].shape[0]
    return jax.device_get((llama.initial_state(abstract), llama.random_batch(tokens, words)))


def placed(values, abstract):
    import jax

    return jax.tree.map(lambda value, leaf: jax.device_put(value, leaf.sharding), values, abstract)


def losses(step, state, batch):
    state, first = step(state, batch)
    _, second = step(state, batch)
    return [float(first), float(second)]


if __name__ == "__main__":
    main(*sys.argv[1:])

"""The manual PGLE loop on a GPU: profile, costs, compile with them, and steps timed interleaved.

Two models, each compiled six ways; needs a GPU. `python benchmarks/pgle_loop.py [--out FOLDER]`
prints a table in Markdown, which docs/costs.md shows, and writes the costs it made.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.ad_checkpoint import checkpoint_name

from slipstream.costs.coverage import check_profile
from slipstream.costs.extract import extract_costs
from slipstream.sources.load import load

NO_COMMAND_BUFFERS = {"xla_gpu_enable_command_buffer": ""}
LHS = {"xla_gpu_enable_latency_hiding_scheduler": True}
ROUNDS = 30
PROFILED_STEPS = 3


def gpt(layers, width, heads, words, tokens, batch, offload):
    """A GPT training step under `scan`; with `offload`, activations go to pinned host memory."""
    shapes = {
        "qkv": (layers, width, 3 * width),
        "out": (layers, width, width),
        "up": (layers, width, 4 * width),
        "down": (layers, 4 * width, width),
    }

    def norm(x):
        x = x.astype(jnp.float32)
        return (x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6)).astype(jnp.bfloat16)

    def block(h, p):
        h = checkpoint_name(h, "residual")
        p = jax.tree.map(lambda w: w.astype(jnp.bfloat16), p)
        q, k, v = jnp.split(norm(h) @ p["qkv"], 3, -1)
        q, k, v = (t.reshape(batch, tokens, heads, -1) for t in (q, k, v))
        attended = jax.nn.dot_product_attention(q, k, v, is_causal=True)
        h = h + attended.reshape(batch, tokens, width) @ p["out"]
        return h + jax.nn.gelu(norm(h) @ p["up"]) @ p["down"], None

    policy = None
    if offload:
        policy = jax.checkpoint_policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=["residual"],
            offload_src="device",
            offload_dst="pinned_host",
        )
    remat = jax.checkpoint(block, policy=policy)

    def loss(params, text):
        h = params["embedding"].astype(jnp.bfloat16)[text[:, :-1]]
        h, _ = jax.lax.scan(remat, h, {name: params[name] for name in shapes})
        logits = (h @ params["embedding"].astype(jnp.bfloat16).T).astype(jnp.float32)
        target = jnp.take_along_axis(logits, text[:, 1:, None], -1)[..., 0]
        return jnp.mean(jax.nn.logsumexp(logits, -1) - target)

    def step(params, text):
        value, gradients = jax.value_and_grad(loss)(params, text)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, params, gradients), value

    rng = np.random.default_rng(0)
    shapes_all = {**shapes, "embedding": (words, width)}
    params = {
        name: jnp.asarray(rng.standard_normal(shape, np.float32) * 0.02)
        for name, shape in shapes_all.items()
    }
    return step, params, jnp.asarray(rng.integers(0, words, (batch, tokens + 1)))


MODELS = {
    "host offload": dict(layers=8, width=4096, heads=32, words=16384, tokens=1024, batch=16),
    "plain GPT": dict(layers=8, width=2048, heads=16, words=32768, tokens=2048, batch=8),
}


class Arms:
    """Variants of one step, sharing donated parameters."""

    def __init__(self, step, params, text):
        self.lowered = jax.jit(step, donate_argnums=0).lower(params, text)
        self.params, self.text = params, text
        self.compiled = {}

    def compile(self, name, **options):
        self.compiled[name] = self.lowered.compile(compiler_options=options)

    def run(self, name):
        begin = time.perf_counter()
        self.params, _ = self.compiled[name](self.params, self.text)
        jax.block_until_ready(self.params)
        return time.perf_counter() - begin

    def profile(self, name):
        for _ in range(3):
            self.run(name)
        with tempfile.TemporaryDirectory() as folder:
            with jax.profiler.trace(folder):
                for i in range(PROFILED_STEPS):
                    with jax.profiler.StepTraceAnnotation("train", step_num=i):
                        self.run(name)
            return load(folder)

    def interleaved(self):
        """Seconds of every round and arm; the order turns with the rounds."""
        names = list(self.compiled)
        times = {name: [] for name in names}
        for i in range(ROUNDS + 2):
            for name in names[i % len(names) :] + names[: i % len(names)]:
                seconds = self.run(name)
                if i >= 2:
                    times[name].append(seconds)
        return {name: np.array(values) for name, values in times.items()}


def interval(values, rng):
    """95% bootstrap interval of the median."""
    picks = rng.integers(0, len(values), (4000, len(values)))
    return np.quantile(np.median(values[picks], axis=1), (0.025, 0.975))


def loop(name, options, out):
    arms = Arms(*gpt(**options, offload=name == "host offload"))
    arms.compile("default")
    arms.compile("default again, the null arm")
    arms.compile("no command buffers", **NO_COMMAND_BUFFERS, **LHS)
    figures = {}
    for source, label in (("default", "graphs"), ("no command buffers", "plain")):
        profile = arms.profile(source)
        table = extract_costs(profile)
        coverage = check_profile(table, profile)
        file = out / f"{name.replace(' ', '_')}_{label}.pb"
        table.write(file)
        figures[f"costs from {source}"] = {
            "instructions": len(table),
            "share": coverage.share,
            "missing": [m.name for m in coverage.missing],
        }
        pgle = {"xla_gpu_pgle_profile_file_or_directory_path": str(file)}
        arms.compile(f"PGLE, costs from {source}", **LHS, **pgle)
        if label == "plain":
            arms.compile("PGLE, no command buffers", **LHS, **NO_COMMAND_BUFFERS, **pgle)
    times = arms.interleaved()
    rng = np.random.default_rng(0)
    base = times["default"]
    print(f"\n**{name}**, {ROUNDS} interleaved rounds\n")
    print("| arm | step, ms (95%) | against default (95%) |")
    print("| --- | --- | --- |")
    for arm, values in times.items():
        low, high = interval(values, rng) * 1e3
        middle = np.median(values) * 1e3
        ratio = values / base - 1
        a, b = interval(ratio, rng) * 100
        change = "" if arm == "default" else f"{np.median(ratio) * 100:+.2f}% ({a:+.2f} … {b:+.2f})"
        print(f"| {arm} | {middle:.2f} ({low:.2f} … {high:.2f}) | {change} |")
        figures[arm] = {"ms": middle, "interval": [low, high], "change": [a, b]}
    for source in ("default", "no command buffers"):
        stated = figures[f"costs from {source}"]
        print(f"\ncosts from {source}: {stated['instructions']} instructions, ", end="")
        print(f"{stated['share']:.1%} of the device time, missing {stated['missing']}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=tempfile.mkdtemp(), help="where costs are written")
    options = parser.parse_args()
    if jax.default_backend() != "gpu":
        print("no GPU here: this benchmark needs one")
        return
    out = Path(options.out)
    out.mkdir(parents=True, exist_ok=True)
    device = jax.devices()[0].device_kind
    print(f"{device}, jax {jax.__version__}")
    found = {name: loop(name, model, out) for name, model in MODELS.items()}
    (out / "pgle_loop.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
